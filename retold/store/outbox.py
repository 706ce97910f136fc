"""The index outbox: which records the index has yet to follow. Written with the change, removed when indexed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import delete, func, insert
from sqlalchemy.orm import Session
from sqlmodel import col, select

from retold.contracts.outbox import OutboxEntry
from retold.contracts.record import RecordId
from retold.store.tables import OutboxRow


def append(session: Session, record_ids: Sequence[RecordId], at: datetime) -> None:
    """Have the index follow these records, in this order."""
    if record_ids:
        session.execute(insert(OutboxRow), [{"record_id": record_id, "at": at} for record_id in record_ids])


def pending(session: Session, limit: int) -> Sequence[OutboxEntry]:
    rows = session.execute(select(OutboxRow.seq, OutboxRow.record_id).order_by(col(OutboxRow.seq)).limit(limit))
    return [OutboxEntry(seq=seq, record_id=record_id) for seq, record_id in rows]


def done(session: Session, seqs: Collection[int]) -> None:
    session.execute(delete(OutboxRow).where(col(OutboxRow.seq).in_(seqs)))


def count(session: Session) -> int:
    return session.scalar(select(func.count()).select_from(OutboxRow)) or 0
