"""The index follows the store: what stands is found, what does not is gone, and nothing is marked done too early."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from retold.contracts.outbox import OutboxEntry
from retold.contracts.record import MemoryRecord, RecordId, RecordStatus
from retold.index.edge import EdgeIndex
from retold.index.indexer import Indexer, OneIndex
from retold.index.port import IndexUnavailableError
from retold.models.embedding.hashing import HashingEmbedder
from tests.integration.index.records import ANN, all_generators, ids, record


class Store:
    """Records and an outbox in memory, as the SQL store keeps them."""

    def __init__(self) -> None:
        self.records: dict[RecordId, MemoryRecord] = {}
        self.outbox: dict[int, RecordId] = {}
        self.set_aside: dict[int, tuple[str, datetime]] = {}
        self.lease: tuple[str, datetime] | None = None
        self._seq = 0

    def write(self, *records: MemoryRecord) -> None:
        for each in records:
            self.records[each.id] = each
            self._log(each.id)

    def forget(self, id: RecordId) -> None:
        del self.records[id]
        self._log(id)

    async def pending_index(self, limit: int, at: datetime | None = None) -> Sequence[OutboxEntry]:
        due = [seq for seq in sorted(self.outbox) if at is None or seq not in self.set_aside]
        return [OutboxEntry(seq=seq, record_id=self.outbox[seq]) for seq in due][:limit]

    async def latest_index_seq(self) -> int:
        return max(self.outbox, default=0)

    async def records_by_id(self, ids: Sequence[RecordId]) -> Mapping[RecordId, MemoryRecord]:
        return {id: self.records[id] for id in ids if id in self.records}

    async def index_done(self, seqs: Sequence[int]) -> None:
        for seq in seqs:
            self.outbox.pop(seq, None)

    async def index_set_aside(self, seqs: Sequence[int], error: str, at: datetime) -> None:
        self.set_aside.update({seq: (error, at) for seq in seqs})

    async def take_index_lease(self, holder: str, at: datetime, lasting: timedelta) -> bool:
        if self.lease is None or self.lease[0] == holder or self.lease[1] <= at:
            self.lease = holder, at + lasting
        return self.lease[0] == holder

    async def give_back_index_lease(self, holder: str) -> None:
        if self.lease is not None and self.lease[0] == holder:
            self.lease = None

    def _log(self, id: RecordId) -> None:
        self._seq += 1
        self.outbox[self._seq] = id


class MeddlingEmbedder(HashingEmbedder):
    """Changes the store while vectors are computed, once."""

    def __init__(self, meddle: object = None) -> None:
        super().__init__()
        self.meddle = meddle

    async def embed_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if callable(self.meddle):
            meddle, self.meddle = self.meddle, None
            meddle()
        return await super().embed_passages(texts)


@pytest.fixture
async def index(tmp_path: Path, embedder: HashingEmbedder) -> AsyncIterator[EdgeIndex]:
    opened = EdgeIndex(tmp_path / "index")
    await opened.ensure(embedder.identity)
    yield opened
    await opened.aclose()


async def found(index: EdgeIndex, text: str) -> set[str]:
    answers = await index.search(await all_generators(HashingEmbedder(), text, limit=100))
    return {id for hits in answers for id in ids(hits)}


async def test_it_follows_writes_changes_and_deletions(index: EdgeIndex, embedder: HashingEmbedder) -> None:
    store = Store()
    indexer = Indexer(store, OneIndex(index, embedder))
    tea, cat, bike = record("Ann drinks tea"), record("Ann has a cat"), record("Ann rides a bike")
    store.write(tea, cat, bike)
    assert await indexer.drain(batch=2) == 3
    assert store.outbox == {}
    assert await found(index, "Ann") == {tea.id, cat.id, bike.id}

    store.write(tea.model_copy(update={"text": "Ann drinks coffee", "version": 2}))
    store.write(cat.model_copy(update={"status": RecordStatus.REJECTED, "version": 2}))
    store.write(bike.model_copy(update={"superseded_by": tea.id, "version": 2}))
    assert await indexer.drain() == 3
    assert await found(index, "Ann") == {tea.id}
    assert (await index.fetch([tea.id]))[tea.id].ref.version == 2

    store.forget(tea.id)
    assert await indexer.drain() == 1
    assert await index.count() == 0
    assert await indexer.drain() == 0


async def test_following_twice_changes_nothing(index: EdgeIndex, embedder: HashingEmbedder) -> None:
    store = Store()
    tea = record("Ann drinks tea")
    store.write(tea, tea, tea)
    indexer = Indexer(store, OneIndex(index, embedder))
    assert await indexer.drain() == 3
    store.write(tea)
    await indexer.drain()
    assert await index.count(ANN) == 1


async def test_a_record_forgotten_while_it_is_embedded_does_not_come_back(index: EdgeIndex) -> None:
    """Another indexer may already have followed the deletion, so this one must see it itself."""
    store = Store()
    tea = record("Ann drinks tea")
    store.write(tea)

    def forgotten_and_already_followed() -> None:
        del store.records[tea.id]

    await Indexer(store, OneIndex(index, MeddlingEmbedder(forgotten_and_already_followed))).drain()
    assert await index.count() == 0


async def test_a_record_changed_while_it_is_embedded_ends_as_it_is_now(index: EdgeIndex) -> None:
    store = Store()
    tea = record("Ann drinks tea")
    store.write(tea)

    def changed() -> None:
        store.records[tea.id] = tea.model_copy(update={"text": "Ann drinks coffee", "version": 2})

    await Indexer(store, OneIndex(index, MeddlingEmbedder(changed))).drain()
    assert (await index.fetch([tea.id]))[tea.id].ref.version == 2


async def test_what_could_not_be_written_stays_pending(tmp_path: Path, embedder: HashingEmbedder) -> None:
    store = Store()
    store.write(record("Ann drinks tea"))
    with pytest.raises(IndexUnavailableError):
        await Indexer(store, OneIndex(EdgeIndex(tmp_path / "never-opened"), embedder)).drain()
    assert len(store.outbox) == 1
