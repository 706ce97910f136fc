"""Reading records in scope and lifecycle. Changes are in `changes` and what builds on it.

Every query about a principal's records names its owner: by `_OWNED` where it is built once, else by `owned_by`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from pydantic import ValidationError
from sqlalchemy import ColumnElement, Select, and_, bindparam, func, or_, select
from sqlalchemy.orm import Session

from retold.contracts.indexing import UnreadableRecord
from retold.contracts.lifecycle import ReadRecordsInput
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
from retold.store.tables import RecordRow, table_of

PRINCIPAL_SUBJECT = "user"


class RecordNotFoundError(LookupError):
    """No such record of this principal. Another principal's record looks the same as none."""


class NotEligibleError(ValueError):
    """The record may not become ambient; the message says which condition it fails."""


_records = table_of(RecordRow)


def owned_by(principal: Principal) -> ColumnElement[bool]:
    return and_(_records.c.tenant == principal.tenant, _records.c.user_id == principal.user)


_OWNED = and_(_records.c.tenant == bindparam("tenant"), _records.c.user_id == bindparam("user"))


def live_at(at: datetime) -> tuple[ColumnElement[bool], ...]:
    """Active and not over: such a record holds, or may yet."""
    active = _records.c.status.in_([status.value for status in ACTIVE_STATUSES])
    return active, or_(_records.c.valid_until.is_(None), _records.c.valid_until > at)


_at = bindparam("at", type_=_records.c.created_at.type)
_CURRENT = and_(
    _records.c.status.in_([status.value for status in ACTIVE_STATUSES]),
    _records.c.conflicting.is_(False),
    _records.c.superseded_by.is_(None),
    or_(_records.c.valid_from.is_(None), _records.c.valid_from <= _at),
    or_(_records.c.valid_until.is_(None), _records.c.valid_until > _at),
    or_(_records.c.suspended_by.is_(None), _records.c.suspended_from > _at, _records.c.suspended_until <= _at),
)
"""Active, conflict-free, not superseded, `valid_from <= at < valid_until` and not suspended: `is_current` in SQL."""

_CONDITIONAL = and_(_CURRENT, _records.c.activation == Activation.CONDITIONAL.value)

_RECORD = select(
    *(_records.c.user_id.label("user") if field == "user" else _records.c[field] for field in MemoryRecord.model_fields)
)
"""The columns of a MemoryRecord, under its own names."""

# Built once: a turn only fills in who asks, and when.
_AMBIENT_RECORDS = _RECORD.where(
    _OWNED,
    _CURRENT,
    _records.c.status == RecordStatus.CONFIRMED.value,
    _records.c.type == RecordType.SEMANTIC.value,
    _records.c.activation == Activation.AMBIENT.value,
    _records.c.subject == PRINCIPAL_SUBJECT,
).order_by(_records.c.id)
_INVENTORY = select(_records.c.category).where(_OWNED, _CONDITIONAL).distinct()
_LOAD_CURRENT = _RECORD.where(
    _records.c.id.in_(bindparam("ids", expanding=True)),
    # Not as a plain column, or SQLite takes an index on the owner for the better one and walks all the user has.
    func.coalesce(_records.c.tenant, "") == bindparam("tenant"),
    _records.c.user_id == bindparam("user"),
    _CONDITIONAL,
)


def ambient_records(session: Session, principal: Principal, at: datetime) -> Sequence[MemoryRecord]:
    return _read(session, _AMBIENT_RECORDS, _asked(principal, at))


INVENTORY_BUILDER = "distinct-labels-1"
"""Names what `inventory` does, for the bundle: renamed when the same records would give other labels."""


def inventory(session: Session, principal: Principal, at: datetime) -> Sequence[RetrievalCategory]:
    present = set(session.execute(_INVENTORY, _asked(principal, at)).scalars())
    return [category for category in RetrievalCategory if category.value in present]


def load_current(
    session: Session, principal: Principal, refs: Sequence[RecordRef], at: datetime
) -> Mapping[RecordId, MemoryRecord]:
    if not refs:
        return {}
    named = {(ref.id, ref.version) for ref in refs}
    found = _read(session, _LOAD_CURRENT, {**_asked(principal, at), "ids": list({ref.id for ref in refs})})
    return {record.id: record for record in found if (record.id, record.version) in named}


def records_by_id(session: Session, ids: Collection[RecordId]) -> Mapping[RecordId, MemoryRecord]:
    return {record.id: record for record in _read(session, _RECORD.where(_records.c.id.in_(ids)))}


_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError)
"""What reading a damaged row raises: the contract, or a column's type that finds no time and no JSON in it."""


def each_by_id(session: Session, ids: Collection[RecordId]) -> Mapping[RecordId, MemoryRecord | UnreadableRecord]:
    """All of them at once; one by one only when one cannot be read."""
    try:
        return records_by_id(session, ids)
    except _UNREADABLE:
        found = {id: _read_alone(session, id) for id in ids}
        return {id: each for id, each in found.items() if each is not None}


