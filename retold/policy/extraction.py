"""Reading a transcript for statements worth keeping: an extractor proposes, the host believes none of it unseen.

A proposal is kept if the words it rests on stand, to the letter, in the turn it names, and are the user's own there.
It enters as provisional, whoever proposed it; confirming it is the activation's business.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from retold.contracts.activation import ActivationReason, VerifiedEvidence
from retold.contracts.extraction import (
    EXTRACTION_TURNS_MAX,
    PROPOSED_RECORDS_MAX,
    Extraction,
    ExtractReport,
    OwnTurn,
    ProposedRecord,
    RefusedProposal,
)
from retold.contracts.record import MemoryRecord, RecordId, RecordRef, RecordStatus, Source
from retold.contracts.stages import StageFailure
from retold.contracts.turn import Principal
from retold.policy.activation.evidence import find_evidence
from retold.policy.activation.ports import Extractor
from retold.policy.activation.reading import read_once
from retold.policy.activation.statement import is_taken_back, judge_statement
from retold.policy.blocking import BlockingPool, call_policy
from retold.policy.limits import failure_of, utc_now, within
from retold.policy.own_words import BLANK, repeats
from retold.policy.ports import Embedder, MalformedReplyError
from retold.policy.reading_aside import aside

_TRIED_WHOLE = 12
"""Turns of which a malformed answer is final. More are asked about again in halves."""

_NOT_MEANT = (
    ActivationReason.QUOTED,
    ActivationReason.THIRD_PARTY,
    ActivationReason.HYPOTHETICAL,
    ActivationReason.QUESTION,
    ActivationReason.SARCASTIC,
    ActivationReason.RETRACTED,
)
"""Words the user used without standing behind them. They carry no more weight than whoever proposed the record."""


@dataclass(frozen=True)
class UnreadTurns:
    """What the principal said in a session and no extractor has read yet, oldest first."""

    turns: Sequence[OwnTurn]
    until: datetime
    """When these are read, everything up to here is, this moment included."""


@dataclass(frozen=True)
class Standing:
    """A standing instruction in force: what the user may take back."""

    record_id: RecordId
    text: str
    told_at: datetime


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """A proposal the host has checked, and whose word it counts as."""

    index: int
    """Among the round's proposals."""
    proposal: ProposedRecord
    said_at: datetime
    source: Source
    """`principal`: the user's words say what the record says. `model`: only the extractor says so."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What the store made of the accepted proposals of one round."""

    written: tuple[RecordRef, ...] = ()
    unchanged: int = 0
    refused: tuple[RefusedProposal, ...] = ()
    changed: tuple[RecordId, ...] = ()
    """Every record that is different now, those that were superseded or suspended included."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """One round of reading: what it did, what is due for evaluation, and whether there is more to read."""

    report: ExtractReport
    changed: tuple[RecordId, ...] = ()
    more: bool = False


class Transcripts(Protocol):
    """Where unread turns come from and proposals go. The store implements it."""

    async def unread(self, principal: Principal, session_id: str) -> UnreadTurns | None:
        """The next turns to read; None: everything in the session has been read."""

    async def remembered(self, principal: Principal) -> Collection[str]:
        """What is remembered of the principal already, each text as `own_words.plain` gives it."""

    async def standing(self, principal: Principal) -> Sequence[Standing]:
        """The principal's ambient records."""

    async def keep(
        self,
        principal: Principal,
        session_id: str,
        accepted: Sequence[Accepted],
        until: datetime,
        *,
        taken_back: Sequence[RecordId],
        actor: str,
        by: str,
        at: datetime,
    ) -> Kept:
        """Write the proposals, and that the session is read up to `until`, in one transaction.

        Args:
            taken_back: ambient records that are conditional from now on, if they are ambient still.
            by: the extractor and its version, for the audit trail.
        """


