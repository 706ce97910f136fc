"""The one place every change of a record goes through: versions, index, audit trail and reviews follow together.

A transaction makes one `Changes`, changes rows inside `changing`, and closes it. A row that was changed in several
ways has one new version, one outbox row, an audit event a way, and its open reviews are withdrawn.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session
from sqlmodel import col

from retold.contracts.record import Activation, RecordId
from retold.contracts.turn import Principal
from retold.store import audit, outbox, reviews
from retold.store.records import RecordNotFoundError, audited_state, owned_by
from retold.store.tables import AuditRow, RecordRow
from retold.store.upsert import dialect_of

_RECORD_LOCKS = 0x7265636F
"""Sets PostgreSQL's advisory locks of principals apart from those of other kinds."""


def random_id() -> str:
    return str(uuid.uuid4())


class Changes:
    """Changes to the records of one principal in one transaction, made by one actor for one reason at one time.

    Raises:
        ValueError: the reason is blank, and the audit trail would say nothing.
    """

    def __init__(
        self,
        session: Session,
        principal: Principal,
        *,
        actor: str,
        reason: str,
        at: datetime,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        if not reason.strip():
            raise ValueError("reason must not be blank: it is what the audit trail will say")
        self.session = session
        self.principal = principal
        self.actor = actor
        self.at = at
        self.new_id = new_id
        self._reason = reason
        self._touched: dict[RecordId, RecordRow] = {}
        self._born: dict[RecordId, dict[str, Any]] = {}
        self._events: list[dict[str, Any]] = []
        hold_principal(session, principal)

    @property
    def touched(self) -> Collection[RecordId]:
        """The records changed so far, in the order of their first change."""
        return self._touched.keys()

    def is_new(self, row: RecordRow) -> bool:
        return row.id in self._born

    def find(self, record_id: str) -> RecordRow:
        """The principal's record under its own id, or else under the key its host gave it.

        Raises:
            RecordNotFoundError: the principal has no such record.
        """
        for named in (col(RecordRow.id) == record_id, col(RecordRow.host_key) == record_id):
            row = self.session.scalar(select(RecordRow).where(owned_by(self.principal), named).with_for_update())
            if row is not None:
                return row
        raise RecordNotFoundError(f"no record {record_id!r} of this user")

    def rows(self, *conditions: Any) -> list[RecordRow]:
        """The principal's records that meet the conditions, by id; locked, so that they stay as they are."""
        query = select(RecordRow).where(owned_by(self.principal), *conditions).order_by(col(RecordRow.id))
        return list(self.session.scalars(query.with_for_update()))

    def create(self, row: RecordRow, event: str) -> None:
        """A record that was not there before."""
        self.session.add(row)
        self._touched[row.id] = row
        self._append(event, ("record", row.id), before=None, after=None)
        self._born[row.id] = self._events[-1]

    @contextmanager
    def changing(self, row: RecordRow, event: str) -> Iterator[None]:
        """Change the row inside the block. If anything of it is different afterwards, that is a change."""
        state, before = audited_state(row), row.model_dump()
        yield
        if row.model_dump() != before:
            self._changed(row, event, state)

    def note(self, event: str, subject: tuple[str, str], *, after: dict[str, Any] | None = None) -> None:
        """Audit something that changes no record."""
        self._append(event, subject, before=None, after=after)

    def made_before(self, row: RecordRow, *events: str) -> bool:
        """Did this very operation change the row already? One that is sent again has the same actor and time."""
        return row.id in self.done_before([row.id], events)

    def done_before(self, record_ids: Collection[RecordId], events: Collection[str]) -> set[RecordId]:
        """Which of these records this very operation has changed already, in one of these ways."""
        done = select(col(AuditRow.subject_id)).where(
            col(AuditRow.subject_kind) == "record",
            col(AuditRow.subject_id).in_(record_ids),
            col(AuditRow.at) == self.at,
            col(AuditRow.actor) == self.actor,
            col(AuditRow.event).in_(events),
        )
        return set(self.session.scalars(done))

    def close(self) -> None:
        """Write what follows from the changes. Call it last, in the same transaction."""
        self.session.flush()
        for id, born in self._born.items():
            born["after"] = audited_state(self._touched[id])  # what else the operation did to it included
        outbox.append(self.session, list(self._touched), self.at)
        audit.append(self.session, *self._events)
        if changed := [id for id in self._touched if id not in self._born]:
            reviews.withdraw_for_records(
                self.session, changed, at=self.at, actor=self.actor, why="the record has changed"
            )

    def _changed(self, row: RecordRow, event: str, before: dict[str, object]) -> None:
        if row.id not in self._touched:
            row.version += 1
            self._touched[row.id] = row
        self._event(event, row, before)
        if event != "record.activation_changed" and before["activation"] == Activation.AMBIENT != row.activation:
            self._event("record.activation_changed", row, before)

    def _event(self, event: str, row: RecordRow, before: dict[str, object] | None) -> None:
        self._append(event, ("record", row.id), before=before, after=audited_state(row))

    def _append(
        self, event: str, subject: tuple[str, str], *, before: dict[str, Any] | None, after: dict[str, Any] | None
    ) -> None:
        self._events.append(
            audit.row(
                self.principal,
                at=self.at,
                actor=self.actor,
                event=event,
                subject=subject,
                before=before,
                after=after,
                reason=self._reason,
            )
        )


def hold_principal(session: Session, principal: Principal) -> None:
    """One writer a principal, as on SQLite anyway: two that both saw an attribute free would both fill it.

    Whoever locks rows of a principal's records or reviews comes through here first, so that nobody waits for somebody
    who waits for them, and nothing is written beside what is being erased.
    """
    if dialect_of(session) == "postgresql":
        name = f"{len(principal.tenant)}/{principal.tenant}/{principal.user}"
        key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], signed=True)
        session.execute(select(func.pg_advisory_xact_lock(_RECORD_LOCKS, key)))


def make_conditional(row: RecordRow) -> None:
    """A standing instruction was reviewed word by word: in other words, or when it stopped to hold, it is none."""
    row.activation = Activation.CONDITIONAL.value
