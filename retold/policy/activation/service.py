"""One record's way to its activation, step by step (specification section 2.1).

A label for every record; then eligibility, and nobody is asked about a record that fails it; then evidence in the
principal's own turns; then the category policy, within its limit; then the rules. Nothing is written on the way: what
came out is settled in one transaction, which first looks whether the record still is what was considered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from retold.contracts.activation import (
    ActivationDecision,
    ActivationOutcome,
    ActivationReason,
    CategoryDecision,
    StandingText,
    VerifiedEvidence,
)
from retold.contracts.extraction import OwnTurn
from retold.contracts.record import Activation, MemoryRecord, RecordId, RecordRef, RetrievalCategory
from retold.contracts.stages import FailureKind, StageFailure
from retold.contracts.turn import Principal
from retold.policy.activation.evidence import find_evidence
from retold.policy.activation.ports import CategoryPolicy, RetrievalCategoryPolicy
from retold.policy.activation.reading import read, read_once
from retold.policy.activation.rules import decide_activation, eligibility
from retold.policy.blocking import BlockingPool, PoolClosedError, PoolExhaustedError, call_policy
from retold.policy.limits import failure_of, utc_now, within
from retold.policy.own_words import BLANK
from retold.policy.ports import Embedder
from retold.policy.reading_aside import aside

PRINCIPAL_SUBJECT = "user"
ATTEMPTS = 5
"""How often a record is considered again because it changed meanwhile."""

_REASONS = {
    FailureKind.TIMEOUT: ActivationReason.POLICY_TIMEOUT,
    FailureKind.MALFORMED: ActivationReason.POLICY_MALFORMED,
    FailureKind.REFUSED: ActivationReason.POLICY_ERROR,
    FailureKind.ERROR: ActivationReason.POLICY_ERROR,
}
_CLOCK = (ActivationReason.NOT_YET_VALID, ActivationReason.EXPIRED, ActivationReason.SUSPENDED)
"""What passes with time: it keeps a record out of profiles, and takes back nothing that was decided about its words."""


_NOT_ASKED = (PoolExhaustedError, PoolClosedError)
"""No thread was free, or the worker stops: that says nothing about a policy, and nobody needs to review it."""


class RecordKeepsChangingError(Exception):
    """The record changed every time it was considered. Worth a retry later; nothing was written."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A record that is due, and what was decided about the same words before."""

    record: MemoryRecord
    evaluated: bool
    """This very version was evaluated already."""
    outcome: ActivationOutcome | None = None
    reason: ActivationReason | None = None
    """Of the last evaluation, if it was about the same statement."""
    decided_at: datetime | None = None
    """When the last evaluation was settled, whatever it was about."""
    replaced: tuple[str, ...] = ()
    """Texts of the superseded records about the same attribute of the same subject, of which the latest are enough."""


@dataclass(frozen=True, kw_only=True)
class Label:
    """What the retrieval category policy says of a record; `other` and why, if it failed."""

    category: RetrievalCategory
    by: str
    failure: StageFailure | None = None


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """All that is to be written about one version of one record."""

    principal: Principal
    record: MemoryRecord
    label: Label
    looked_for_evidence: bool
    evidence: VerifiedEvidence | None
    category: CategoryDecision | None
    policy_failure: StageFailure | None
    language: str | None
    """Of the user's words, where it is one with reviewed word lists."""
    outcome: ActivationOutcome
    reason: ActivationReason
    after: datetime | None
    """When the evaluation before this one was settled: if there is a later one by now, this one is not."""
    actor: str
    cause: str


@dataclass(frozen=True, kw_only=True)
class Settled:
    """What was written: the decision about the version that is left behind, and the review it opened, if any."""

    decision: ActivationDecision
    changed: bool
    """The record has a new version, which the index is to follow."""
    assigned: RetrievalCategory
    """The label of its policy; what the host had chosen stays all the same."""
    drifted: bool
    """The record is under another label: what the extractor or the host had said, and the policy does not."""
    review_id: str | None = None


class ActivationBook(Protocol):
    """Where evaluations begin and end. The store implements it."""

    async def subject(self, principal: Principal, record_id: RecordId) -> Subject | None:
        """The record as it is; None: the principal has no such record."""

    async def own_turns(self, record: MemoryRecord) -> Sequence[OwnTurn]:
        """The principal's own turns to look for evidence in: those the record names, and the newest, in order."""

    async def keep(self, record: MemoryRecord) -> None:
        """This version says what was decided about before: it counts as evaluated."""

    async def settle(self, evaluation: Evaluation, at: datetime) -> Settled | None:
        """Write all of it in one transaction; None, and nothing is written, if the record changed meanwhile."""


