"""What an evaluation of a record writes: everything that follows from it in one transaction, in the order it happened.

The record's row is locked and compared with what was considered first. If it is another version by now, or the words
the evidence rests on are not there any more, nothing is written and the record is considered again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import and_, or_
from sqlalchemy.orm import Session
from sqlmodel import col, select

from retold.contracts.activation import (
    ActivationOutcome,
    ActivationReason,
    ActivationView,
    CategoryDecision,
    VerifiedEvidence,
)
from retold.contracts.extraction import OwnTurn
from retold.contracts.record import (
    Activation,
    MemoryRecord,
    RecordId,
    RecordRef,
    RecordStatus,
    RetrievalCategory,
    Source,
)
from retold.contracts.review import DEFAULT_BACKLOG_BOUND
from retold.contracts.turn import Principal
from retold.policy.activation.rules import eligibility
from retold.policy.activation.service import PRINCIPAL_SUBJECT, Evaluation, Settled, Subject, decision_of
from retold.store import audit, outbox, reviews, transcripts
from retold.store.changes import hold_principal
from retold.store.engine import Transactions
from retold.store.records import RecordNotFoundError, as_record, audited_state, is_called, owned_by
from retold.store.settling import slot_of
from retold.store.tables import ActivationRow, EvidenceRow, RecordRow, SessionTurnRow

EVIDENCE_TURNS = 60
"""In how many of the principal's own turns evidence is looked for: those a record names, then the newest."""


REPLACED_READ = 50
"""Of the superseded statements about one attribute: as many as earlier turns are read for contradiction."""


@dataclass(frozen=True, kw_only=True)
class ReviewTerms:
    """On what terms an item comes into the review queue."""

    owner: str = "retold"
    """Who answers for the backlog."""
    bound: int = DEFAULT_BACKLOG_BOUND
    """Most items open at a time."""
    lives_for: timedelta = timedelta(days=14)


class Activations:
    """Implements `ActivationBook` of `retold.policy`. Every method is one transaction."""

    def __init__(self, transactions: Transactions, terms: ReviewTerms | None = None) -> None:
        self._transactions = transactions
        self._terms = terms or ReviewTerms()

    def on(self, terms: ReviewTerms) -> Activations:
        """The same, with reviews opened on these terms."""
        return Activations(self._transactions, terms)

    async def subject(self, principal: Principal, record_id: RecordId) -> Subject | None:
        return await self._transactions.read(lambda session: subject(session, principal, record_id))

    async def own_turns(self, record: MemoryRecord) -> Sequence[OwnTurn]:
        owner = Principal(tenant=record.tenant, user=record.user)
        return await self._transactions.read(
            lambda session: transcripts.latest_own_turns(session, owner, named=record.evidence, limit=EVIDENCE_TURNS)
        )

    async def keep(self, record: MemoryRecord) -> None:
        await self._transactions.write(lambda session: keep(session, record))

    async def due(self, at: datetime, *, limit: int) -> Mapping[Principal, Sequence[RecordId]]:
        """Records whose time has come: they begin to hold, or are not suspended any more. By principal."""
        return await self._transactions.read(lambda session: due(session, at, limit))

    async def view(self, principal: Principal, record_id: str) -> ActivationView:
        """What is known about the record's activation, by its id or its host's key.

        Raises:
            RecordNotFoundError: the principal has no such record.
        """
        return await self._transactions.read(lambda session: view(session, principal, record_id))

    async def settle(self, evaluation: Evaluation, at: datetime) -> Settled | None:
        return await self._transactions.write(lambda session: settle(session, evaluation, at, self._terms))


def subject(session: Session, principal: Principal, record_id: RecordId) -> Subject | None:
    row = session.scalar(_owned(principal, record_id))
    if row is None:
        return None
    noted = session.get(ActivationRow, row.id)
    if noted is None:
        return Subject(record=as_record(row), evaluated=False, replaced=_replaced(session, row))
    same_words = noted.content_hash == row.content_hash
    return Subject(
        record=as_record(row),
        replaced=_replaced(session, row),
        evaluated=noted.record_version == row.version,
        outcome=ActivationOutcome(noted.outcome) if same_words else None,
        reason=ActivationReason(noted.reason) if same_words else None,
        decided_at=noted.decided_at,
    )


def _replaced(session: Session, row: RecordRow) -> tuple[str, ...]:
    """What had been said about the row's attribute and does not hold any more, latest first."""
    if (slot := slot_of(row)) is None or row.supersedes is None:
        return ()
    return tuple(
        other.text
        for other in session.scalars(
            select(RecordRow)
            .where(
                col(RecordRow.tenant) == row.tenant,
                col(RecordRow.user_id) == row.user_id,
                is_called(col(RecordRow.subject), [slot.subject]),
                is_called(col(RecordRow.attribute), [slot.attribute]),
                col(RecordRow.status) == RecordStatus.SUPERSEDED.value,
            )
            .order_by(col(RecordRow.created_at).desc(), col(RecordRow.id))
            .limit(REPLACED_READ)
        )
        if slot_of(other) == slot
    )


