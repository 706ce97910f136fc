"""The index outbox: which records the index has yet to follow. Written with the change, removed when indexed.

Beside it, who may drain it where several workers reach one index, and which generation each of them answers from.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from sqlalchemy import case, delete, func, insert, literal, or_, update
from sqlalchemy.orm import Session
from sqlmodel import col, select

from retold.contracts.indexing import OutboxLag
from retold.contracts.outbox import OutboxEntry
from retold.contracts.record import RecordId
from retold.store import upsert
from retold.store.tables import IndexLeaseRow, IndexReaderRow, OutboxRow, RecordRow, table_of

FIRST_RETRY = timedelta(seconds=30)
LAST_RETRY = timedelta(hours=1)


def append(session: Session, record_ids: Sequence[RecordId], at: datetime) -> None:
    """Have the index follow these records, in this order."""
    if record_ids:
        session.execute(insert(OutboxRow), [{"record_id": record_id, "at": at} for record_id in record_ids])


def append_all(session: Session, at: datetime) -> None:
    """Have the index follow every record there is."""
    every = select(RecordRow.id, literal(at, type_=table_of(OutboxRow).c.at.type)).order_by(col(RecordRow.id))
    session.execute(insert(OutboxRow).from_select(["record_id", "at"], every))


def pending(session: Session, limit: int, at: datetime | None) -> Sequence[OutboxEntry]:
    asked = select(OutboxRow.seq, OutboxRow.record_id).order_by(col(OutboxRow.seq)).limit(limit)
    if at is not None:
        asked = asked.where(or_(col(OutboxRow.not_before).is_(None), col(OutboxRow.not_before) <= at))
    return [OutboxEntry(seq=seq, record_id=record_id) for seq, record_id in session.execute(asked)]


def latest(session: Session) -> int:
    return session.scalar(select(func.max(OutboxRow.seq))) or 0


def among(session: Session, record_ids: Collection[RecordId]) -> set[RecordId]:
    return set(session.scalars(select(OutboxRow.record_id).where(col(OutboxRow.record_id).in_(record_ids)).distinct()))


def done(session: Session, seqs: Collection[int]) -> None:
    session.execute(delete(OutboxRow).where(col(OutboxRow.seq).in_(seqs)))


def set_aside(session: Session, seqs: Collection[int], error: str, at: datetime) -> None:
    """Try these again later: 30 s from now, then twice as long each time, at most an hour."""
    rows = session.execute(select(OutboxRow.seq, OutboxRow.attempts).where(col(OutboxRow.seq).in_(seqs))).all()
    for seq, attempts in rows:
        # The exponent is bounded before the bound on the wait applies: a row that fails for years must not overflow.
        wait = min(FIRST_RETRY * 2 ** min(attempts, 16), LAST_RETRY)
        session.execute(
            update(OutboxRow)
            .where(col(OutboxRow.seq) == seq)
            .values(attempts=attempts + 1, not_before=at + wait, error=error)
        )


def count(session: Session) -> int:
    return session.scalar(select(func.count()).select_from(OutboxRow)) or 0


def lag(session: Session, at: datetime) -> OutboxLag:
    aside = col(OutboxRow.attempts) > 0
    pending, oldest, set_aside = session.execute(
        select(func.count(), func.min(OutboxRow.at), func.sum(case((aside, 1), else_=0)))
    ).one()
    errors = session.execute(
        select(OutboxRow.error, func.count()).where(aside).group_by(col(OutboxRow.error)).order_by(OutboxRow.error)
    ).all()
    return OutboxLag(
        pending=pending,
        oldest_age_s=max(0.0, (at - oldest).total_seconds()) if oldest is not None else 0,
        set_aside=set_aside or 0,
        errors={str(error): failed for error, failed in errors},
    )


def take_lease(session: Session, name: str, holder: str, at: datetime, until: datetime) -> bool:
    """Whether `holder` has the lease until then: it had it already, nobody had it, or it had run out."""
    taken = upsert.insert(upsert.dialect_of(session), table_of(IndexLeaseRow)).values(
        name=name, holder=holder, until=until
    )
    kept = table_of(IndexLeaseRow).c
    taken = taken.on_conflict_do_update(
        index_elements=[kept.name],
        set_={"holder": taken.excluded.holder, "until": taken.excluded.until},
        where=or_(kept.holder == holder, kept.until <= at),
    )
    return session.execute(taken.returning(kept.holder)).scalar_one_or_none() == holder


def give_back_lease(session: Session, name: str, holder: str) -> None:
    session.execute(delete(IndexLeaseRow).where(col(IndexLeaseRow.name) == name, col(IndexLeaseRow.holder) == holder))


def note_reader(session: Session, worker: str, generation: str, at: datetime, forget_before: datetime) -> None:
    """This worker answers from that generation. Workers not heard of since `forget_before` are gone."""
    session.execute(delete(IndexReaderRow).where(col(IndexReaderRow.seen_at) < forget_before))
    noted = upsert.insert(upsert.dialect_of(session), table_of(IndexReaderRow)).values(
        worker=worker, generation=generation, seen_at=at
    )
    session.execute(
        noted.on_conflict_do_update(
            index_elements=["worker"], set_={"generation": noted.excluded.generation, "seen_at": noted.excluded.seen_at}
        )
    )


def readers(session: Session, since: datetime) -> set[str]:
    """The generations some worker answered from since then."""
    return set(session.scalars(select(IndexReaderRow.generation).where(col(IndexReaderRow.seen_at) >= since)))