@dataclass(frozen=True, kw_only=True)
class ActivationService:
    """Evaluates records, one at a time. The same version is settled once, however often it is evaluated.

    Args:
        labels: gives every record its retrieval category.
        policy: proposes an activation category; asked about eligible records with evidence only.
        embedder: locates paraphrases in the principal's turns; None: words alone.
        timeout_ms: how long `policy`, and `labels`, may take for one record.
    """

    book: ActivationBook
    labels: RetrievalCategoryPolicy
    policy: CategoryPolicy
    embedder: Embedder | None
    pool: BlockingPool
    timeout_ms: int
    now: Callable[[], datetime] = utc_now

    async def evaluate(self, principal: Principal, record_id: RecordId, *, actor: str, cause: str) -> Settled | None:
        """Decide what becomes of the record; None: it is gone, or nothing about it is due.

        Raises:
            RecordKeepsChangingError: it changed each time while it was considered.
            PoolExhaustedError, PoolClosedError: a blocking policy could not even be asked. Nothing was written.
        """
        for _ in range(ATTEMPTS):
            subject = await self.book.subject(principal, record_id)
            if subject is None or (subject.evaluated and not its_time_has_come(subject, self.now())):
                return None
            if stands(subject, self.now()):
                await self.book.keep(subject.record)
                return None
            with read_once():
                evaluation = await self._consider(principal, subject, actor=actor, cause=cause)
            settled = await self.book.settle(evaluation, self.now())
            if settled is not None:
                return settled
        raise RecordKeepsChangingError(f"record {record_id} changed {ATTEMPTS} times while it was evaluated")

    async def _consider(self, principal: Principal, subject: Subject, *, actor: str, cause: str) -> Evaluation:
        record = subject.record
        label = await self._label(record)
        at = self.now()
        looked_for = eligibility(record, at, PRINCIPAL_SUBJECT) is None
        turns = await self.book.own_turns(record) if looked_for else ()
        evidence, language = await self._evidence(record, turns)
        category: CategoryDecision | None = None
        failure: StageFailure | None = None
        if evidence is not None:
            category, failure = await self._propose(record, evidence, turns)

        async def decide(_: Embedder | None) -> tuple[ActivationOutcome, ActivationReason]:
            reason = None if failure is None else _REASONS[failure.kind]
            return decide_activation(
                record,
                category,
                PRINCIPAL_SUBJECT,
                evidence,
                at=at,
                turns=turns,
                replaced=subject.replaced,
                policy_failure=reason,
            )

        outcome, reason = await aside(self.pool, decide, None)
        return Evaluation(
            principal=principal,
            record=record,
            label=label,
            looked_for_evidence=looked_for,
            evidence=evidence,
            category=category,
            policy_failure=failure,
            language=language,
            outcome=outcome,
            reason=reason,
            after=subject.decided_at,
            actor=actor,
            cause=cause,
        )

    async def _label(self, record: MemoryRecord) -> Label:
        by = self.labels.identity
        try:
            (category,) = await within(self.timeout_ms, call_policy(self.labels.categorise, [record], pool=self.pool))
        except _NOT_ASKED:
            raise
        except Exception as error:  # noqa: BLE001 - a label that cannot be had is `other`, and the trail says why
            return Label(category=RetrievalCategory.OTHER, by=by, failure=failure_of(error))
        return Label(category=category, by=by)

    async def _evidence(
        self, record: MemoryRecord, turns: Sequence[OwnTurn]
    ) -> tuple[VerifiedEvidence | None, str | None]:
        """Where the principal said it, and in which language."""
        if not turns:
            return None, None

        async def find(embedder: Embedder | None) -> tuple[VerifiedEvidence | None, str | None]:
            found = await find_evidence(record, turns, embedder)
            if found is None or BLANK in found.span:  # then somebody else's words stand in the middle of it
                return None, None
            return found, _language_of(found.span)

        return await aside(self.pool, find, self.embedder)

    async def _propose(
        self, record: MemoryRecord, evidence: VerifiedEvidence, turns: Sequence[OwnTurn]
    ) -> tuple[CategoryDecision | None, StageFailure | None]:
        said = next(turn.text for turn in turns if turn.turn_ref == evidence.turn_ref)
        standing = StandingText(text=record.text, span=evidence.span, session_turn=said)
        try:
            asked = call_policy(self.policy.propose, standing, pool=self.pool)
            return await within(self.timeout_ms, asked), None
        except _NOT_ASKED:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a policy does, it cannot promote by failing
            return None, failure_of(error)


def _language_of(span: str) -> str | None:
    return next((sentence.language for sentence in read(span).sentences if sentence.language is not None), None)


def stands(subject: Subject, at: datetime) -> bool:
    """Whether what was decided about the same words still holds: nobody is asked about them again.

    A promotion stands, and so does what a reviewer said, while the record is what it was made and eligible or only
    out of its time. A contradiction, another status or other words make it due.
    """
    reason = eligibility(subject.record, at, PRINCIPAL_SUBJECT)
    if reason is not None and reason not in _CLOCK:
        return False
    if subject.outcome is ActivationOutcome.PROMOTE:
        return subject.record.activation is Activation.AMBIENT
    return subject.reason is ActivationReason.BY_REVIEWER and subject.record.activation is Activation.CONDITIONAL


def its_time_has_come(subject: Subject, at: datetime) -> bool:
    """Whether only the clock kept a record from being considered, and now nothing does, or something else."""
    return subject.reason in _CLOCK and eligibility(subject.record, at, PRINCIPAL_SUBJECT) is not subject.reason


def decision_of(evaluation: Evaluation, left_behind: RecordRef, at: datetime) -> ActivationDecision:
    """The evaluation as a decision about the version that it leaves behind."""
    return ActivationDecision(
        record=left_behind,
        outcome=evaluation.outcome,
        reason=evaluation.reason,
        category=evaluation.category,
        evidence=evaluation.evidence,
        decided_at=at,
    )
