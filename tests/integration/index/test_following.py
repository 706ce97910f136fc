"""Nothing is lost, doubled or brought back, whoever dies, hangs or is away: on the real store, with both engines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from retold.contracts.indexing import OutboxLag
from retold.index import following, indexer
from retold.index.edge_home import EdgeHome
from retold.index.following import follow_outbox
from retold.index.generations import LiveIndex
from retold.index.indexer import Indexer, OneIndex
from retold.index.port import IndexUnavailableError
from retold.models.embedding.hashing import HashingEmbedder
from retold.store.store import Store
from tests.integration.index.conftest import MakeHome
from tests.integration.index.following import Worker, worker
from tests.integration.index.qdrant_stand_in import Fault, QdrantStandIn
from tests.integration.index.records import ANN


class Clock:
    def __init__(self) -> None:
        self.at = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.at


class HookedEmbedder(HashingEmbedder):
    """Calls what the test wants before it embeds."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[Sequence[str]], object] = lambda _: None

    async def embed_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if asyncio.iscoroutine(waiting := self.before(texts)):
            await waiting
        return await super().embed_passages(texts)


def refuse(spoilt: str) -> Callable[[Sequence[str]], object]:
    def refusing(texts: Sequence[str]) -> None:
        if any(spoilt in text for text in texts):
            raise ValueError(f"cannot embed {spoilt}")

    return refusing


def away(_: Sequence[str]) -> None:
    raise ConnectionError("the embedder is away")


# --- a record that cannot be taken -----------------------------------------------------------------------------------


async def test_one_poisonous_record_stops_nobody(store: Store, make_home: MakeHome) -> None:
    embedder, clock = HookedEmbedder(), Clock()
    async with worker(store, make_home(), [embedder]) as running:
        running.indexer = Indexer(store, running.live, now=clock)
        before, poison, after = await running.import_texts("before", "poison", "after")
        await running.indexer.drain()
        await running.change(poison, text="poison now")
        await running.change(after, text="after that")
        embedder.before = refuse("poison")

        assert await running.indexer.drain() == 1
        assert set(await running.live.fetch([before, poison, after])) == {before, after}, "its old point is gone"
        lag = await store.index_lag(clock.at)
        assert (lag.pending, lag.set_aside, lag.errors) == (1, 1, {"ValueError": 1})

        assert await running.indexer.drain() == 0, "not before its time"
        clock.at += timedelta(seconds=31)
        assert await running.indexer.drain() == 0
        assert (await store.pending_index(10, clock.at + timedelta(seconds=59))) == [], "twice as long from now on"
        embedder.before = lambda _: None
        clock.at += timedelta(seconds=61)
        assert await running.indexer.drain() == 1
        assert set(await running.live.fetch([before, poison, after])) == {before, poison, after}
        assert await store.index_lag(clock.at) == OutboxLag(pending=0)
        assert (await running.reconcile()).equal


async def test_an_embedder_that_is_away_is_no_records_fault(store: Store, make_home: MakeHome) -> None:
    embedder = HookedEmbedder()
    async with worker(store, make_home(), [embedder]) as running:
        gone, new = await running.import_texts("gone", "new")
        await running.indexer.drain()
        embedder.before = away
        await running.change(new, text="newer")
        await running.delete(gone)
        with pytest.raises(ConnectionError):
            await running.indexer.drain()
        lag = await store.index_lag(datetime.now(UTC))
        assert (lag.pending, lag.set_aside) == (2, 0)
        assert await running.live.fetch([gone]) == {}, "erasing does not wait for an embedder"
        embedder.before = lambda _: None
        assert await running.indexer.drain() == 2
        assert (await running.reconcile()).equal


async def test_an_index_that_was_away_is_caught_up_with(
    store: Store, server: QdrantStandIn, make_home: MakeHome, embedder: HashingEmbedder
) -> None:
    home = make_home()
    if home.exclusive:
        pytest.skip("the embedded index is never away")
    async with worker(store, home, [embedder]) as running:
        first, second = await running.import_texts("first", "second")
        server.fail_next("upsert", *[Fault.SERVER_ERROR] * 4)  # a batch and its first record, twice
        server.fail_next("exists", *[Fault.SERVER_ERROR] * 2)
        for _ in range(2):
            with pytest.raises(IndexUnavailableError):
                await running.indexer.drain()
        await running.change(first, text="first, changed while the index was away")
        lag = await store.index_lag(datetime.now(UTC) + timedelta(hours=1))
        assert lag.pending == 3
        assert lag.set_aside == 0
        assert 3600 <= lag.oldest_age_s < 3700
        assert await running.indexer.drain() == 3
        assert set(await running.live.fetch([first, second])) == {first, second}
        assert (await running.reconcile()).equal


# --- several workers -------------------------------------------------------------------------------------------------


@asynccontextmanager
async def two_workers(store: Store, make_home: MakeHome, slow: HookedEmbedder) -> AsyncIterator[tuple[Worker, Worker]]:
    """Two processes on one server, the first with an embedder the test can hold up."""
    if make_home().exclusive:
        pytest.skip("one process at a time")
    async with (
        worker(store, make_home(), [slow], holder="one") as one,
        worker(store, make_home(), [HashingEmbedder()], holder="two") as two,
    ):
        yield one, two


