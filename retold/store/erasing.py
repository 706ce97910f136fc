"""Taking the texts of somebody out of SQL: which rows that is for a record, a session or a principal, table by table.

Runs inside one transaction. What is erased is first noted as a probe, so that it can be looked for afterwards. Done
again it finds nothing, unless something has come in meanwhile that should have been erased with the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, or_, true, update
from sqlalchemy.orm import Session
from sqlmodel import col, select

from retold.contracts.decision import TurnDecision
from retold.contracts.forgetting import Surface
from retold.contracts.identity import session_prefix
from retold.contracts.record import RecordStatus
from retold.contracts.turn import Principal
from retold.policy.forgetting import GONE, Probes, without_texts, without_words
from retold.store import profiles, reviews, tombstones
from retold.store.changes import Changes, make_conditional
from retold.store.settling import Settling
from retold.store.tables import (
    ActivationRow,
    AuditRow,
    DecisionRow,
    EvidenceRow,
    ForgettingRow,
    RecordRow,
    ReviewRow,
    SearchRow,
    SessionRow,
    SessionTurnRow,
)

FORGET_EVENTS = ("forget.asked", "forget.done", "forget.incomplete", "record.forgotten")
"""Audit events of forgetting itself: they say by whom and when, and their reason stays."""

_CHUNK = 500
TurnKey = tuple[str, str]
"""Session and turn."""


class Erasure:
    """One look over the tables for one forgetting.

    Args:
        found: the texts known so far; what is erased now is added to them.
        first: everything that is there counts as said before the forgetting, whatever date it carries.
    """

    def __init__(self, session: Session, forgetting: ForgettingRow, found: Iterable[str], at: datetime, *, first: bool):
        self.removed: Counter[Surface] = Counter()
        self.texts: set[str] = set(found)
        self._session = session
        self._forgetting = forgetting
        self._principal = Principal(tenant=forgetting.tenant, user=forgetting.user_id)
        self._at = at
        self._first = first
        self._buried = {
            what: set(ids) for what, ids in tombstones.buried_by(session, forgetting.receipt_id).items()
        }  # fmt: skip

    def run(self) -> None:
        match self._forgetting.what:
            case "principal":
                self._everything()
            case "session":
                self._of_session(self._forgetting.subject_id)
            case _:
                self._of_record(self._forgetting.subject_id)
        self._session.flush()

    # --- what is to go ----------------------------------------------------------------------------------------

    def _everything(self) -> None:
        records = self._rows(RecordRow, self._before(col(RecordRow.created_at)))
        self._erase_reviews(self._rows(ReviewRow, self._before(col(ReviewRow.opened_at))))
        self._erase_records(records)
        self._erase_evidence(self._before(col(EvidenceRow.verified_at)), self._before(col(ActivationRow.decided_at)))
        self._erase_turns(self._before(col(SessionTurnRow.at)))
        self._erase_decisions(self._rows(DecisionRow, self._before(col(DecisionRow.at))))
        if self._first:
            self._drop_profiles(true())
        self._erase_audit(self._rows(AuditRow, self._before(col(AuditRow.at))))

    def _of_session(self, session_id: str) -> None:
        derived = self._derived_from(session_id)
        ids = self._forgotten_records() | {row.id for row in derived}
        self._erase_records(derived)
        here = and_(col(EvidenceRow.session_id) == session_id, self._before(col(EvidenceRow.said_at)))
        self._erase_evidence(or_(here, _any_of(col(EvidenceRow.record_id), ids)), _any_of(ActivationRow.record_id, ids))
        self._erase_reviews(
            [row for row in self._rows(ReviewRow) if _rests_on(row, session_id) or row.record_id in ids]
        )
        self._erase_turns(and_(col(SessionTurnRow.session_id) == session_id, self._before(col(SessionTurnRow.at))))
        of_session = col(DecisionRow.session_id) == session_id
        self._erase_decisions(self._rows(DecisionRow, of_session, self._before(col(DecisionRow.at))))
        if self._first:
            self._drop_profiles(col(SessionRow.session_id) == session_id)
        about = {session_id, *ids, *self._buried.get(tombstones.REVIEW, ())}
        self._erase_audit([row for row in self._rows(AuditRow) if row.subject_id in about])

    def _of_record(self, named: str) -> None:
        records = self._with_copies(named)
        self._erase_records(records)
        ids = self._forgotten_records()
        if not ids:
            return
        probes = Probes(self.texts)
        before = self._before(col(SessionTurnRow.at))
        turns = self._turns_behind(records) | {
            (row.session_id, row.turn_id) for row in self._rows(SessionTurnRow, before) if probes.within(row.text)
        }
        self._erase_reviews(
            [row for row in self._rows(ReviewRow) if row.record_id in ids or probes.within(row.evidence)]
        )
        self._erase_evidence(_any_of(EvidenceRow.record_id, ids), _any_of(ActivationRow.record_id, ids))
        decisions = self._rows(DecisionRow, self._before(col(DecisionRow.at)))
        self._forget_answers([row for row in decisions if _applied(row, ids)])
        self._bury(tombstones.TURN, (row.decision_id for row in decisions if (row.session_id, row.turn_id) in turns))
        for some in _chunks(turns):
            self._erase_turns(
                or_(*(and_(col(SessionTurnRow.session_id) == s, col(SessionTurnRow.turn_id) == t) for s, t in some)),
                as_probes=False,
            )
        holding = {row.decision_id for row in self._searches(decisions) if probes.within(row.query)}
        self._erase_decisions(
            [
                row
                for row in decisions
                if (row.session_id, row.turn_id) in turns
                or row.decision_id in holding
                or probes.within_decision(TurnDecision.model_validate(row.document))
            ],
            as_probes=False,
        )
        about = {*ids, *self._buried.get(tombstones.REVIEW, ())}
        audited = self._rows(AuditRow, self._before(col(AuditRow.at)))
        self._erase_audit(
            [row for row in audited if row.subject_id in about or probes.within(row.reason, row.before, row.after)]
        )

    def _with_copies(self, named: str) -> list[RecordRow]:
        """The record; what it replaced; and whatever holds its exact words, in the principal's other scopes too."""
        rows = {row.id: row for row in self._rows(RecordRow, self._before(col(RecordRow.created_at)))}
        by_id = rows.get(named)
        chosen = {row.id for row in rows.values() if row is by_id or (by_id is None and row.host_key == named)}
        evidence = self._evidence_of(rows)
        replaced: dict[str, list[str]] = {}
        for row in rows.values():
            if row.superseded_by is not None:
                replaced.setdefault(row.superseded_by, []).append(row.id)
        new, unsought = set(chosen), set(self.texts)
        while True:
            new = _with_all_behind(new, replaced)
            chosen |= new
            unsought |= {rows[id].text for id in new} | {evidence[id].span for id in new if id in evidence}
            self.texts |= unsought
            probes = Probes(unsought)  # each text once: rows that are not chosen were compared with the others
            new = {row.id for row in rows.values() if row.id not in chosen and probes.within(*_said_in(row))}
            if not new:
                return [rows[id] for id in sorted(chosen)]
            unsought = set()

    def _derived_from(self, session_id: str) -> list[RecordRow]:
        """Records that rest on nothing but this session. From the others the session is taken out of the evidence."""
        said = self._rows(SessionTurnRow, col(SessionTurnRow.session_id) == session_id)
        turns = [turn for turn in said if self._first or turn.at < self._forgetting.forgotten_at]
        later = {turn.id for turn in said} - {turn.id for turn in turns}
        elsewhere = set(
            self._session.scalars(
                select(SessionTurnRow.turn_id).where(
                    self._owned(SessionTurnRow), col(SessionTurnRow.session_id) != session_id
                )
            )
        )
        refs = {turn.id for turn in turns} | ({turn.turn_id for turn in turns} - elsewhere)
        begins = "said/" + session_prefix(self._principal, session_id).removeprefix("turn/")
        rows = {row.id: row for row in self._rows(RecordRow)}
        verified = self._evidence_of(rows)
        derived, changes = [], self._changes()
        for row in rows.values():
            here = [ref for ref in row.evidence if ref in refs or (ref.startswith(begins) and ref not in later)]
            left = [ref for ref in row.evidence if ref not in here]
            found = verified.get(row.id)
            found_here = found is not None and found.session_id == session_id and found.turn_ref not in later
            if not here and not found_here:
                continue
            if not left and (found is None or found_here):
                derived.append(row)
                continue
            with changes.changing(row, "record.evidence_forgotten"):
                row.evidence = left
                if found_here:
                    make_conditional(row)  # nobody has found it in the principal's words that are left
        changes.close()
        return derived

    def _turns_behind(self, records: Sequence[RecordRow]) -> set[TurnKey]:
        refs = {ref for row in records for ref in row.evidence}
        rows = [row for some in _chunks(refs) for row in self._rows(SessionTurnRow, col(SessionTurnRow.id).in_(some))]
        return {(row.session_id, row.turn_id) for row in rows} | self._verified_turns

    # --- how each table is cleared ----------------------------------------------------------------------------

    def _erase_records(self, rows: Sequence[RecordRow]) -> None:
        if not rows:
            return
        ids = {row.id for row in rows}
        self.texts |= {row.text for row in rows}
        self._verified_turns = {(row.session_id, row.turn_id) for row in self._evidence_of(ids).values()}
        self._bury(tombstones.RECORD, ids)
        self._bury(
            tombstones.KEY, (tombstones.key_digest(self._principal, row.host_key) for row in rows if row.host_key)
        )
        open_items = reviews.withdraw_for_records(
            self._session, ids, at=self._at, actor=self._forgetting.actor, why="the record was forgotten"
        )
        self._bury(tombstones.REVIEW, open_items)
        self.removed[Surface.PROFILES] += profiles.remove_records(self._session, self._principal, ids)
        changes = self._changes()
        settling = Settling(changes)
        for row in rows:
            with changes.changing(row, "record.forgotten"):
                row.status = RecordStatus.DELETED.value
            settling.taken_back(row)
        self._session.flush()
        for row in rows:
            self._session.delete(row)
        settling.run()
        self._clear_references(changes, ids)
        changes.close()
        self.removed[Surface.RECORDS] += len(rows)

    def _clear_references(self, changes: Changes, ids: Collection[str]) -> None:
        """Nothing that stays points to what is gone: not as its rival, its successor or what holds instead of it."""
        ids = set(ids)
        for row in self._rows(RecordRow):
            if ids.isdisjoint((row.supersedes, row.superseded_by, row.suspended_by, *row.conflicts_with)):
                continue
            with changes.changing(row, "record.reference_forgotten"):
                row.supersedes = None if row.supersedes in ids else row.supersedes
                row.superseded_by = None if row.superseded_by in ids else row.superseded_by
                if row.suspended_by in ids:
                    row.suspended_by = row.suspended_from = row.suspended_until = None
                row.conflicts_with = [id for id in row.conflicts_with if id not in ids]
                row.conflicting = bool(row.conflicts_with)

    def _erase_evidence(self, verified: ColumnElement[bool], decided: ColumnElement[bool]) -> None:
        for evidence in self._rows(EvidenceRow, verified):
            self.texts.add(evidence.span)
            self._session.delete(evidence)
            self.removed[Surface.EVIDENCE] += 1
        for decision in self._rows(ActivationRow, decided):
            self.texts |= {said for said in [(decision.category or {}).get("rationale")] if said}
            self._session.delete(decision)
            self.removed[Surface.EVIDENCE] += 1

    def _erase_reviews(self, rows: Sequence[ReviewRow]) -> None:
        reviews.withdraw_for_records(
            self._session,
            [row.record_id for row in rows],
            at=self._at,
            actor=self._forgetting.actor,
            why="what it rests on was forgotten",
        )
        self._bury(tombstones.REVIEW, (row.review_id for row in rows))
        for row in rows:
            if row.evidence is None and not row.resolution_reason:
                continue
            if row.evidence is not None:
                self.texts |= {said for said in [row.evidence.get("span")] if said}
            row.evidence, row.resolution_reason = None, None
            self.removed[Surface.REVIEWS] += 1

    def _erase_turns(self, which: ColumnElement[bool], *, as_probes: bool = True) -> None:
        rows = self._rows(SessionTurnRow, which)
        if as_probes:
            self.texts |= {row.text for row in rows}
        for some in _chunks(row.id for row in rows):
            self._session.execute(delete(SessionTurnRow).where(col(SessionTurnRow.id).in_(some)))
        self.removed[Surface.SESSION_TURNS] += len(rows)

    def _forget_answers(self, rows: Sequence[DecisionRow]) -> None:
        """Answers that were written with the record may hold it in other words."""
        self._bury(tombstones.ANSWER, (row.decision_id for row in rows))
        for some in _chunks((row.session_id, row.turn_id) for row in rows):
            of_turns = (and_(col(SessionTurnRow.session_id) == s, col(SessionTurnRow.turn_id) == t) for s, t in some)
            self._erase_turns(and_(col(SessionTurnRow.role) == "final", or_(*of_turns)), as_probes=False)

    def _erase_decisions(self, rows: Sequence[DecisionRow], *, as_probes: bool = True) -> None:
        for search in self._searches(rows):
            if search.query != GONE:
                if as_probes:
                    self.texts.add(search.query)
                search.query = GONE
                self.removed[Surface.SEARCH_LOG] += 1
        for row in rows:
            decision = TurnDecision.model_validate(row.document)
            kept = without_texts(decision)
            if kept != decision:
                if as_probes:
                    self.texts |= {gap.query for gap in decision.gaps}
                row.document, row.request_digest = kept.model_dump(mode="json"), kept.request_digest
                self.removed[Surface.DECISIONS] += 1

    def _drop_profiles(self, which: ColumnElement[bool]) -> None:
        dropped = self._session.execute(
            update(SessionRow).where(self._owned(SessionRow), which, col(SessionRow.profile).is_not(None))
            .values(profile=None).returning(col(SessionRow.session_id))
        ).all()  # fmt: skip
        self.removed[Surface.PROFILES] += len(dropped)

    def _erase_audit(self, rows: Iterable[AuditRow]) -> None:
        for row in rows:
            kept = (without_words(row.before), without_words(row.after))
            reason = row.reason if row.event in FORGET_EVENTS and self._is_of_this(row) else ""
            if (row.before, row.after, row.reason) != (*kept, reason):
                row.before, row.after, row.reason = *kept, reason
                self.removed[Surface.AUDIT] += 1

    # --- looking ----------------------------------------------------------------------------------------------

    def _rows(self, table: type[Any], *conditions: ColumnElement[bool]) -> list[Any]:
        return list(self._session.scalars(select(table).where(self._owned(table), *conditions)))

    def _searches(self, decisions: Sequence[DecisionRow]) -> Iterator[SearchRow]:
        for some in _chunks(row.decision_id for row in decisions):
            yield from self._rows(SearchRow, col(SearchRow.decision_id).in_(some))

    def _evidence_of(self, ids: Collection[str]) -> dict[str, EvidenceRow]:
        return {row.record_id: row for row in self._rows(EvidenceRow) if row.record_id in ids}

    def _owned(self, table: type[Any]) -> ColumnElement[bool]:
        return and_(col(table.tenant) == self._principal.tenant, col(table.user_id) == self._principal.user)

    def _before(self, time: Any) -> ColumnElement[bool]:
        return true() if self._first else time < self._forgetting.forgotten_at

    def _is_of_this(self, row: AuditRow) -> bool:
        return row.at >= self._forgetting.forgotten_at

    def _forgotten_records(self) -> set[str]:
        return self._buried.get(tombstones.RECORD, set())

    def _bury(self, what: str, ids: Iterable[str]) -> None:
        known = self._buried.setdefault(what, set())
        new = set(ids) - known
        tombstones.bury(
            self._session, self._principal, what, new, self._forgetting.receipt_id, self._forgetting.forgotten_at
        )
        known |= new

    def _changes(self) -> Changes:
        return Changes(
            self._session,
            self._principal,
            actor=self._forgetting.actor,
            reason=self._forgetting.reason,
            at=self._at,
        )

    _verified_turns: set[TurnKey] = set()


def _with_all_behind(ids: Collection[str], replaced: Mapping[str, Sequence[str]]) -> set[str]:
    """These, what they replaced, what that had replaced, and so on."""
    found, unseen = set(ids), list(ids)
    while unseen:
        behind = [id for id in replaced.get(unseen.pop(), ()) if id not in found]
        found.update(behind)
        unseen += behind
    return found


def _said_in(row: RecordRow) -> tuple[object, ...]:
    return row.text, row.subject, row.attribute, row.entities, row.host_key


def _applied(row: DecisionRow, ids: Collection[str]) -> bool:
    return any(ref["id"] in ids for ref in row.document.get("applied", ()))


def _rests_on(row: ReviewRow, session_id: str) -> bool:
    return row.evidence is not None and row.evidence.get("session_id") == session_id


def _any_of(column: Any, ids: Collection[str]) -> ColumnElement[bool]:
    return col(column).in_(sorted(ids))


def _chunks(values: Iterable[Any]) -> Iterator[list[Any]]:
    ordered = sorted(set(values))
    for start in range(0, len(ordered), _CHUNK):
        yield ordered[start : start + _CHUNK]
