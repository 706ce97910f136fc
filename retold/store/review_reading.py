"""What reviewers look at: the queue page by page, one item with its texts, how full it is, and what was decided."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy import ColumnElement, and_, func, or_
from sqlalchemy import select as select_columns
from sqlalchemy.orm import Session
from sqlmodel import col, select

from retold.contracts.record import Activation, MemoryRecord, RecordStatus
from retold.contracts.refusal import refusal_text
from retold.contracts.review import (
    BacklogState,
    Review,
    ReviewEvent,
    ReviewFilter,
    ReviewItem,
    ReviewPage,
    ReviewStats,
    ReviewStatus,
    UnreadableReview,
)
from retold.contracts.stages import ProfileBlock
from retold.contracts.turn import Principal
from retold.store import records
from retold.store.reviews import as_review, reviewed_record
from retold.store.tables import AuditRow, ReviewRow, SessionTurnRow, table_of

Assemble = Callable[[Sequence[MemoryRecord]], ProfileBlock]
"""How a session's profile is made of ambient records: `ProfileAssembler.assemble`."""
_HISTORY = 100
_DELIMITER = "preview"
"""In place of the random one, so that before and after differ by what would change."""


class BadCursorError(ValueError):
    """The cursor is none that a page gave out."""


def page(session: Session, wanted: ReviewFilter, cursor: str | None) -> ReviewPage:
    """Items of the filter, oldest first unless it says otherwise. Rows this version cannot read are among them."""
    conditions = _conditions(wanted)
    total = session.scalar(select(func.count()).select_from(ReviewRow).where(*conditions)) or 0
    opened, key = col(ReviewRow.opened_at), col(ReviewRow.review_id)
    asked = select(ReviewRow).where(*conditions)
    if cursor is not None:
        at, after = _read_cursor(cursor)
        further = opened < at if wanted.newest_first else opened > at
        asked = asked.where(or_(further, and_(opened == at, key > after)))
    ordered = asked.order_by(opened.desc() if wanted.newest_first else opened, key)
    rows = session.scalars(ordered.limit(wanted.limit + 1)).all()
    shown = rows[: wanted.limit]
    more = len(rows) > wanted.limit
    return ReviewPage(
        items=tuple(_readable(row) for row in shown), total=total, next_cursor=cursor_after(shown[-1]) if more else None
    )


def cursor_after(listed: Review | UnreadableReview | ReviewRow) -> str:
    """The place in the queue right behind this item: what a page that ends with it gives out."""
    return base64.urlsafe_b64encode(f"{listed.opened_at.isoformat()} {listed.review_id}".encode()).decode()


def item(session: Session, review_id: str, at: datetime, assemble: Assemble) -> ReviewItem | UnreadableReview | None:
    """One item with everything somebody needs who is to decide it; None: there is none of this id."""
    row = session.get(ReviewRow, review_id)
    if row is None:
        return None
    review = _readable(row)
    if isinstance(review, UnreadableReview):
        return review
    record = reviewed_record(session, row)
    turn = None if review.evidence is None else session.get(SessionTurnRow, review.evidence.turn_ref)
    own = turn is not None and (turn.tenant, turn.user_id) == (row.tenant, row.user_id)
    before, after = _profiles(session, review.principal, record, at, assemble)
    return ReviewItem(
        review=review,
        record_text=None if record is None else record.text or None,
        turn_text=turn.text if turn is not None and own else None,
        profile_before=before,
        profile_after=after,
        history=_history(session, row),
    )


def backlog(session: Session, *, bound: int, owner: str, tenants: Sequence[str] | None = None) -> BacklogState:
    waiting = (ReviewStatus.OPEN.value, ReviewStatus.DEFERRED.value)
    asked = select(ReviewRow.status, func.count(), func.min(ReviewRow.opened_at)).where(
        col(ReviewRow.status).in_(waiting)
    )
    if tenants is not None:
        asked = asked.where(col(ReviewRow.tenant).in_(tenants))
    found = {status: (count, oldest) for status, count, oldest in session.execute(asked.group_by(ReviewRow.status))}
    count, oldest = found.get(ReviewStatus.OPEN.value, (0, None))
    return BacklogState(
        open=count,
        deferred=found.get(ReviewStatus.DEFERRED.value, (0, None))[0],
        bound=bound,
        oldest_opened_at=_aware(oldest),
        owner=owner,
    )


