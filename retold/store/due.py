"""What time does to records without anybody writing: a planned statement begins, a temporary one ends.

What holds at a moment needs no help, it is in every query. This is for what follows from it: a suspension by the next
temporary statement, the end of a conflict whose other side is over, a predecessor that is history now.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import and_, or_, text
from sqlalchemy.orm import Session, aliased
from sqlmodel import col, select

from retold.contracts.record import ACTIVE_STATUSES, RecordId
from retold.contracts.turn import Principal
from retold.store.changes import Changes
from retold.store.settling import Settling
from retold.store.tables import RecordRow
from retold.store.upsert import dialect_of

ACTOR = "retold"
_ACTIVE = [status.value for status in ACTIVE_STATUSES]


_CLOCKS = {
    "postgresql": "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US')",
    "sqlite": "SELECT strftime('%Y-%m-%dT%H:%M:%f', 'now')",
}


def now(session: Session) -> datetime:
    """What the database's clock shows."""
    shown = session.scalar(text(_CLOCKS[dialect_of(session)]))
    return datetime.fromisoformat(str(shown)).replace(tzinfo=UTC)


def settle(session: Session, at: datetime, limit: int) -> dict[Principal, list[RecordId]]:
    """Settle up to `limit` records that are due, of every tenant; the records that changed, by principal."""
    due: dict[Principal, list[RecordId]] = {}
    for id, tenant, user in _due(session, at, limit):
        due.setdefault(Principal(tenant=tenant, user=user), []).append(id)
    return {
        principal: changed
        for principal, ids in sorted(due.items(), key=lambda item: (item[0].tenant, item[0].user))
        if (changed := _settle(session, principal, ids, at))
    }


def _settle(session: Session, principal: Principal, ids: Sequence[RecordId], at: datetime) -> list[RecordId]:
    changes = Changes(session, principal, actor=ACTOR, reason="its time came or went", at=at)
    settling = Settling(changes)
    for row in changes.rows(col(RecordRow.id).in_(ids)):
        if row.valid_until is not None and row.valid_until <= at:
            settling.taken_back(row)
        else:
            settling.look_at(row)
    settling.run()
    changes.close()
    return list(changes.touched)


def _due(session: Session, at: datetime, limit: int) -> list[tuple[RecordId, str, str]]:
    """Two questions, each with an index of its own: few records are suspended, and few disagree."""
    by = aliased(RecordRow)
    named = select(RecordRow.id, RecordRow.tenant, RecordRow.user_id).where(col(RecordRow.status).in_(_ACTIVE))
    ended = col(RecordRow.suspended_until) <= at
    begun = and_(col(by.temporary).is_(False), col(RecordRow.suspended_from) <= at)
    questions = (
        named.join(by, col(by.id) == col(RecordRow.suspended_by)).where(or_(ended, begun)),
        named.where(col(RecordRow.conflicting).is_(True), col(RecordRow.valid_until) <= at),
    )
    return [tuple(row) for question in questions for row in session.execute(question.limit(limit))]  # type: ignore[misc]
