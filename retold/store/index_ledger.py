"""What the store keeps for the index: the outbox, who drains it, who reads what, and records page by page."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from retold.contracts.indexing import OutboxLag, UnreadableRecord
from retold.contracts.outbox import OutboxEntry
from retold.contracts.record import MemoryRecord, RecordId
from retold.store import outbox, records
from retold.store.engine import Transactions

_DRAIN = "drain"


class IndexLedger:
    """The part of the store that the index follows. Its records are of any principal: never for a turn."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def pending_index(self, limit: int, at: datetime | None = None) -> Sequence[OutboxEntry]:
        """The oldest changes the index has yet to follow. Acknowledge them with `index_done` once it has.

        Args:
            at: leave out what is set aside beyond this time; None: leave out nothing.
        """
        return await self._transactions.read(lambda session: outbox.pending(session, limit, at))

    async def pending_index_count(self) -> int:
        return await self._transactions.read(lambda session: outbox.count(session))

    async def pending_index_among(self, ids: Collection[RecordId]) -> set[RecordId]:
        """Which of these records have changes the index has yet to follow."""
        return await self._transactions.read(lambda session: outbox.among(session, ids))

    async def latest_index_seq(self) -> int:
        """The number of the latest change the index has yet to follow; 0: there is none."""
        return await self._transactions.read(lambda session: outbox.latest(session))

    async def index_lag(self, at: datetime) -> OutboxLag:
        """How far the index is behind at this time."""
        return await self._transactions.read(lambda session: outbox.lag(session, at))

    async def index_done(self, seqs: Collection[int]) -> None:
        """Remove changes the index has followed. Repeating it is harmless: a number is never given twice."""
        await self._transactions.write(lambda session: outbox.done(session, seqs))

    async def index_set_aside(self, seqs: Collection[int], error: str, at: datetime) -> None:
        """Keep changes the index could not take for later: in 30 s, then ever more rarely, at least once an hour.

        Args:
            error: the type of what went wrong; a message could quote a record.
        """
        await self._transactions.write(lambda session: outbox.set_aside(session, seqs, error, at))

    async def enqueue_index(self, ids: Sequence[RecordId], at: datetime) -> None:
        """Have the index follow these records, whether or not they changed or even exist."""
        await self._transactions.write(lambda session: outbox.append(session, ids, at))

    async def enqueue_whole_index(self, at: datetime) -> None:
        """Have the index follow every record there is."""
        await self._transactions.write(lambda session: outbox.append_all(session, at))

    async def take_index_lease(self, holder: str, at: datetime, lasting: timedelta) -> bool:
        """Whether this worker alone may drain until `at + lasting`. Taking it again prolongs it."""
        return await self._transactions.write(
            lambda session: outbox.take_lease(session, _DRAIN, holder, at, at + lasting)
        )

    async def give_back_index_lease(self, holder: str) -> None:
        """Let the next worker drain at once. Nothing happens if another one has the lease by now."""
        await self._transactions.write(lambda session: outbox.give_back_lease(session, _DRAIN, holder))

    async def note_index_reader(self, worker: str, generation: str, at: datetime, forget_before: datetime) -> None:
        """This worker answers from that generation of the index; others last heard of earlier are forgotten."""
        await self._transactions.write(
            lambda session: outbox.note_reader(session, worker, generation, at, forget_before)
        )

    async def index_readers(self, since: datetime) -> set[str]:
        """The generations of the index that some worker answered from since then."""
        return await self._transactions.read(lambda session: outbox.readers(session, since))

    async def records_by_id(self, ids: Collection[RecordId]) -> Mapping[RecordId, MemoryRecord]:
        """The named records of any principal and status: for the indexer, never for a turn."""
        return await self._transactions.read(lambda session: records.records_by_id(session, ids))

    async def each_by_id(self, ids: Collection[RecordId]) -> Mapping[RecordId, MemoryRecord | UnreadableRecord]:
        """Like `records_by_id`, and one that cannot be read keeps no other from being read."""
        return await self._transactions.read(lambda session: records.each_by_id(session, ids))

    async def record_ids(self, after: RecordId | None, limit: int) -> Sequence[RecordId]:
        """The ids of records of any principal and status, in order, beginning after one."""
        return await self._transactions.read(lambda session: records.record_ids(session, after, limit))
