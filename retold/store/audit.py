"""The audit trail: one row a change, in the transaction that makes the change."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import JsonValue, TypeAdapter
from sqlalchemy import insert
from sqlalchemy.orm import Session
from sqlmodel import col, select

from retold.contracts._base import Contract, Name, UtcTime
from retold.contracts.turn import Principal
from retold.store.tables import AuditRow

_NAME = TypeAdapter(Name)


class AuditEvent(Contract):
    """Who did what to which subject. `before` and `after` hold states and digests, never text."""

    at: UtcTime
    principal: Principal
    actor: Name
    event: str
    subject_kind: str
    subject_id: str
    before: dict[str, JsonValue] | None = None
    after: dict[str, JsonValue] | None = None
    reason: str = ""


def row(
    principal: Principal,
    *,
    at: datetime,
    actor: str,
    event: str,
    subject: tuple[str, str],
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    reason: str = "",
) -> dict[str, Any]:
    """The columns of one event. `subject` is its kind and its id.

    Raises:
        pydantic.ValidationError: `actor` is blank or longer than 128 characters.
    """
    return {
        "at": at,
        "tenant": principal.tenant,
        "user_id": principal.user,
        "actor": _NAME.validate_python(actor),
        "event": event,
        "subject_kind": subject[0],
        "subject_id": subject[1],
        "before": before,
        "after": after,
        "reason": reason,
    }


def append(session: Session, *rows: dict[str, Any]) -> None:
    """Add events to the transaction, in this order."""
    if rows:
        session.execute(insert(AuditRow), rows)


def events(session: Session, principal: Principal, subject_id: str | None, limit: int) -> Sequence[AuditEvent]:
    """The principal's latest events in the order they happened, about one subject or all."""
    query = select(AuditRow).where(col(AuditRow.tenant) == principal.tenant, col(AuditRow.user_id) == principal.user)
    if subject_id is not None:
        query = query.where(col(AuditRow.subject_id) == subject_id)
    rows = (session.scalars(query.order_by(col(AuditRow.id).desc()).limit(limit))).all()
    return [
        AuditEvent(
            at=row.at,
            principal=principal,
            actor=row.actor,
            event=row.event,
            subject_kind=row.subject_kind,
            subject_id=row.subject_id,
            before=row.before,
            after=row.after,
            reason=row.reason,
        )
        for row in reversed(rows)
    ]