def due(session: Session, at: datetime, limit: int) -> Mapping[Principal, Sequence[RecordId]]:
    waits_to_begin = and_(
        col(ActivationRow.reason) == ActivationReason.NOT_YET_VALID.value, col(RecordRow.valid_from) <= at
    )
    suspended = and_(
        col(ActivationRow.reason) == ActivationReason.SUSPENDED.value,
        # None: the suspension was ended, and whoever ended it could not have the record evaluated.
        or_(col(RecordRow.suspended_until) <= at, col(RecordRow.suspended_by).is_(None)),
    )
    found: dict[Principal, list[RecordId]] = {}
    for tenant, user, record_id in session.execute(
        select(RecordRow.tenant, RecordRow.user_id, RecordRow.id)
        .join(ActivationRow, col(ActivationRow.record_id) == col(RecordRow.id))
        .where(
            # The reasons first and by name: they have an index, and few records wait for the clock.
            col(ActivationRow.reason).in_([ActivationReason.NOT_YET_VALID.value, ActivationReason.SUSPENDED.value]),
            or_(waits_to_begin, suspended),
        )
        .order_by(col(RecordRow.id))
        .limit(limit)
    ):
        found.setdefault(Principal(tenant=tenant, user=user), []).append(record_id)
    return found


def view(session: Session, principal: Principal, record_id: str) -> ActivationView:
    named = or_(col(RecordRow.id) == record_id, col(RecordRow.host_key) == record_id)
    row = session.scalar(select(RecordRow).where(owned_by(principal), named))
    if row is None:
        raise RecordNotFoundError(f"no record {record_id!r} of this user")
    noted, found = session.get(ActivationRow, row.id), session.get(EvidenceRow, row.id)
    proposal = None if noted is None or noted.category is None else CategoryDecision.model_validate(noted.category)
    return ActivationView(
        record=RecordRef(id=row.id, version=row.version),
        text=row.text,
        status=RecordStatus(row.status),
        activation=Activation(row.activation),
        category=RetrievalCategory(row.category),
        attribute=row.attribute,
        outcome=None if noted is None else ActivationOutcome(noted.outcome),
        reason=None if noted is None else ActivationReason(noted.reason),
        decided_at=None if noted is None else noted.decided_at,
        due=noted is None or noted.record_version != row.version,
        proposal=proposal,
        evidence=None if found is None else _evidence(found),
    )


def _evidence(row: EvidenceRow) -> VerifiedEvidence:
    same = {"session_id", "turn_id", "turn_ref", "span", "said_at", "method", "similarity"}
    return VerifiedEvidence.model_validate(
        {**row.model_dump(include=same), "start": row.span_start, "end": row.span_end}
    )


def keep(session: Session, record: MemoryRecord) -> None:
    owner = Principal(tenant=record.tenant, user=record.user)
    row = session.scalar(_owned(owner, record.id).with_for_update())
    noted = session.get(ActivationRow, record.id)
    if row is not None and noted is not None and row.version == record.version:
        noted.record_version = row.version


def settle(session: Session, evaluation: Evaluation, at: datetime, terms: ReviewTerms) -> Settled | None:
    """See `ActivationBook.settle`."""
    hold_principal(session, evaluation.principal)
    row = session.scalar(_owned(evaluation.principal, evaluation.record.id).with_for_update())
    if row is None or row.version != evaluation.record.version or not _still_holds(session, evaluation, row, at):
        return None
    writing = _Writing(session, evaluation, row, at)
    writing.label()
    writing.evidence()
    writing.decision()
    if row.version != evaluation.record.version:
        outbox.append(session, [row.id], at)
    audit.append(session, *writing.events)
    decision = decision_of(evaluation, RecordRef(id=row.id, version=row.version), at)
    review_id: str | None = None
    if evaluation.outcome is ActivationOutcome.REVIEW:
        review_id = reviews.open_or_defer(
            session,
            evaluation.principal,
            decision,
            owner=terms.owner,
            bound=terms.bound,
            at=at,
            lives_for=terms.lives_for,
            language=evaluation.language,
        ).review_id
    else:
        why = f"evaluated again: {evaluation.reason.value.replace('_', ' ')}"
        reviews.withdraw_for_records(session, [row.id], at=at, actor=evaluation.actor, why=why)
    return Settled(
        decision=decision,
        changed=row.version != evaluation.record.version,
        assigned=evaluation.label.category,
        drifted=row.category != evaluation.label.category.value,
        review_id=review_id,
    )


