"""The review queue: how an item comes into it, what its clock does to it, and how it leaves without a person.

Each function is part of its caller's transaction, so that an item is there exactly if what it is about is. None of
them talks to Temporal: an item's workflow is started, and told of its end, from the row (`due_to_start`,
`due_to_hear`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from sqlalchemy import func, text, update
from sqlalchemy.orm import Session
from sqlmodel import col, select

from retold.contracts.activation import ActivationDecision
from retold.contracts.identity import decision_id, turn_workflow_id
from retold.contracts.identity import review_id as id_of_review
from retold.contracts.record import MemoryRecord, RecordId, RecordRef
from retold.contracts.review import (
    OPEN_REVIEW_STATUSES,
    Review,
    ReviewState,
    ReviewStatus,
    ReviewStep,
)
from retold.contracts.turn import Principal
from retold.policy.reviewing import proposed, why_withdrawn
from retold.store import audit, records
from retold.store.tables import ReviewRow
from retold.store.upsert import dialect_of

ACTOR = "retold"
CLOCKS_DIFFER = timedelta(minutes=5)
"""Temporal's clock says when an item's time is over; by this one it must be, too, or nearly."""
RUNNING = "running"
TOLD = "told"
_WAITING = [status.value for status in OPEN_REVIEW_STATUSES]
_QUEUE_LOCK = 0x7265766965777321
"""An arbitrary number every process agrees on: PostgreSQL's lock of the queue's length."""


def open_or_defer(
    session: Session,
    principal: Principal,
    decision: ActivationDecision,
    *,
    owner: str,
    bound: int,
    at: datetime,
    lives_for: timedelta,
    language: str | None = None,
    actor: str = ACTOR,
) -> Review:
    """The item of this record version: made now, or the one there is, in whatever state it is in.

    With `bound` items open it is deferred, audited as `review.backlog_full`, and comes in when there is room, or
    expires unseen when its time is over before. An item about an earlier version of the record is withdrawn.
    """
    review_id = id_of_review(decision.record)
    _hold_the_queue(session)
    existing = session.get(ReviewRow, review_id)
    if existing is not None:
        return as_review(existing)
    _withdraw(session, _open_items_of(session, [decision.record.id]), at, actor, "the record has another version")
    full = count_open(session) >= bound
    category = decision.category
    row = ReviewRow(
        review_id=review_id,
        tenant=principal.tenant,
        user_id=principal.user,
        record_id=decision.record.id,
        record_version=decision.record.version,
        status=(ReviewStatus.DEFERRED if full else ReviewStatus.OPEN).value,
        version=1,
        proposed=proposed(decision).value,
        reason=decision.reason.value,
        category=None if category is None else category.activation_category.value,
        confidence=None if category is None else category.confidence,
        policy=None if category is None else category.policy,
        policy_version=None if category is None else category.policy_version,
        evidence=None if decision.evidence is None else decision.evidence.model_dump(mode="json"),
        language=language,
        owner=owner,
        opened_at=at,
        expires_at=at + lives_for,
    )
    session.add(row)
    _audited(session, row, "review.backlog_full" if full else "review.opened", at, actor, why=decision.reason.value)
    session.flush()
    return as_review(row)


def led_by(session: Session, review_id: str) -> str | None:
    """See `ReviewDesk.led_by`."""
    row = session.get(ReviewRow, review_id)
    if row is None or row.evidence is None or "turn_id" not in row.evidence:
        return None
    principal = Principal(tenant=row.tenant, user=row.user_id)
    return decision_id(turn_workflow_id(principal, row.evidence["session_id"], row.evidence["turn_id"]))


def withdraw_for_records(
    session: Session, record_ids: Collection[RecordId], *, at: datetime, actor: str, why: str
) -> list[str]:
    """Withdraw every item that waits about these records, deferred ones too; which. Call it in the transaction that
    changes the records."""
    rows = _open_items_of(session, record_ids)
    _withdraw(session, rows, at, actor, why)
    return [row.review_id for row in rows]


def withdraw_if_outdated(session: Session, row: ReviewRow, at: datetime) -> bool:
    """Withdraw the item if its record is not what it was any more, though nobody said so; whether it was."""
    if row.status not in _WAITING:
        return False
    reviewed = RecordRef(id=row.record_id, version=row.record_version)
    why = why_withdrawn(reviewed, reviewed_record(session, row), at)
    if why is not None:
        _withdraw(session, [row], at, ACTOR, why)
    return why is not None


def count_open(session: Session) -> int:
    found = session.scalar(
        select(func.count()).select_from(ReviewRow).where(col(ReviewRow.status) == ReviewStatus.OPEN.value)
    )
    return found or 0


def admit_deferred(session: Session, *, bound: int, at: datetime, limit: int = 100) -> list[str]:
    """Open deferred items while there is room, the longest waiting first; which. Their time to live begins now."""
    _hold_the_queue(session)
    room = min(limit, bound - count_open(session))
    if room <= 0:
        return []
    waiting = select(ReviewRow).where(col(ReviewRow.status) == ReviewStatus.DEFERRED.value)
    oldest = waiting.order_by(col(ReviewRow.opened_at), col(ReviewRow.review_id)).limit(room)
    rows = session.scalars(oldest.with_for_update(skip_locked=True)).all()
    admitted = []
    for row in rows:
        if withdraw_if_outdated(session, row, at):
            continue
        before = state_of(row)
        lives_for = row.expires_at - row.opened_at
        row.status, row.version = ReviewStatus.OPEN.value, row.version + 1
        row.opened_at, row.expires_at = at, at + lives_for
        _audited(session, row, "review.opened", at, ACTOR, before=before, why="there is room in the backlog")
        admitted.append(row.review_id)
    return admitted


def expire_deferred(session: Session, *, at: datetime, limit: int = 100) -> list[str]:
    """End deferred items whose time is over while there was no room for them; which. Nothing else would ever end them.

    Those whose record is not what it was are withdrawn instead.
    """
    overdue = (
        select(ReviewRow)
        .where(col(ReviewRow.status) == ReviewStatus.DEFERRED.value, col(ReviewRow.expires_at) <= at)
        .order_by(col(ReviewRow.expires_at), col(ReviewRow.review_id))
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    expired = []
    for row in session.scalars(overdue).all():
        if withdraw_if_outdated(session, row, at):
            continue
        before = state_of(row)
        _end(row, ReviewStatus.EXPIRED, at)
        why = "the backlog had no room for it in time, and nobody saw it; the record stays conditional"
        _audited(session, row, "review.expired", at, ACTOR, before=before, why=why)
        expired.append(row.review_id)
    return expired


# --- the item's clock -------------------------------------------------------------------------------------------


def stepped(session: Session, review_id: str, step: ReviewStep, at: datetime, *, notified: bool = True) -> ReviewState:
    """The item after this step of its clock. A step that was done, or comes after the end, changes nothing."""
    row = locked(session, review_id)
    if row is None:
        return _state_of_nothing(review_id, at)
    withdraw_if_outdated(session, row, at)
    if row.status == ReviewStatus.OPEN.value:
        _step(session, row, step, at, notified)
    if row.status not in _WAITING:
        row.workflow_state = TOLD
    return as_state(row)


def _step(session: Session, row: ReviewRow, step: ReviewStep, at: datetime, notified: bool) -> None:
    reached = "" if notified else "nobody could be notified"
    before = state_of(row)
    match step:
        case ReviewStep.REMIND if row.reminded_at is None:
            row.reminded_at = at
            _audited(session, row, "review.reminded", at, ACTOR, before=before, why=reached)
        case ReviewStep.ESCALATE if row.escalated_at is None:
            row.escalated_at = at
            _audited(session, row, "review.escalated", at, ACTOR, before=before, why=reached or f"to {row.owner}")
        case ReviewStep.EXPIRE if row.expires_at <= at + CLOCKS_DIFFER:
            _end(row, ReviewStatus.EXPIRED, at)
            why = "nobody decided in time; the record stays conditional"
            _audited(session, row, "review.expired", at, ACTOR, before=before, why=why)
        case _:
            pass


# --- what Temporal has yet to hear ------------------------------------------------------------------------------


def due_to_start(session: Session, *, overdue_before: datetime, limit: int) -> Sequence[ReviewRow]:
    """Open items without a workflow, and items whose workflow should have let them expire and is gone."""
    waiting = select(ReviewRow).where(col(ReviewRow.status) == ReviewStatus.OPEN.value)
    never = session.scalars(
        waiting.where(col(ReviewRow.workflow_state).is_(None)).order_by(col(ReviewRow.opened_at)).limit(limit)
    ).all()
    overdue = session.scalars(
        waiting.where(col(ReviewRow.workflow_state) == RUNNING, col(ReviewRow.expires_at) < overdue_before).limit(limit)
    ).all()
    return [*never, *overdue]


def open_among(session: Session, review_ids: Collection[str]) -> Sequence[ReviewRow]:
    return session.scalars(
        select(ReviewRow).where(
            col(ReviewRow.review_id).in_(review_ids), col(ReviewRow.status) == ReviewStatus.OPEN.value
        )
    ).all()


def due_to_hear(session: Session, limit: int) -> Sequence[str]:
    """Items that ended without their workflow: it is told, or it would wait for nothing."""
    return session.scalars(
        select(ReviewRow.review_id)
        .where(col(ReviewRow.workflow_state) == RUNNING, col(ReviewRow.status).not_in(_WAITING))
        .limit(limit)
    ).all()


def mark_workflow(session: Session, review_ids: Collection[str], state: str) -> None:
    session.execute(update(ReviewRow).where(col(ReviewRow.review_id).in_(review_ids)).values(workflow_state=state))


# --- rows and what they say -------------------------------------------------------------------------------------


def locked(session: Session, review_id: str) -> ReviewRow | None:
    row: ReviewRow | None = session.scalar(
        select(ReviewRow).where(col(ReviewRow.review_id) == review_id).with_for_update()
    )
    return row


def as_review(row: ReviewRow) -> Review:
    return Review.model_validate(
        {
            "principal": Principal(tenant=row.tenant, user=row.user_id),
            "record": RecordRef(id=row.record_id, version=row.record_version),
            **row.model_dump(include=set(Review.model_fields)),
        }
    )


def as_state(row: ReviewRow) -> ReviewState:
    return ReviewState(
        review_id=row.review_id,
        status=ReviewStatus(row.status),
        version=row.version,
        owner=row.owner,
        expires_at=row.expires_at,
        reminded=row.reminded_at is not None,
        escalated=row.escalated_at is not None,
        resolved_by=row.resolved_by,
        resolved_at=row.resolved_at,
    )


def state_of(row: ReviewRow) -> dict[str, object]:
    """What an audit event keeps of an item: never a text."""
    return {"status": row.status, "version": row.version, "record_version": row.record_version}


def reviewed_record(session: Session, row: ReviewRow) -> MemoryRecord | None:
    """The record as it is now, if it still is the principal's."""
    record = records.records_by_id(session, [row.record_id]).get(row.record_id)
    return record if record is not None and (record.tenant, record.user) == (row.tenant, row.user_id) else None


