"""Kill switches in the store: the last change of each switch and scope, every change in the audit trail."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.orm import Session
from sqlmodel import col, select

from retold.contracts.switches import SwitchChange, SwitchName, SwitchState
from retold.contracts.turn import Principal
from retold.policy.limits import utc_now
from retold.store import audit
from retold.store.engine import Transactions
from retold.store.reviewers import OPERATORS
from retold.store.tables import AuditRow, SwitchRow, table_of
from retold.store.upsert import dialect_of, insert

ALL_TENANTS = ""
"""In the key column, where NULL would not be unique."""


class SwitchLedger:
    """Implements `SwitchStore`. Every method raises StoreUnavailableError when the database cannot answer."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def change(self, change: SwitchChange, *, at: datetime) -> SwitchState:
        """Switch a stage off or on for a scope. The same state again is audited again: somebody wanted it said."""
        return await self._transactions.write(lambda session: _change(session, change, at))

    async def switches(self) -> Sequence[SwitchState]:
        """The last change of every switch and scope, on or off, by name and tenant."""
        return await self._transactions.read(_states)

    async def note_switch_file(self, states: Sequence[SwitchState]) -> None:
        """Audit switches that were set by file, once for each content of the file, whichever worker is first."""
        await self._transactions.write(lambda session: _note_file(session, states))


def _change(session: Session, change: SwitchChange, at: datetime) -> SwitchState:
    key = (change.switch.value, change.tenant or ALL_TENANTS)
    before = session.get(SwitchRow, key, with_for_update=True)
    was_on = before is None or before.on
    values = {"switch": key[0], "tenant": key[1], "on": change.on}
    values |= {"actor": change.actor, "reason": change.reason, "changed_at": at}
    table = table_of(SwitchRow)
    session.execute(
        insert(dialect_of(session), table)
        .values(**values)
        .on_conflict_do_update(index_elements=["switch", "tenant"], set_=values)
    )
    audit.append(
        session,
        audit.row(
            _audited_under(change.tenant),
            at=at,
            actor=change.actor,
            event="switch.on" if change.on else "switch.off",
            subject=("switch", change.switch.value),
            before={"on": was_on, "tenant": change.tenant},
            after={"on": change.on, "tenant": change.tenant},
            reason=change.reason,
        ),
    )
    return SwitchState(**change.model_dump(), changed_at=at)


def _states(session: Session) -> Sequence[SwitchState]:
    rows = session.scalars(select(SwitchRow).order_by(col(SwitchRow.switch), col(SwitchRow.tenant)))
    return [
        SwitchState(
            switch=SwitchName(row.switch),
            on=row.on,
            tenant=row.tenant or None,
            actor=row.actor,
            reason=row.reason,
            changed_at=row.changed_at,
        )
        for row in rows
    ]


def _note_file(session: Session, states: Sequence[SwitchState]) -> None:
    for state in states:
        digest = "sha256:" + hashlib.sha256(state.model_dump_json().encode()).hexdigest()
        known = session.scalar(
            select(AuditRow.id).where(col(AuditRow.subject_kind) == "switch_file", col(AuditRow.subject_id) == digest)
        )
        if known is None:
            audit.append(
                session,
                audit.row(
                    _audited_under(state.tenant),
                    at=utc_now(),
                    actor=state.actor,
                    event="switch.on_by_file" if state.on else "switch.off_by_file",
                    subject=("switch_file", digest),
                    after={"switch": state.switch.value, "on": state.on, "tenant": state.tenant},
                    reason=state.reason,
                ),
            )


def _audited_under(tenant: str | None) -> Principal:
    return OPERATORS if tenant is None else Principal(tenant=tenant, user=OPERATORS.user)