def _still_holds(session: Session, evaluation: Evaluation, row: RecordRow, at: datetime) -> bool:
    noted = session.get(ActivationRow, row.id)
    if noted is not None and noted.record_version == row.version and noted.decided_at != evaluation.after:
        return False  # somebody else settled this version meanwhile
    if evaluation.looked_for_evidence and eligibility(as_record(row), at, PRINCIPAL_SUBJECT) is not None:
        return False  # its time ran out while the policy was thinking
    return evaluation.evidence is None or _is_said(session, evaluation.principal, evaluation.evidence)


def _is_said(session: Session, principal: Principal, evidence: VerifiedEvidence) -> bool:
    turn = session.get(SessionTurnRow, evidence.turn_ref)
    return (
        turn is not None
        and (turn.tenant, turn.user_id, turn.role) == (principal.tenant, principal.user, transcripts.USER)
        and turn.text[evidence.start : evidence.end] == evidence.span
    )


@dataclass
class _Writing:
    """One settlement under way: each step changes the row, and says so in the trail."""

    session: Session
    evaluation: Evaluation
    row: RecordRow
    at: datetime
    events: list[dict[str, Any]] = field(default_factory=list)

    def label(self) -> None:
        """A category the host chose stays, unless it chose none; that the two differ is worth knowing."""
        before, label = audited_state(self.row), self.evaluation.label
        if self.row.category == RetrievalCategory.OTHER.value and label.category is not RetrievalCategory.OTHER:
            self.row.category = label.category.value
            self._changed()
        said = {
            "assigned": label.category.value,
            "attribute": self.row.attribute,
            "differs": self.row.category != label.category.value,
            "policy": label.by,
        }
        if label.failure is not None:
            said["failure"] = label.failure.kind.value
        self._event("record.category_assigned", before, **said)

    def evidence(self) -> None:
        found = self.evaluation.evidence
        stored = self.session.get(EvidenceRow, self.row.id)
        if found is None:
            if stored is not None and self.evaluation.looked_for_evidence:
                self.session.delete(stored)  # of words it does not hold any more
            return
        self._event(
            "record.activation_evidence_verified",
            audited_state(self.row),
            turn_ref=found.turn_ref,
            start=found.start,
            end=found.end,
            method=found.method.value,
            similarity=round(found.similarity, 4),
        )
        if self.row.status == RecordStatus.PROVISIONAL.value:
            before = audited_state(self.row)
            self.row.status = RecordStatus.CONFIRMED.value
            self.row.source = Source.PRINCIPAL.value
            self._changed()
            self._event("record.confirmed", before, source=self.row.source)

    def decision(self) -> None:
        evaluation, before = self.evaluation, audited_state(self.row)
        said: dict[str, Any] = {"outcome": evaluation.outcome.value, "reason": evaluation.reason.value}
        if (category := evaluation.category) is not None:
            said |= category.model_dump(mode="json", exclude={"rationale", "usage"})
        if evaluation.policy_failure is not None:
            said["failure"] = evaluation.policy_failure.model_dump(mode="json")
        self._event("record.activation_decided", before, **said)
        promoted = evaluation.outcome is ActivationOutcome.PROMOTE
        wanted = (Activation.AMBIENT if promoted else Activation.CONDITIONAL).value
        if self.row.activation != wanted:
            self.row.activation = wanted
            self._changed()
            self._event("record.activation_changed", before, decided=evaluation.reason.value)
        self._note()

    def _changed(self) -> None:
        """Changed in several ways by one evaluation, a record has one new version."""
        self.row.version = self.evaluation.record.version + 1

    def _note(self) -> None:
        """What is left behind counts as evaluated, and the evidence is that of its words."""
        evaluation, row = self.evaluation, self.row
        owner: dict[str, Any] = {"tenant": row.tenant, "user_id": row.user_id, "record_id": row.id}
        category = evaluation.category
        self.session.merge(
            ActivationRow(
                **owner,
                record_version=row.version,
                content_hash=row.content_hash,
                outcome=evaluation.outcome.value,
                reason=evaluation.reason.value,
                category=None if category is None else category.model_dump(mode="json"),
                decided_at=self.at,
            )
        )
        if (found := evaluation.evidence) is not None:
            where: dict[str, Any] = found.model_dump(
                include={"session_id", "turn_id", "turn_ref", "span", "said_at", "similarity"}
            )
            self.session.merge(
                EvidenceRow(
                    **owner,
                    **where,
                    record_version=row.version,
                    span_start=found.start,
                    span_end=found.end,
                    method=found.method.value,
                    verified_at=self.at,
                )
            )

    def _event(self, event: str, before: dict[str, object], **said: Any) -> None:
        self.events.append(
            audit.row(
                self.evaluation.principal,
                at=self.at,
                actor=self.evaluation.actor,
                event=event,
                subject=("record", self.row.id),
                before=before,
                after={**audited_state(self.row), **said},
                reason=self.evaluation.cause,
            )
        )


def _owned(principal: Principal, record_id: RecordId) -> Any:
    return select(RecordRow).where(owned_by(principal), col(RecordRow.id) == record_id)
