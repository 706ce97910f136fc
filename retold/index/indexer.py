"""Brings the index into line with the store, by following its outbox."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from retold.contracts.record import ACTIVE_STATUSES, MemoryRecord, RecordId
from retold.index.outbox import OutboxStore
from retold.index.points import passage, point
from retold.index.port import RecordIndex
from retold.policy.ports import Embedder


class Indexer:
    """Follows one store's outbox into one index. Every step may be repeated."""

    def __init__(self, store: OutboxStore, index: RecordIndex, embedder: Embedder) -> None:
        self._store = store
        self._index = index
        self._embedder = embedder
        self._draining = asyncio.Lock()

    async def drain(self, batch: int = 64) -> int:
        """Follow the outbox until it is empty; returns how many entries were followed.

        An entry is marked done only after the index has flushed what it asked for, so a crash repeats it.

        Raises:
            IndexUnavailableError: nothing is lost; the entries stay pending.
        """
        followed = 0
        async with self._draining:
            while entries := await self._store.pending_index(batch):
                await self._follow(list(dict.fromkeys(entry.record_id for entry in entries)))
                await self._store.index_done([entry.seq for entry in entries])
                followed += len(entries)
        return followed

    async def _follow(self, ids: Sequence[RecordId]) -> None:
        """Write what stands, delete what does not, then look again.

        A record that was forgotten or changed while its vector was computed would come back to life by this very
        write. Another indexer may already have followed that change, so the second look is what makes it good.
        """
        pending: Sequence[RecordId] = ids
        while pending:
            before = await self._store.records_by_id(pending)
            await self._write(pending, before)
            after = await self._store.records_by_id(pending)
            pending = [id for id in pending if _changed(before.get(id), after.get(id))]

    async def _write(self, ids: Iterable[RecordId], records: Mapping[RecordId, MemoryRecord]) -> None:
        standing = [record for id in ids if (record := records.get(id)) is not None and _belongs_in_index(record)]
        kept = {record.id for record in standing}
        await self._index.delete([id for id in ids if id not in kept])
        if standing:
            vectors = await self._embedder.embed_passages([passage(record) for record in standing])
            await self._index.upsert(
                [point(record, vector) for record, vector in zip(standing, vectors, strict=True)]
            )  # fmt: skip


def _belongs_in_index(record: MemoryRecord) -> bool:
    """Conflicting, ambient and not yet or no longer valid records stay in, flagged: their state may come back."""
    return record.status in ACTIVE_STATUSES and record.superseded_by is None


def _changed(before: MemoryRecord | None, after: MemoryRecord | None) -> bool:
    """Also an entry without a new version counts: activation, conflict and validity are filtered by."""
    return before != after
