"""Reading records in scope and lifecycle, and the changes an operator may make to one.

Every query about a principal's records starts from `owned_by`; there is no other way to write one here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, and_, or_, tuple_
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col, select

from retold.contracts.record import (
    ACTIVE_STATUSES,
    Activation,
    MemoryRecord,
    RecordId,
    RecordRef,
    RecordStatus,
    RecordType,
    RetrievalCategory,
)  # fmt: skip
from retold.contracts.turn import Principal
from retold.store import audit, outbox
from retold.store.tables import RecordRow

PRINCIPAL_SUBJECT = "user"


class RecordNotFoundError(LookupError):
    """No such record of this principal. Another principal's record looks the same as none."""


class NotEligibleError(ValueError):
    """The record may not become ambient; the message says which condition it fails."""


def owned_by(principal: Principal) -> ColumnElement[bool]:
    return and_(col(RecordRow.tenant) == principal.tenant, col(RecordRow.user_id) == principal.user)


def current(at: datetime) -> ColumnElement[bool]:
    """Active, conflict-free, not superseded, and `valid_from <= at < valid_until`: `MemoryRecord.is_current` in SQL."""
    return and_(
        col(RecordRow.status).in_([status.value for status in ACTIVE_STATUSES]),
        col(RecordRow.conflicting).is_(False),
        col(RecordRow.superseded_by).is_(None),
        or_(col(RecordRow.valid_from).is_(None), col(RecordRow.valid_from) <= at),
        or_(col(RecordRow.valid_until).is_(None), col(RecordRow.valid_until) > at),
    )


async def ambient_records(session: AsyncSession, principal: Principal, at: datetime) -> Sequence[MemoryRecord]:
    rows = await session.scalars(
        select(RecordRow)
        .where(
            owned_by(principal),
            current(at),
            col(RecordRow.status) == RecordStatus.CONFIRMED.value,
            col(RecordRow.type) == RecordType.SEMANTIC.value,
            col(RecordRow.activation) == Activation.AMBIENT.value,
            col(RecordRow.subject) == PRINCIPAL_SUBJECT,
        )
        .order_by(col(RecordRow.id))
    )
    return [as_record(row) for row in rows]


INVENTORY_BUILDER = "distinct-labels-1"
"""Names what `inventory` does, for the bundle: renamed when the same records would give other labels."""


async def inventory(session: AsyncSession, principal: Principal, at: datetime) -> Sequence[RetrievalCategory]:
    labels = await session.scalars(
        select(RecordRow.category)
        .where(owned_by(principal), current(at), col(RecordRow.activation) == Activation.CONDITIONAL.value)
        .distinct()
    )
    present = set(labels)
    return [category for category in RetrievalCategory if category.value in present]


async def load_current(
    session: AsyncSession, principal: Principal, refs: Sequence[RecordRef], at: datetime
) -> Mapping[RecordId, MemoryRecord]:
    if not refs:
        return {}
    rows = await session.scalars(
        select(RecordRow).where(
            owned_by(principal),
            current(at),
            col(RecordRow.activation) == Activation.CONDITIONAL.value,
            tuple_(col(RecordRow.id), col(RecordRow.version)).in_([(ref.id, ref.version) for ref in refs]),
        )
    )
    return {row.id: as_record(row) for row in rows}


async def records_by_id(session: AsyncSession, ids: Collection[RecordId]) -> Mapping[RecordId, MemoryRecord]:
    rows = await session.scalars(select(RecordRow).where(col(RecordRow.id).in_(ids)))
    return {row.id: as_record(row) for row in rows}


async def all_records(session: AsyncSession, principal: Principal) -> Sequence[MemoryRecord]:
    rows = await session.scalars(
        select(RecordRow).where(owned_by(principal)).order_by(col(RecordRow.created_at), col(RecordRow.id))
    )
    return [as_record(row) for row in rows]


async def mark_ambient_for_development(
    session: AsyncSession, principal: Principal, record_id: str, *, actor: str, reason: str, at: datetime
) -> MemoryRecord:
    row = await _locked(session, principal, record_id)
    record = as_record(row)
    _require_promotable(record, at)
    if record.activation is Activation.AMBIENT:
        return record
    row.activation = Activation.AMBIENT.value
    row.version += 1
    await _changed(
        session, principal, record, row, event="development.record_made_ambient", actor=actor, reason=reason, at=at
    )
    return as_record(row)


async def delete_record(
    session: AsyncSession, principal: Principal, record_id: str, *, actor: str, reason: str, at: datetime
) -> MemoryRecord:
    row = await _locked(session, principal, record_id)
    record = as_record(row)
    if record.status is RecordStatus.DELETED:
        return record
    row.status = RecordStatus.DELETED.value
    row.version += 1
    await _changed(session, principal, record, row, event="record.deleted", actor=actor, reason=reason, at=at)
    return as_record(row)


def as_record(row: RecordRow) -> MemoryRecord:
    return MemoryRecord.model_validate(
        {"user": row.user_id, **row.model_dump(exclude={"user_id", "content_hash", "host_key"})}
    )


def audited_state(row: RecordRow | MemoryRecord) -> dict[str, object]:
    """What an audit event keeps of a record: its state, never its text."""
    return {
        "version": row.version,
        "status": str(row.status),
        "activation": str(row.activation),
        "category": str(row.category),
    }


async def _changed(
    session: AsyncSession,
    principal: Principal,
    before: MemoryRecord,
    row: RecordRow,
    *,
    event: str,
    actor: str,
    reason: str,
    at: datetime,
) -> None:
    if not reason.strip():
        raise ValueError("reason must not be blank: it is what the audit trail will say")
    await outbox.append(session, [row.id], at)
    await audit.append(
        session,
        audit.row(
            principal,
            at=at,
            actor=actor,
            event=event,
            subject=("record", row.id),
            before=audited_state(before),
            after=audited_state(row),
            reason=reason,
        ),
    )


async def _locked(session: AsyncSession, principal: Principal, record_id: str) -> RecordRow:
    """The record under its own id, or else under the key the host gave it when importing."""
    for named in (col(RecordRow.id) == record_id, col(RecordRow.host_key) == record_id):
        row = await session.scalar(select(RecordRow).where(owned_by(principal), named).with_for_update())
        if row is not None:
            return row
    raise RecordNotFoundError(f"no record {record_id!r} of this user")


def _require_promotable(record: MemoryRecord, at: datetime) -> None:
    checks = {
        f"its type is {record.type.value}, not semantic": record.type is RecordType.SEMANTIC,
        f"it is about {record.subject!r}, not about the user": record.subject == PRINCIPAL_SUBJECT,
        f"its status is {record.status.value}, not confirmed": record.status is RecordStatus.CONFIRMED,
        "it is conflicting, superseded or outside its validity": record.is_current(at),
    }
    for failing, holds in checks.items():
        if not holds:
            raise NotEligibleError(f"record {record.id} cannot become ambient: {failing}")
