"""A decision meets its item: who, when and what are checked, and everything that follows is one transaction.

Resolution, activation, record version, index outbox and audit are written together or not at all. A decision that is
not taken leaves an audit row instead and nothing else. The same decision sent again finds itself, and is answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy.orm import Session
from sqlmodel import col, select

from retold.contracts.activation import ActivationCategory, ActivationOutcome, ActivationReason, VerifiedEvidence
from retold.contracts.record import Activation, MemoryRecord, RecordRef
from retold.contracts.review import (
    RefusedDecision,
    Resolution,
    ReviewDecision,
    ReviewOutcome,
    ReviewStatus,
    SentDecision,
)
from retold.contracts.turn import Principal
from retold.credentials import is_signed_by
from retold.policy.activation.rules import eligibility
from retold.policy.reviewing import (
    STATUS_OF,
    ItemFacts,
    Refusal,
    category_for_promotion,
    refuse_moment,
    refuse_person,
    refuse_reason,
    refuse_word,
)
from retold.store import amending, audit, reviewers, reviews
from retold.store.changes import Changes
from retold.store.records import NotEligibleError, as_record, audited_state, require_promotable
from retold.store.tables import ActivationRow, AuditRow, RecordRow, ReviewRow, SessionTurnRow

REFUSED_EVENT = "review.decision_refused"
UNVERIFIED = "unverified"
"""Who sent a decision that nobody known has signed."""
_OPERATION = "operation"
_RECENT_REFUSALS = 50


@dataclass(frozen=True)
class Decided:
    """What became of one sending."""

    outcome: ReviewOutcome | Refusal
    repeated: bool = False
    """It was decided, or refused, by an earlier handling of the same: nothing was written now."""


def decide(session: Session, sent: SentDecision, at: datetime) -> Decided:
    """Take the decision, or refuse it. Either way it is on record, once."""
    row, decision = session.get(ReviewRow, sent.review_id), sent.decision
    if decision is None:
        return _refused(session, sent, row, Refusal(RefusedDecision.MALFORMED, sent.problem), UNVERIFIED, at)
    reviewer = reviewers.known(session, decision.reviewer_id)
    signed = reviewer is not None and is_signed_by(reviewer.public_key, decision)
    tenant = None if row is None else row.tenant
    person = refuse_person(decision, sent.review_id, reviewer, signed=signed, tenant=tenant)
    if person is not None:
        return _refused(session, sent, row, person, decision.reviewer_id if signed else UNVERIFIED, at)
    # Nothing is locked before it is known who asks; then in the order in which whoever changes a record locks.
    taking = None if row is None else _Taking.of(session, row, decision, at)
    if taking is not None and taking.row.decision_digest == decision.digest:
        return Decided(taking.outcome(), repeated=True)
    facts = None if taking is None else taking.facts()
    refusal = refuse_moment(decision, facts) or refuse_word(decision, sent.via) or refuse_reason(decision.reason)
    if refusal is None:
        assert taking is not None and isinstance(decision.resolution, Resolution), "the two above refuse both"
        refusal = taking.resolve(decision.resolution, heard=sent.via != _OPERATION)
        if refusal is None:
            return Decided(taking.outcome())
    return _refused(session, sent, row, refusal, decision.reviewer_id, at)


class _Taking:
    """One decision of a known reviewer, about an item and its record that stay as they are until it is done."""

    def __init__(
        self,
        changes: Changes,
        row: ReviewRow,
        record: RecordRow | None,
        decision: ReviewDecision,
    ) -> None:
        self._changes = changes
        self._session = changes.session
        self.row = row
        self._record = record
        self._decision = decision

    @classmethod
    def of(cls, session: Session, row: ReviewRow, decision: ReviewDecision, at: datetime) -> _Taking:
        principal = Principal(tenant=row.tenant, user=row.user_id)
        changes = Changes(session, principal, actor=decision.reviewer_id, reason=f"review {row.review_id}", at=at)
        record = next(iter(changes.rows(col(RecordRow.id) == row.record_id)), None)
        session.refresh(row, with_for_update=True)  # somebody may have decided while we waited for the record
        reviews.withdraw_if_outdated(session, row, at)
        return cls(changes, row, record, decision)

    def facts(self) -> ItemFacts:
        row = self.row
        return ItemFacts(
            tenant=row.tenant, status=ReviewStatus(row.status), version=row.version, resolved_by=row.resolved_by
        )

    def outcome(self) -> ReviewOutcome:
        row = self.row
        version = row.record_version if self._record is None else self._record.version
        return ReviewOutcome(
            review_id=row.review_id,
            status=ReviewStatus(row.status),
            record=RecordRef(id=row.record_id, version=version),
            resolved_by=row.resolved_by,
            resolved_at=row.resolved_at or row.opened_at,
        )

    def resolve(self, resolution: Resolution, *, heard: bool) -> Refusal | None:
        """Change item and record, or say why not.

        Args:
            heard: the item's workflow is the one that asks, and need not be told.
        """
        record = self._record
        assert record is not None, "an open item whose record is gone was withdrawn"
        if resolution is Resolution.PROMOTE:
            category = self._promotable(as_record(record))
            if isinstance(category, Refusal):
                return category
            self.row.category = category.value
        self._end_item(resolution, heard)
        self._audit(record, resolution)
        match resolution:
            case Resolution.PROMOTE:
                amending.set_activation(self._changes, record.id, Activation.AMBIENT)
            case Resolution.REJECT:
                amending.reject(self._changes, record.id)
            case Resolution.KEEP_CONDITIONAL:
                pass
        self._note_activation(record)
        self._session.flush()
        return None

    def _promotable(self, record: MemoryRecord) -> ActivationCategory | Refusal:
        """Everything an automatic promotion would have needed, looked at again now: a reviewer replaces the judgement
        of the words, and nothing else."""
        if (reason := eligibility(record, self._changes.at)) is not None:
            return _not_eligible(f"the record is not eligible any more: {reason.value.replace('_', ' ')}")
        try:
            require_promotable(record, self._changes.at)
        except NotEligibleError as error:
            return _not_eligible(str(error))
        if not _evidence_stands(self._session, self.row):
            return _not_eligible("the user's own words behind it are not there any more")
        known = self.row.category
        if known is not None and known not in list(ActivationCategory):
            return _not_eligible("its category was assigned by another version of Retold")
        policy = None if known is None else ActivationCategory(known)
        return category_for_promotion(policy, self._decision.category)

    def _end_item(self, resolution: Resolution, heard: bool) -> None:
        row = self.row
        row.status = STATUS_OF[resolution].value
        row.version += 1
        row.resolved_at, row.resolved_by = self._changes.at, self._decision.reviewer_id
        row.resolution_reason, row.decision_digest = self._decision.reason, self._decision.digest
        if heard:
            row.workflow_state = reviews.TOLD
        self._session.flush()  # it waits no longer: what follows from its record's change leaves it alone

    def _note_activation(self, record: RecordRow) -> None:
        """The version that is left behind counts as evaluated: a person's word is not asked of a policy again."""
        noted = self._session.get(ActivationRow, record.id)
        if noted is None:
            noted = ActivationRow(
                record_id=record.id,
                tenant=record.tenant,
                user_id=record.user_id,
                record_version=record.version,
                outcome="",
                reason="",
                decided_at=self._changes.at,
            )
            self._session.add(noted)
        promoted = self.row.status == ReviewStatus.PROMOTED.value
        noted.record_version = record.version
        noted.outcome = (ActivationOutcome.PROMOTE if promoted else ActivationOutcome.CONDITIONAL).value
        noted.reason = ActivationReason.BY_REVIEWER.value
        noted.decided_at = self._changes.at

    def _audit(self, record: RecordRow, resolution: Resolution) -> None:
        """What was decided. What that changes of the record is an event of its own, as with every change."""
        row = self.row
        decided = {
            "review_id": row.review_id,
            "resolution": resolution.value,
            "proposed": row.proposed,
            "category": row.category,
            "decision": row.decision_digest,
        }
        audit.append(
            self._session,
            audit.row(
                self._changes.principal,
                at=self._changes.at,
                actor=self._decision.reviewer_id,
                event="record.activation_reviewed",
                subject=("record", record.id),
                before=audited_state(record),
                after=decided,
                reason=self._decision.reason,
            ),
        )