def _read_alone(session: Session, id: RecordId) -> MemoryRecord | UnreadableRecord | None:
    try:
        return records_by_id(session, [id]).get(id)
    except ValidationError as error:
        wrong = {str(detail["loc"][0]): detail["type"] for detail in error.errors() if detail["loc"]}
    except _UNREADABLE:
        wrong = _unreadable_columns(session, id)
    tenant = session.scalar(select(_records.c.tenant).where(_records.c.id == id))
    problem = ", ".join(f"{column} ({why})" for column, why in wrong.items()) or "its columns do not go together"
    return UnreadableRecord(record_id=id, tenant=str(tenant), problem=problem)


def _unreadable_columns(session: Session, id: RecordId) -> dict[str, str]:
    wrong = {}
    for name, column in _RECORD.selected_columns.items():
        try:
            session.execute(select(column).where(_records.c.id == id)).all()
        except _UNREADABLE as error:
            wrong[name] = type(error).__name__
    return wrong


def record_ids(session: Session, after: RecordId | None, limit: int) -> Sequence[RecordId]:
    """By primary key: a page costs the same however far on it is, and no record is skipped or comes twice."""
    asked = select(_records.c.id).order_by(_records.c.id).limit(limit)
    return session.scalars(asked if after is None else asked.where(_records.c.id > after)).all()


def named(session: Session, principal: Principal, record_id: str) -> MemoryRecord:
    """The principal's record under its own id, or else under the key its host gave it.

    Raises:
        RecordNotFoundError: the principal has no such record.
    """
    for condition in (_records.c.id == record_id, _records.c.host_key == record_id):
        if found := _read(session, _RECORD.where(owned_by(principal), condition)):
            return found[0]
    raise RecordNotFoundError(f"no record {record_id!r} of this user")


def page(session: Session, asked: ReadRecordsInput) -> tuple[list[MemoryRecord], bool]:
    """The records asked for, oldest first, and whether there are more."""
    query = _RECORD.where(owned_by(asked.principal)).order_by(_records.c.created_at, _records.c.id)
    if asked.statuses is not None:
        query = query.where(_records.c.status.in_([status.value for status in asked.statuses]))
    if asked.subject is not None:
        query = query.where(is_called(_records.c.subject, [asked.subject]))
    if asked.attribute is not None:
        query = query.where(is_called(_records.c.attribute, [asked.attribute]))
    if asked.after is not None:
        last = named(session, asked.principal, asked.after)
        later = and_(_records.c.created_at == last.created_at, _records.c.id > last.id)
        query = query.where(or_(_records.c.created_at > last.created_at, later))
    found = _read(session, query.limit(asked.limit + 1))
    return found[: asked.limit], len(found) > asked.limit


def is_called(column: Any, names: Iterable[str]) -> ColumnElement[bool]:
    """The column holds one of these subjects or attributes. Rows from before they were composed may not be."""
    forms = {unicodedata.normalize(form, name) for name in names for form in ("NFC", "NFD")}
    return cast(ColumnElement[bool], column.in_(forms))


def all_records(session: Session, principal: Principal) -> Sequence[MemoryRecord]:
    return _read(session, _RECORD.where(owned_by(principal)).order_by(_records.c.created_at, _records.c.id))


_LINKS = ("supersedes", "superseded_by", "suspended_by")
_TIMES = ("valid_from", "valid_until", "suspended_from", "suspended_until")


def as_record(row: RecordRow) -> MemoryRecord:
    return MemoryRecord.model_validate(
        {"user": row.user_id, **row.model_dump(exclude={"user_id", "content_hash", "host_key"})}
    )


def audited_state(row: RecordRow | MemoryRecord) -> dict[str, object]:
    """What an audit event keeps of a record: its state, never its text."""
    state: dict[str, object] = {
        "version": row.version,
        "status": str(row.status),
        "activation": str(row.activation),
        "category": str(row.category),
    }
    state |= {field: value for field in _LINKS if (value := getattr(row, field)) is not None}
    state |= {field: value.isoformat() for field in _TIMES if (value := getattr(row, field)) is not None}
    if row.conflicts_with:
        state["conflicts_with"] = list(row.conflicts_with)
    return state


def _asked(principal: Principal, at: datetime) -> dict[str, Any]:
    return {"tenant": principal.tenant, "user": principal.user, "at": at}


def _read(session: Session, query: Select[Any], asked: Mapping[str, Any] | None = None) -> list[MemoryRecord]:
    # Validated again on the way out: measured, that costs no more than filling the fields in unchecked.
    return [MemoryRecord.model_validate(row._asdict()) for row in session.execute(query, asked).all()]


def require_promotable(record: MemoryRecord, at: datetime) -> None:
    """Refuse what may not become ambient, whoever asks for it.

    Raises:
        NotEligibleError: it is not a confirmed, current, semantic record about the principal.
    """
    checks = {
        f"its type is {record.type.value}, not semantic": record.type is RecordType.SEMANTIC,
        f"it is about {record.subject!r}, not about the user": record.subject == PRINCIPAL_SUBJECT,
        f"its status is {record.status.value}, not confirmed": record.status is RecordStatus.CONFIRMED,
        "it is conflicting, superseded or outside its validity": record.is_current(at),
    }
    for failing, holds in checks.items():
        if not holds:
            raise NotEligibleError(f"record {record.id} cannot become ambient: {failing}")
