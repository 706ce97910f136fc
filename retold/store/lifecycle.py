"""Changes to records, each in one transaction, all by the same rules: what `store.lifecycle` offers.

`remember` and the others take the time of the asking from their caller. Sent again with the same actor and time (a
worker died before it could answer), an operation changes nothing and answers as it did.

Inside a transaction of one's own: make a `Changes` and call the functions of `remembering` and `amending`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from retold.contracts.lifecycle import (
    HISTORY_MAX_EVENTS,
    ContradictInput,
    CorrectInput,
    ExpireInput,
    LifecycleReport,
    ReadRecordsInput,
    RecordEvent,
    RecordPage,
    RestoreInput,
    SupersedeInput,
)  # fmt: skip
from retold.contracts.record import Activation, RecordId, RecordStatus, RecordWrite, Source
from retold.contracts.turn import Principal
from retold.store import amending, audit, due, records
from retold.store.changes import Changes, random_id
from retold.store.engine import Transactions
from retold.store.remembering import remember
from retold.store.writing import Manner


class Lifecycle:
    """Every method raises StoreUnavailableError when the database cannot do what was asked."""

    def __init__(self, transactions: Transactions, new_id: Callable[[], str] = random_id) -> None:
        self._transactions = transactions
        self._new_id = new_id

    async def remember(
        self,
        principal: Principal,
        writes: Sequence[RecordWrite],
        *,
        actor: str,
        at: datetime,
        status: RecordStatus = RecordStatus.CONFIRMED,
        source: Source | None = None,
        reason: str = "remembered",
    ) -> LifecycleReport:
        """Store statements; what they supersede, suspend or contradict follows in the same transaction.

        Args:
            at: when this was asked. A statement without a time of its own was made then.
            status: PROVISIONAL for proposals that nobody has verified yet.
            source: whose statements these are, whatever the writes say. PRINCIPAL only for what the host itself has
                found in the principal's own words: it wins over everything else.

        Returns:
            One outcome a write. Refused are secrets, what was deleted or rejected, and a statement that is stored
            under another key.
        """
        manner = Manner(created="record.remembered", revised="record.revised", status=status, source=source)
        return await self._change(principal, actor, reason, at, lambda changes: remember(changes, writes, manner))

    async def supersede(self, asked: SupersedeInput, *, at: datetime) -> LifecycleReport:
        """`asked.by` replaces the record, whoever said either.

        Raises:
            RecordNotFoundError: the principal has no such record.
            StaleRecordVersionError: it has another version than expected.
            ChangeRefusedError: it does not hold, or the statement is not about the same thing, or is temporary.
            RefusedWriteError: the statement itself is refused.
        """
        return await self._change(
            asked.principal,
            asked.actor,
            asked.reason,
            at,
            lambda changes: amending.supersede(
                changes, asked.record_id, asked.by, expected_version=asked.expected_version
            ),
        )

    async def contradict(self, asked: ContradictInput, *, at: datetime) -> LifecycleReport:
        """The stronger of the two holds; where neither can be preferred neither is used any more.

        Raises:
            RecordNotFoundError, ChangeRefusedError: as for `supersede`; also if they say the same, or never hold both.
        """
        return await self._change(
            asked.principal,
            asked.actor,
            asked.reason,
            at,
            lambda changes: amending.contradict(changes, asked.record_ids),
        )

    async def correct(self, asked: CorrectInput, *, at: datetime) -> LifecycleReport:
        """The same record in new words.

        Raises:
            RecordNotFoundError, StaleRecordVersionError, ChangeRefusedError: as for `supersede`; also if another record
                says this already.
            RefusedWriteError: it holds a secret.
        """
        return await self._change(
            asked.principal, asked.actor, asked.reason, at, lambda changes: amending.correct(changes, asked)
        )

    async def expire(self, asked: ExpireInput, *, at: datetime) -> LifecycleReport:
        """The record stops to hold at `asked.at`, exclusive; None: at `at`.

        Raises:
            RecordNotFoundError, StaleRecordVersionError, ChangeRefusedError: as for `supersede`; also if it ends
                earlier already, or begins later.
        """
        return await self._change(
            asked.principal,
            asked.actor,
            asked.reason,
            at,
            lambda changes: amending.expire(
                changes, asked.record_id, asked.at, expected_version=asked.expected_version
            ),
        )

    async def restore(self, asked: RestoreInput, *, at: datetime) -> LifecycleReport:
        """Undo the expiry, supersession, rejection or deletion that befell the record last.

        Raises:
            RecordNotFoundError, StaleRecordVersionError: as for `supersede`.
            ChangeRefusedError: nothing befell it, or another record holds instead; the message names that one.
        """
        return await self._change(
            asked.principal,
            asked.actor,
            asked.reason,
            at,
            lambda changes: amending.restore(changes, asked.record_id, expected_version=asked.expected_version),
        )

    async def delete(
        self,
        principal: Principal,
        record_id: str,
        *,
        actor: str,
        reason: str,
        at: datetime,
        expected_version: int | None = None,
    ) -> LifecycleReport:
        """Set the record deleted. Again: no change.

        Raises:
            RecordNotFoundError, StaleRecordVersionError: as for `supersede`.
        """
        return await self._change(
            principal,
            actor,
            reason,
            at,
            lambda changes: amending.delete(changes, record_id, expected_version=expected_version),
        )

    async def mark_ambient_for_development(
        self, principal: Principal, record_id: str, *, actor: str, reason: str, at: datetime
    ) -> LifecycleReport:
        """Make a record ambient without a review; the audit trail says so.

        Raises:
            RecordNotFoundError: the principal has no such record.
            NotEligibleError: it is not a confirmed, current, semantic record about the principal.
        """
        return await self._change(
            principal,
            actor,
            reason,
            at,
            lambda changes: amending.set_activation(
                changes, record_id, Activation.AMBIENT, event="development.record_made_ambient"
            ),
        )

    async def settle_due(self, at: datetime, *, limit: int = 200) -> dict[Principal, list[RecordId]]:
        """Of all tenants, what came or went without anybody writing: the changed records. Looks at about `limit`."""
        return await self._transactions.write(lambda session: due.settle(session, at, limit))

    async def read(self, asked: ReadRecordsInput) -> RecordPage:
        """A page of the principal's records, or one of them with its history.

        Raises:
            RecordNotFoundError: the principal has no such record.
        """
        return await self._transactions.read(lambda session: _page(session, asked))

    async def _change(
        self,
        principal: Principal,
        actor: str,
        reason: str,
        at: datetime,
        change: Callable[[Changes], LifecycleReport],
    ) -> LifecycleReport:
        return await self._transactions.write(
            lambda session: change(Changes(session, principal, actor=actor, reason=reason, at=at, new_id=self._new_id))
        )


def _page(session: Session, asked: ReadRecordsInput) -> RecordPage:
    if asked.record_id is None:
        found, more = records.page(session, asked)
        return RecordPage(records=tuple(found), more=more)
    record = records.named(session, asked.principal, asked.record_id)
    if not asked.history:
        return RecordPage(records=(record,))
    events = audit.events(session, asked.principal, record.id, HISTORY_MAX_EVENTS)
    return RecordPage(
        records=(record,),
        history=tuple(
            RecordEvent(**event.model_dump(include=set(RecordEvent.model_fields)))
            for event in events
            if event.subject_kind == "record"
        ),
    )