def _not_eligible(why: str) -> Refusal:
    return Refusal(RefusedDecision.NOT_ELIGIBLE, why)


def _evidence_stands(session: Session, row: ReviewRow) -> bool:
    """The span is still where it was found, in a turn this principal said."""
    try:
        evidence = VerifiedEvidence.model_validate(row.evidence)
    except ValidationError:
        return False
    turn = session.get(SessionTurnRow, evidence.turn_ref)
    return (
        turn is not None
        and (turn.tenant, turn.user_id, turn.role) == (row.tenant, row.user_id, "user")
        and turn.text[evidence.start : evidence.end] == evidence.span
    )


def _refused(
    session: Session, sent: SentDecision, row: ReviewRow | None, refusal: Refusal, actor: str, at: datetime
) -> Decided:
    if _is_on_record(session, sent):
        return Decided(refusal, repeated=True)
    decision = sent.decision
    principal = reviewers.OPERATORS if row is None else Principal(tenant=row.tenant, user=row.user_id)
    after: dict[str, Any] = {"refused": refusal.kind.value, "via": sent.via, "sent_as": sent.sent_as}
    if decision is not None:
        # What they wrote is left out: nobody has answered for it.
        after |= {
            "claimed": decision.reviewer_id,
            "resolution": str(decision.resolution),
            "expected_version": decision.expected_version,
            "decision": decision.digest,
        }
    audit.append(
        session,
        audit.row(
            principal,
            at=at,
            actor=actor,
            event=REFUSED_EVENT,
            subject=("review", sent.review_id),
            after=after,
            reason=refusal.why,
        ),
    )
    return Decided(refusal)


def _is_on_record(session: Session, sent: SentDecision) -> bool:
    """Whether this sending was refused by an earlier attempt of the same activity."""
    refusals = session.scalars(
        select(AuditRow.after)
        .where(
            col(AuditRow.subject_kind) == "review",
            col(AuditRow.subject_id) == sent.review_id,
            col(AuditRow.event) == REFUSED_EVENT,
        )
        .order_by(col(AuditRow.id).desc())
        .limit(_RECENT_REFUSALS)
    )
    return any(after is not None and after.get("sent_as") == sent.sent_as for after in refusals)