async def test_an_older_version_never_overwrites_a_newer_one(
    store: Store, server: QdrantStandIn, make_home: MakeHome
) -> None:
    """The slow worker has read version 1 and hangs in its embedder; its lease runs out, the other writes version 2."""
    slow, clock = HookedEmbedder(), Clock()
    embedding, go_on = asyncio.Event(), asyncio.Event()

    async def hang(_: Sequence[str]) -> None:
        embedding.set()
        await go_on.wait()

    async with two_workers(store, make_home, slow) as (one, two):
        (tea,) = await one.import_texts("Ann drinks tea")
        slow.before = hang
        draining = asyncio.create_task(one.indexer.drain())
        await embedding.wait()
        await two.delete(tea)

        waiting = asyncio.create_task(two.indexer.drain())
        await asyncio.sleep(0.3)
        assert not waiting.done(), "one worker drains at a time"
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        clock.at = datetime.now(UTC) + 2 * indexer.LEASE
        two.indexer = Indexer(store, two.live, holder="two", now=clock)
        assert await two.indexer.drain() == 2
        assert await two.live.fetch([tea]) == {}
        # Version 2 is in the index and nothing is pending: from here on, only the slow worker could spoil it.
        assert await store.take_index_lease("three", clock.at, indexer.LEASE)
        written = server.calls["upsert"]
        go_on.set()
        await asyncio.sleep(0.3)
        assert server.calls["upsert"] == written, "whoever lost the lease writes nothing, not even for a moment"
        assert await two.live.fetch([tea]) == {}
        await store.give_back_index_lease("three")
        assert await draining == 0
        assert (await two.reconcile()).equal


async def test_two_that_drain_at_once_follow_each_change_once(store: Store, make_home: MakeHome) -> None:
    async with two_workers(store, make_home, HookedEmbedder()) as (one, two):
        texts = [f"Fact number {n}" for n in range(200)]
        stored = await one.import_texts(*texts)
        followed = await asyncio.gather(one.indexer.drain(16), two.indexer.drain(16), one.indexer.drain(16))
        assert sum(followed) == 200
        assert await one.live.count(ANN) == 200
        assert set(await two.found("Fact")) == set(stored)
        assert (await two.reconcile()).equal


# --- unasked ---------------------------------------------------------------------------------------------------------


async def test_changes_are_followed_unasked_and_cheaply(
    store: Store, make_home: MakeHome, embedder: HashingEmbedder, caplog: pytest.LogCaptureFixture
) -> None:
    failures = iter([ConnectionError("away"), ConnectionError("away"), ConnectionError("away")])
    hooked = HookedEmbedder()

    def unsteady(_: Sequence[str]) -> None:
        if (failure := next(failures, None)) is not None:
            raise failure

    hooked.before = unsteady
    async with worker(store, make_home(), [hooked]) as running:
        (tea,) = await running.import_texts("Ann drinks tea")
        task = asyncio.create_task(follow_outbox(running.indexer, running.live, store, worker="w1", every_s=0.02))
        try:
            async with asyncio.timeout(10):
                while await store.pending_index_count():
                    await asyncio.sleep(0.02)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert await running.found("tea") == [tea]
        assert len([each for each in caplog.records if "does not follow" in each.getMessage()]) == 1
        if not running.live.exclusive:
            assert await store.index_readers(datetime.now(UTC) - timedelta(minutes=1)) == {running.live.generation}


async def test_a_retired_generation_goes_when_its_last_reader_has_moved(
    store: Store, make_home: MakeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "TIDY_EVERY", timedelta(0))
    monkeypatch.setattr(following, "HEARD_OF_WITHIN", timedelta(seconds=0.5))
    old, new = HashingEmbedder(64, "old"), HashingEmbedder(96, "new")

    async def follow(running: Worker, name: str) -> None:
        await follow_outbox(running.indexer, running.live, store, worker=name, every_s=0.05)

    async def count(live: LiveIndex) -> int:
        return len(await live.generations())

    async with worker(store, make_home(), [old, new]) as before:
        await before.import_texts("Ann drinks tea")
        await before.live.switch(await before.build())
        reading = asyncio.create_task(follow(before, "before"))
        if not before.live.exclusive:
            async with worker(store, make_home(), [old, new]) as after:
                moved = asyncio.create_task(follow(after, "after"))
                await asyncio.sleep(1.5)
                assert await count(after.live) == 2, "the other worker still answers from the old one"
                reading.cancel()
                async with asyncio.timeout(10):
                    while await count(after.live) == 2:
                        await asyncio.sleep(0.05)
                assert await after.found("tea")
                moved.cancel()
                await asyncio.gather(moved, reading, return_exceptions=True)
            return
        await asyncio.sleep(0.3)
        assert await count(before.live) == 2, "it answers from it itself"
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    async with worker(store, make_home(), [old, new]) as restarted:
        moved = asyncio.create_task(follow(restarted, "restarted"))
        async with asyncio.timeout(10):
            while await count(restarted.live) == 2:
                await asyncio.sleep(0.05)
        moved.cancel()
        await asyncio.gather(moved, return_exceptions=True)
        assert await restarted.found("tea")


async def test_an_embedded_index_needs_no_lease(store: Store, tmp_path: Path, embedder: HashingEmbedder) -> None:
    """A process that was killed must not keep its successor waiting: the engine's lock lets one in at a time."""
    assert await store.take_index_lease("a process that died", datetime.now(UTC), timedelta(hours=1))
    async with worker(store, EdgeHome(tmp_path / "index"), [embedder]) as running:
        await running.import_texts("Ann drinks tea")
        async with asyncio.timeout(5):
            assert await running.indexer.drain() == 1
    assert OneIndex(running.live, embedder).exclusive
