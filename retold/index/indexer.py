"""Brings the index into line with the store, by following its outbox.

What can go wrong, and why nothing is lost, doubled or brought back by it:

* a death between the store's commit and the index's flush: the entry is there until the index has flushed;
* the same entry followed twice: a record's point always lies under the same key, and shows the record as it is now;
* a record that changes while its vector is computed: it is looked at again after the write, until it stands still;
* two workers at once, of which the slower would write an older version: one of them drains at a time, by a lease in
  the store. Whoever loses it writes nothing more, and leaves the entries to whoever has it. (A worker that is stopped
  for longer than the lease exactly between looking and writing, and then dies before it looks again, would leave a
  stale point until a reconcile. Answers are checked with the store, so it could cost a find, never show anything.)
* a record that the embedder or the index cannot take: it alone is set aside, with its point removed, and tried again.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from retold.contracts.outbox import OutboxEntry
from retold.contracts.record import ACTIVE_STATUSES, MemoryRecord, RecordId
from retold.index.generations import Followed
from retold.index.outbox import OutboxStore
from retold.index.points import passage, point
from retold.index.port import IndexUnavailableError, RecordIndex
from retold.policy.limits import utc_now
from retold.policy.ports import Embedder

logger = logging.getLogger(__name__)

LEASE = timedelta(seconds=30)
"""A worker that died with it keeps the others waiting for so long. Longer than a batch takes to embed and write."""
ANOTHER_DRAINS_S = 0.25

_CANARY = "a sentence every embedder can take"


class Following(Protocol):
    """Where changes go: the generations of an index, or one index."""

    @property
    def exclusive(self) -> bool:
        """Whether no other process can write there."""

    async def followed(self) -> Sequence[Followed]:
        """Every index a change must reach. Asked again for each batch, after what is pending was read."""


@dataclass(frozen=True, slots=True)
class OneIndex:
    """One index of one process, without generations."""

    index: RecordIndex
    embedder: Embedder
    exclusive: bool = True

    async def followed(self) -> Sequence[Followed]:
        return [Followed("index", self.index, self.embedder)]


class NotMyTurnError(IndexUnavailableError):
    """Another worker drains by now: the lease ran out while a batch was embedded."""


class Indexer:
    """Follows one store's outbox into every index that must have it. Every step may be repeated.

    Args:
        holder: this worker's name in the lease; by default one that no other process has.
    """

    def __init__(
        self,
        store: OutboxStore,
        following: Following,
        *,
        holder: str | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._store = store
        self._following = following
        self._holder = holder or str(uuid.uuid4())
        self._now = now
        self._draining = asyncio.Lock()
        self._leased = False

    async def drain(self, batch: int = 64) -> int:
        """Follow all that is pending when it is called; how many entries were followed here.

        It also returns when another worker has followed them. One read of the store when there is nothing to do.
        What is set aside is left out until its time comes.

        Raises:
            IndexUnavailableError, or what the embedder raises: nothing is lost; the entries stay pending.
        """
        followed = 0
        async with self._draining:
            if (until := await self._store.latest_index_seq()) == 0:
                return 0
            try:
                while await self._due(1, until):
                    if await self._my_turn():
                        followed += await self._follow(await self._due(batch, until))
                    else:
                        await asyncio.sleep(ANOTHER_DRAINS_S)
            finally:
                if self._leased:
                    self._leased = False
                    await self._store.give_back_index_lease(self._holder)
        return followed

    async def bring(self, target: Followed, ids: Sequence[RecordId], *, leased: bool = False) -> None:
        """Have one index show these records as they are now, whatever the outbox says.

        Writes what stands, deletes what does not, then looks again. A record that was forgotten or changed while its
        vector was computed would come back to life by this very write. Another indexer may already have followed
        that change, so the second look is what makes it good.

        Args:
            leased: write only while this worker may drain.
        """
        pending = ids
        while pending:
            before = await self._store.records_by_id(pending)
            await self._write(target, pending, before, leased)
            after = await self._store.records_by_id(pending)
            pending = [id for id in pending if _changed(before.get(id), after.get(id))]

    # --- a batch -------------------------------------------------------------------------------------------------

    async def _due(self, limit: int, until: int) -> list[OutboxEntry]:
        return [entry for entry in await self._store.pending_index(limit, self._now()) if entry.seq <= until]

    async def _my_turn(self) -> bool:
        if self._following.exclusive:
            return True
        self._leased = await self._store.take_index_lease(self._holder, self._now(), LEASE)
        return self._leased

    async def _follow(self, entries: Sequence[OutboxEntry]) -> int:
        """How many of the entries were followed."""
        try:
            await self._follow_records(list(dict.fromkeys(entry.record_id for entry in entries)))
        except NotMyTurnError:
            return 0
        except Exception as error:  # noqa: BLE001 - whichever record it is about, the others must not wait for it
            logger.info("following %d changes one by one after %s", len(entries), type(error).__name__)
            return await self._follow_one_by_one(entries)
        await self._store.index_done([entry.seq for entry in entries])
        return len(entries)

    async def _follow_one_by_one(self, entries: Sequence[OutboxEntry]) -> int:
        by_record: dict[RecordId, list[int]] = {}
        for entry in entries:
            by_record.setdefault(entry.record_id, []).append(entry.seq)
        followed = 0
        for record_id, seqs in by_record.items():
            try:
                error = await self._follow_alone(record_id)
            except NotMyTurnError:
                return followed
            if error is None:
                await self._store.index_done(seqs)
                followed += len(seqs)
            else:
                logger.warning("the index cannot take record %s, it is set aside: %s", record_id, type(error).__name__)
                await self._store.index_set_aside(seqs, type(error).__name__, self._now())
        return followed

    async def _follow_records(self, ids: Sequence[RecordId]) -> None:
        for target in await self._following.followed():
            await self.bring(target, ids, leased=True)

    async def _follow_alone(self, record_id: RecordId) -> Exception | None:
        """Why some index cannot take this record, None if all can. What such an index had of it is gone from it then.

        Raises:
            Exception: the index or the embedder is away, which is no record's fault.
        """
        failed: Exception | None = None
        for target in await self._following.followed():
            try:
                await self.bring(target, [record_id], leased=True)
            except NotMyTurnError:
                raise
            except Exception as error:
                if not await target.index.healthy():
                    raise
                if target.embedder is not None:
                    await target.embedder.embed_passages([_CANARY])
                await target.index.delete([record_id])
                failed = error
        return failed

    async def _write(
        self, target: Followed, ids: Iterable[RecordId], records: Mapping[RecordId, MemoryRecord], leased: bool
    ) -> None:
        embedder = target.embedder
        standing = [
            record
            for id in ids
            if embedder is not None and (record := records.get(id)) is not None and belongs_in_index(record)
        ]
        kept = {record.id for record in standing}
        await self._expect_my_turn(leased)
        await target.index.delete(
            [id for id in ids if id not in kept]
        )  # first: it needs no embedder that could be away
        if embedder is not None and standing:
            vectors = await embedder.embed_passages([passage(record) for record in standing])
            points = [point(record, vector) for record, vector in zip(standing, vectors, strict=True)]
            await self._expect_my_turn(leased)  # again: embedding is what may take long
            await target.index.upsert(points)

    async def _expect_my_turn(self, leased: bool) -> None:
        if leased and not await self._my_turn():
            raise NotMyTurnError("another worker follows the outbox by now")


def belongs_in_index(record: MemoryRecord) -> bool:
    """Conflicting, suspended, ambient and not yet or no longer valid records stay in, flagged: they may come back."""
    return record.status in ACTIVE_STATUSES and record.superseded_by is None


def _changed(before: MemoryRecord | None, after: MemoryRecord | None) -> bool:
    """Also a change without a new version counts: activation, conflict and validity are filtered by."""
    return before != after
