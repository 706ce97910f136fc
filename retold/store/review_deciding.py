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
from retold.contracts.record import Activation, RecordRef, RecordStatus
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
    refuse_word,
)
from retold.store import audit, outbox, reviewers, reviews
from retold.store.records import as_record, audited_state
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
    record, row = _held(session, sent.review_id)
    decision = sent.decision
    if decision is None:
        return _refused(session, sent, row, Refusal(RefusedDecision.MALFORMED, sent.problem), UNVERIFIED, at)
    reviewer = reviewers.known(session, decision.reviewer_id)
    signed = reviewer is not None and is_signed_by(reviewer.public_key, decision)
    person = refuse_person(
        decision, sent.review_id, reviewer, signed=signed, tenant=None if row is None else row.tenant
    )
    if person is not None:
        return _refused(session, sent, row, person, decision.reviewer_id if signed else UNVERIFIED, at)
    if row is not None and row.decision_digest == decision.digest:
        return Decided(_outcome(row, record), repeated=True)
    if row is not None and row.status == ReviewStatus.OPEN.value:
        reviews.withdraw_if_outdated(session, row, at)
    refusal = refuse_moment(decision, None if row is None else _facts(row)) or refuse_word(decision, sent.via)
    if refusal is None and row is not None and record is not None and isinstance(decision.resolution, Resolution):
        refusal = _resolve(session, row, record, decision, decision.resolution, at)
        if refusal is None:
            if sent.via != _OPERATION:
                row.workflow_state = reviews.TOLD
            return Decided(_outcome(row, record))
    assert refusal is not None, "an open item whose record is gone was withdrawn above"
    return _refused(session, sent, row, refusal, decision.reviewer_id, at)


def _resolve(
    session: Session, row: ReviewRow, record: RecordRow, decision: ReviewDecision, resolution: Resolution, at: datetime
) -> Refusal | None:
    if resolution is Resolution.PROMOTE:
        category = _promotable(session, row, record, decision, at)
        if isinstance(category, Refusal):
            return category
        row.category = category.value
    before = as_record(record)
    if resolution is Resolution.PROMOTE:
        record.activation = Activation.AMBIENT.value
        record.version += 1
    elif resolution is Resolution.REJECT:
        record.status, record.activation = RecordStatus.REJECTED.value, Activation.CONDITIONAL.value
        record.version += 1
    row.status = STATUS_OF[resolution].value
    row.version += 1
    row.resolved_at, row.resolved_by = at, decision.reviewer_id
    row.resolution_reason, row.decision_digest = decision.reason, decision.digest
    if record.version != before.version:
        outbox.append(session, [record.id], at)
    _note_activation(session, row, record, at)
    _audit_resolution(session, row, record, audited_state(before), resolution, at)
    session.flush()
    return None


def _promotable(
    session: Session, row: ReviewRow, record: RecordRow, decision: ReviewDecision, at: datetime
) -> ActivationCategory | Refusal:
    """Everything an automatic promotion would have needed, looked at again now: a reviewer replaces the judgement of
    the words, and nothing else."""
    current = as_record(record)
    if (reason := eligibility(current, at)) is not None:
        return _not_eligible(f"the record is not eligible any more: {reason.value.replace('_', ' ')}")
    if current.status is not RecordStatus.CONFIRMED:
        return _not_eligible(f"the record is {current.status.value}, not confirmed")
    if not _evidence_stands(session, row):
        return _not_eligible("the user's own words behind it are not there any more")
    if row.category is not None and row.category not in list(ActivationCategory):
        return _not_eligible("its category was assigned by another version of Retold")
    return category_for_promotion(None if row.category is None else ActivationCategory(row.category), decision.category)


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


def _held(session: Session, review_id: str) -> tuple[RecordRow | None, ReviewRow | None]:
    """Record and item, locked in the order in which whoever changes a record locks them."""
    found = session.get(ReviewRow, review_id)
    if found is None:
        return None, None
    record: RecordRow | None = session.scalar(
        select(RecordRow)
        .where(
            col(RecordRow.id) == found.record_id,
            col(RecordRow.tenant) == found.tenant,
            col(RecordRow.user_id) == found.user_id,
        )
        .with_for_update()
    )
    session.refresh(found, with_for_update=True)  # somebody may have decided while we waited for the record
    return record, found


def _facts(row: ReviewRow) -> ItemFacts:
    return ItemFacts(
        tenant=row.tenant, status=ReviewStatus(row.status), version=row.version, resolved_by=row.resolved_by
    )


def _outcome(row: ReviewRow, record: RecordRow | None) -> ReviewOutcome:
    version = row.record_version if record is None else record.version
    return ReviewOutcome(
        review_id=row.review_id,
        status=ReviewStatus(row.status),
        record=RecordRef(id=row.record_id, version=version),
        resolved_by=row.resolved_by,
        resolved_at=row.resolved_at or row.opened_at,
    )


def _note_activation(session: Session, row: ReviewRow, record: RecordRow, at: datetime) -> None:
    """The version that is left behind counts as evaluated: a person's word is not asked of a policy again."""
    noted = session.get(ActivationRow, record.id)
    if noted is None:
        noted = ActivationRow(
            record_id=record.id,
            tenant=record.tenant,
            user_id=record.user_id,
            record_version=record.version,
            outcome="",
            reason="",
            decided_at=at,
        )
        session.add(noted)
    promoted = row.status == ReviewStatus.PROMOTED.value
    noted.record_version = record.version
    noted.outcome = (ActivationOutcome.PROMOTE if promoted else ActivationOutcome.CONDITIONAL).value
    noted.reason = ActivationReason.BY_REVIEWER.value
    noted.decided_at = at


def _audit_resolution(
    session: Session,
    row: ReviewRow,
    record: RecordRow,
    before: dict[str, object],
    resolution: Resolution,
    at: datetime,
) -> None:
    after = audited_state(record)
    decided = {
        "review_id": row.review_id,
        "resolution": resolution.value,
        "proposed": row.proposed,
        "category": row.category,
        "decision": row.decision_digest,
    }
    assert row.resolved_by is not None
    written: dict[str, Any] = {"at": at, "actor": row.resolved_by, "subject": ("record", record.id)}
    principal = Principal(tenant=row.tenant, user=row.user_id)
    said = row.resolution_reason or ""
    events = [
        audit.row(
            principal,
            event="record.activation_reviewed",
            before=before,
            after={**after, **decided},
            reason=said,
            **written,
        )
    ]
    changes = {Resolution.PROMOTE: "record.activation_changed", Resolution.REJECT: "record.rejected"}
    if (event := changes.get(resolution)) is not None:
        why = f"review {row.review_id}"
        events.append(audit.row(principal, event=event, before=before, after=after, reason=why, **written))
    audit.append(session, *events)


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
