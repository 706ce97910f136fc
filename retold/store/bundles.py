"""The bundle registry's rows: added and read, never changed. The migration's triggers hold for everybody else."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session
from sqlmodel import col, select

from retold.contracts.bundle import FitnessRecord
from retold.store.tables import FitnessRow


def append(session: Session, record: FitnessRecord) -> None:
    session.add(FitnessRow(**record.model_dump()))


def history(session: Session, bundle_hash: str | None, limit: int) -> Sequence[FitnessRecord]:
    """In the order the rows were added, newest first: clocks of several machines do not decide what is latest."""
    query = select(FitnessRow)
    if bundle_hash is not None:
        query = query.where(col(FitnessRow.bundle_hash) == bundle_hash)
    rows = session.scalars(query.order_by(col(FitnessRow.id).desc()).limit(limit))
    return [FitnessRecord.model_validate(row.model_dump(exclude={"id"})) for row in rows]