def _open_items_of(session: Session, record_ids: Collection[RecordId]) -> Sequence[ReviewRow]:
    if not record_ids:
        return []
    return session.scalars(
        select(ReviewRow)
        .where(col(ReviewRow.record_id).in_(record_ids), col(ReviewRow.status).in_(_WAITING))
        .order_by(col(ReviewRow.review_id))
        .with_for_update()
    ).all()


def _withdraw(session: Session, rows: Sequence[ReviewRow], at: datetime, actor: str, why: str) -> None:
    for row in rows:
        before = state_of(row)
        _end(row, ReviewStatus.WITHDRAWN, at)
        _audited(session, row, "review.withdrawn", at, actor, before=before, why=why)


def _end(row: ReviewRow, status: ReviewStatus, at: datetime) -> None:
    row.status, row.version, row.resolved_at = status.value, row.version + 1, at


def _audited(
    session: Session,
    row: ReviewRow,
    event: str,
    at: datetime,
    actor: str,
    *,
    before: dict[str, object] | None = None,
    why: str = "",
) -> None:
    owner = Principal(tenant=row.tenant, user=row.user_id)
    subject = ("review", row.review_id)
    after = {**state_of(row), "record_id": row.record_id}
    audit.append(
        session,
        audit.row(owner, at=at, actor=actor, event=event, subject=subject, before=before, after=after, reason=why),
    )


def _hold_the_queue(session: Session) -> None:
    """Count and add as one: without it, two transactions would both see room for the last item."""
    if dialect_of(session) == "postgresql":  # SQLite has one writer anyway
        session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _QUEUE_LOCK})


def _state_of_nothing(review_id: str, at: datetime) -> ReviewState:
    """Of an item whose row is erased: it ended, and nobody is named."""
    return ReviewState(
        review_id=review_id, status=ReviewStatus.WITHDRAWN, version=1, owner=ACTOR, expires_at=at, resolved_at=at
    )