@dataclass(frozen=True, kw_only=True)
class ExtractionService:
    """Reads sessions, a round at a time. A round that fails leaves its turns unread.

    Args:
        embedder: finds a record's words in the turn where the record paraphrases it; None: words alone.
        timeout_ms: how long the extractor may take for at most 50 turns.
    """

    transcripts: Transcripts
    extractor: Extractor
    embedder: Embedder | None
    pool: BlockingPool
    timeout_ms: int
    now: Callable[[], datetime] = utc_now

    async def read(self, principal: Principal, session_id: str, *, actor: str) -> Round:
        """Read the next turns of the session; an empty round, if there are none."""
        with read_once():
            return await self._round(principal, session_id, actor=actor)

    async def _round(self, principal: Principal, session_id: str, *, actor: str) -> Round:
        unread = await self.transcripts.unread(principal, session_id)
        if unread is None:
            return Round(report=ExtractReport())
        try:
            proposals, by = await self._proposals(unread.turns)
        except Exception as error:  # noqa: BLE001 - whatever an extractor does, the session stays due
            return Round(report=ExtractReport(turns_read=0, failed=_why(failure_of(error))))
        accepted, refused = await self._checked(principal, proposals, unread.turns)
        kept = await self.transcripts.keep(
            principal,
            session_id,
            accepted,
            unread.until,
            taken_back=await self._taken_back(principal, unread.turns, accepted),
            actor=actor,
            by=by,
            at=self.now(),
        )
        report = ExtractReport(
            turns_read=len(unread.turns),
            proposed=len(proposals),
            written=kept.written,
            unchanged=kept.unchanged,
            refused=(*refused, *kept.refused),
        )
        return Round(report=report, changed=kept.changed, more=True)

    async def _proposals(self, turns: Sequence[OwnTurn]) -> tuple[list[ProposedRecord], str]:
        """What the extractor proposes, and who it is."""
        proposals: list[ProposedRecord] = []
        by = "nobody: nothing was said"
        for start in range(0, len(turns), EXTRACTION_TURNS_MAX):
            for extraction in await self._extract(turns[start : start + EXTRACTION_TURNS_MAX]):
                proposals += extraction.proposals
                by = f"{extraction.extractor} {extraction.extractor_version}"
        return proposals, by

    async def _extract(self, turns: Sequence[OwnTurn]) -> Sequence[Extraction]:
        """One answer, or several where one cannot hold all of it: these turns are not read a second time."""
        asked = call_policy(self.extractor.extract, turns, pool=self.pool)
        try:
            extraction = await within(self.timeout_ms, asked)
        except MalformedReplyError:
            # Cut off, most likely: half of it may fit.
            if len(turns) <= _TRIED_WHOLE:
                raise
        else:
            if len(extraction.proposals) < PROPOSED_RECORDS_MAX or len(turns) == 1:
                return [extraction]
        half = len(turns) // 2
        return [*await self._extract(turns[:half]), *await self._extract(turns[half:])]

    async def _checked(
        self, principal: Principal, proposals: Sequence[ProposedRecord], turns: Sequence[OwnTurn]
    ) -> tuple[list[Accepted], list[RefusedProposal]]:
        by_ref = {turn.turn_ref: turn for turn in turns}
        remembered = await self.transcripts.remembered(principal) if proposals else ()
        accepted: list[Accepted] = []
        refused: list[RefusedProposal] = []
        for index, proposal in enumerate(proposals):
            turn = by_ref.get(proposal.turn_ref)
            why = refusal(proposal, turn, remembered)
            if why is not None or turn is None:
                refused.append(RefusedProposal(index=index, why=why or "unknown_turn"))
                continue
            source = await self._source(principal, proposal, turn)
            accepted.append(Accepted(index=index, proposal=proposal, said_at=turn.said_at, source=source))
        return accepted, refused

    async def _taken_back(
        self, principal: Principal, turns: Sequence[OwnTurn], accepted: Sequence[Accepted]
    ) -> Sequence[RecordId]:
        """Which standing instructions the user takes back in these turns: "never again" need not become a record.

        What becomes a record for a time suspends what stands, and takes nothing back.
        """
        for_a_time = {each.proposal.turn_ref for each in accepted if _is_for_a_time(each.proposal)}
        turns = [turn for turn in turns if turn.turn_ref not in for_a_time]
        standing = await self.transcripts.standing(principal) if turns else ()

        async def find(_: Embedder | None) -> Sequence[RecordId]:
            return [
                each.record_id
                for each in standing
                if is_taken_back(each.text, [turn for turn in turns if turn.said_at > each.told_at])
            ]

        return await aside(self.pool, find, None) if standing else ()

    async def _source(self, principal: Principal, proposal: ProposedRecord, turn: OwnTurn) -> Source:
        """Whose word the record is. Only words that say it, and are meant, count as the principal's: a statement the
        user merely mentioned must not replace one they made."""

        async def judge(embedder: Embedder | None) -> Source:
            evidence = await find_evidence(_as_record(principal, proposal, turn), [turn], embedder)
            return Source.PRINCIPAL if evidence is not None and _is_meant(proposal, evidence, turn) else Source.MODEL

        return await aside(self.pool, judge, self.embedder)


def refusal(proposal: ProposedRecord, turn: OwnTurn | None, remembered: Collection[str]) -> str | None:
    """Why the host does not believe a proposal, as a code; None: it may be kept.

    Args:
        turn: the turn it names, with everything blanked that is not the user's own; None: it names none that was read.
        remembered: texts of stored records, as `own_words.plain` gives them.
    """
    if turn is None:
        return "unknown_turn"
    if BLANK in proposal.span or not proposal.span.strip() or proposal.span not in turn.text:
        return "span_not_in_own_turn"
    if repeats(proposal.span, remembered):
        return "repeats_memory"  # as it is remembered already, nothing is lost
    if not _is_name(proposal.subject):
        return "subject_is_no_name"
    if proposal.attribute is not None and not _is_name(proposal.attribute):
        return "attribute_is_no_name"
    return None


def _is_name(name: str) -> bool:
    """One visible line that starts and ends with something: it is compared, to find what a statement replaces."""
    hidden = any(unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp", "Co", "Cn") for char in name)
    return not hidden and name == name.strip() and any(char.isalnum() for char in name)


def _is_meant(proposal: ProposedRecord, evidence: VerifiedEvidence, turn: OwnTurn) -> bool:
    return judge_statement(proposal.text, evidence, [turn])[1] not in _NOT_MEANT


def _is_for_a_time(proposal: ProposedRecord) -> bool:
    return proposal.temporary or proposal.valid_from is not None or proposal.valid_until is not None


def _as_record(principal: Principal, proposal: ProposedRecord, turn: OwnTurn) -> MemoryRecord:
    return MemoryRecord(
        id="proposed",
        tenant=principal.tenant,
        user=principal.user,
        type=proposal.type,
        subject=proposal.subject,
        attribute=proposal.attribute,
        text=proposal.text,
        status=RecordStatus.PROVISIONAL,
        valid_from=proposal.valid_from,
        valid_until=proposal.valid_until,
        event_at=proposal.event_at,
        created_at=turn.said_at,
        source=Source.MODEL,
    )


def _why(failure: StageFailure) -> str:
    return f"extractor_{failure.kind.value}: {failure.error}"