def stats(
    session: Session, since: datetime, *, bound: int, owner: str, tenants: Sequence[str] | None = None
) -> ReviewStats:
    """What became of the items opened since then, and how long people took. `since` is inclusive."""
    reviews = table_of(ReviewRow).c
    asked = select_columns(
        reviews.status, reviews.reason, reviews.resolved_by, reviews.opened_at, reviews.resolved_at
    ).where(reviews.opened_at >= since)
    if tenants is not None:
        asked = asked.where(reviews.tenant.in_(tenants))
    rows = session.execute(asked).all()
    waits = sorted(
        (resolved_at - opened_at).total_seconds()
        for _, _, resolved_by, opened_at, resolved_at in rows
        if resolved_by is not None and resolved_at is not None
    )
    return ReviewStats(
        since=since,
        backlog=backlog(session, bound=bound, owner=owner, tenants=tenants),
        by_status=dict(Counter(row[0] for row in rows)),
        by_reason=dict(Counter(row[1] for row in rows)),
        by_reviewer=dict(Counter(row[2] for row in rows if row[2] is not None)),
        median_wait_s=_percentile(waits, 0.5),
        p95_wait_s=_percentile(waits, 0.95),
    )


def _conditions(wanted: ReviewFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if wanted.statuses is not None:
        conditions.append(col(ReviewRow.status).in_([status.value for status in wanted.statuses]))
    if wanted.tenants is not None:
        conditions.append(col(ReviewRow.tenant).in_(wanted.tenants))
    if wanted.reason is not None:
        conditions.append(col(ReviewRow.reason) == wanted.reason.value)
    if wanted.category is not None:
        conditions.append(col(ReviewRow.category) == wanted.category.value)
    if wanted.language is not None:
        conditions.append(col(ReviewRow.language) == wanted.language)
    if wanted.opened_before is not None:
        conditions.append(col(ReviewRow.opened_at) < wanted.opened_before)
    return conditions


def _readable(row: ReviewRow) -> Review | UnreadableReview:
    try:
        return as_review(row)
    except ValidationError as error:
        return UnreadableReview(
            review_id=row.review_id,
            tenant=row.tenant,
            status=row.status,
            opened_at=row.opened_at,
            version=row.version,
            problem=refusal_text(error),
        )


def _profiles(
    session: Session, principal: Principal, record: MemoryRecord | None, at: datetime, assemble: Assemble
) -> tuple[str, str]:
    """The next session's profile without the record, and with it as it would be if it were promoted."""
    ambient = [
        other for other in records.ambient_records(session, principal, at) if record is None or other.id != record.id
    ]
    before = _shown(assemble(ambient))
    if record is None or record.status is RecordStatus.REJECTED:
        return before, before
    promoted = record.model_copy(update={"activation": Activation.AMBIENT})
    return before, _shown(assemble([*ambient, promoted]))


def _shown(block: ProfileBlock) -> str:
    return block.text.replace(block.delimiter, _DELIMITER) if block.delimiter else block.text


def _history(session: Session, row: ReviewRow) -> tuple[ReviewEvent, ...]:
    """What happened to the item and, since it is there, to its record."""
    events = session.scalars(
        select(AuditRow)
        .where(
            col(AuditRow.tenant) == row.tenant,
            col(AuditRow.user_id) == row.user_id,
            or_(
                and_(col(AuditRow.subject_kind) == "review", col(AuditRow.subject_id) == row.review_id),
                and_(col(AuditRow.subject_kind) == "record", col(AuditRow.subject_id) == row.record_id),
            ),
        )
        .order_by(col(AuditRow.id).desc())
        .limit(_HISTORY)
    ).all()
    return tuple(
        ReviewEvent(at=event.at, actor=event.actor, event=event.event, reason=event.reason)
        for event in reversed(events)
    )


def _read_cursor(cursor: str) -> tuple[datetime, str]:
    try:
        at, _, review_id = base64.urlsafe_b64decode(cursor.encode()).decode().partition(" ")
        opened_at = datetime.fromisoformat(at)
    except (ValueError, binascii.Error) as error:
        raise BadCursorError("this is no cursor of a page of reviews: ask for the first page") from error
    if opened_at.tzinfo is None:
        raise BadCursorError("this is no cursor of a page of reviews: ask for the first page")
    return opened_at, review_id


def _aware(found: Any) -> datetime | None:
    """What `min()` gives back: not every driver keeps a function's result a time in UTC."""
    if found is None:
        return None
    at = found if isinstance(found, datetime) else datetime.fromisoformat(found)
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def _percentile(ordered: Sequence[float], share: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None
