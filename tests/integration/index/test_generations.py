"""Building the index anew beside the one that answers: on both engines, while records change, and through restarts."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from retold import composition
from retold.contracts.indexing import GenerationRole
from retold.index.edge import EdgeIndex
from retold.index.edge_home import EdgeHome
from retold.index.generations import NotFollowedError, RebuildRefusedError
from retold.index.indexer import Indexer
from retold.index.port import EmbedderMismatchError, IndexUnavailableError
from retold.index.server import ServerIndex
from retold.models.embedding.hashing import HashingEmbedder
from retold.settings import Settings
from retold.store.store import Store
from tests.integration.index.conftest import MakeHome
from tests.integration.index.following import worker
from tests.integration.index.qdrant_stand_in import QdrantStandIn
from tests.integration.index.records import ANN, put, record

OLD, NEW = HashingEmbedder(64, "old"), HashingEmbedder(96, "new")
NOW = datetime(2026, 6, 1, tzinfo=UTC)

SERVING, BUILDING, RETIRED = GenerationRole.SERVING, GenerationRole.BUILDING, GenerationRole.RETIRED


async def test_a_new_embedder_takes_over_without_a_gap(store: Store, make_home: MakeHome) -> None:
    async with worker(store, make_home(), [OLD, NEW]) as running:
        assert running.live.embedder is OLD
        tea, cat = await running.import_texts("Ann drinks tea", "Ann has a cat")
        await running.indexer.drain()

        name = await running.build()
        (bike,) = await running.import_texts("Ann rides a bike")
        await running.delete(cat)
        await running.indexer.drain()
        assert set(await running.found("Ann")) == {tea, bike}, "the old one answers while the new one is built"
        built = await running.live.building(name)
        assert set(await built.index.fetch([tea, cat, bike])) == {tea, bike}, "and both follow"

        await running.live.switch(name)
        await running.live.switch(name)
        assert set(await running.found("Ann")) == {tea, bike}, "a worker stays with its embedder until it restarts"
        (boat,) = await running.import_texts("Ann sails a boat")
        await running.indexer.drain()
        assert set(await running.found("Ann")) == {tea, bike, boat}
        assert (await running.reconcile()).equal

    async with worker(store, make_home(), [OLD, NEW]) as restarted:
        assert restarted.live.embedder is NEW
        assert restarted.live.generation == name
        assert set(await restarted.found("Ann")) == {tea, bike, boat}
        assert (await restarted.reconcile()).equal
        assert [each.role for each in await restarted.live.generations()] == [SERVING, RETIRED]

        old = (await restarted.live.generations())[1].name
        minute = timedelta(minutes=1)
        assert await restarted.live.drop_retired({old}, NOW, minute) == [], "another worker answers from it"
        assert await restarted.live.drop_retired(set(), NOW, minute) == [], "it may be just being made"
        assert await restarted.live.drop_retired(set(), NOW + minute, minute) == [old]
        assert [each.role for each in await restarted.live.generations()] == [SERVING]
        assert set(await restarted.found("Ann")) == {tea, bike, boat}

    async with worker(store, make_home(), [NEW]) as settled:
        assert settled.live.generation == name


async def test_workers_move_one_by_one_and_both_see_every_change(
    store: Store, server: QdrantStandIn, make_home: MakeHome
) -> None:
    if make_home().exclusive:
        pytest.skip("one process at a time")
    async with worker(store, make_home(), [OLD, NEW]) as before:
        (tea,) = await before.import_texts("Ann drinks tea")
        await before.live.switch(await before.build())
        async with worker(store, make_home(), [OLD, NEW]) as after:
            assert (before.live.embedder, after.live.embedder) == (OLD, NEW)
            (cat,) = await after.import_texts("Ann has a cat")
            await after.indexer.drain()
            (bike,) = await before.import_texts("Ann rides a bike")
            await before.indexer.drain()
            for each in (before, after):
                assert set(await each.found("Ann")) == {tea, cat, bike}
                assert (await each.reconcile()).equal
            await after.live.delete_principal(ANN)
            assert await before.live.count(ANN) == 0, "erasing reaches the generations others answer from"


async def test_a_worker_without_the_next_embedder_leaves_the_changes_to_others(
    store: Store, make_home: MakeHome
) -> None:
    async with worker(store, make_home(), [OLD, NEW]) as running:
        name = await running.build()
        await running.import_texts("Ann drinks tea")
    async with worker(store, make_home(), [OLD]) as lacking:
        with pytest.raises(NotFollowedError, match=f"{name} is building.*RETOLD_NEXT_EMBEDDER__"):
            await lacking.indexer.drain()
        assert await store.pending_index_count() == 1, "nothing is marked done"
        await lacking.live.abandon()
        assert await lacking.indexer.drain() == 1
        assert await lacking.live.abandon() is None


async def test_a_build_that_dies_is_gone_on_with_and_one_for_another_embedder_starts_over(
    store: Store, make_home: MakeHome
) -> None:
    async with worker(store, make_home(), [OLD, NEW]) as running:
        await running.import_texts("Ann drinks tea")
        await running.indexer.drain()
        begun = (await running.live.begin_rebuild()).name
    async with worker(store, make_home(), [OLD, NEW]) as restarted:
        assert restarted.live.embedder is OLD, "the old one serves as long as nothing was switched"
        assert (await restarted.live.begin_rebuild()).name == begun
        assert await restarted.build() == begun
    other = HashingEmbedder(48, "other")
    async with worker(store, make_home(), [OLD, other]) as changed:
        again = await changed.build()
        assert again != begun
        generations = await changed.live.generations()
        assert [(each.name == again, each.role) for each in generations] == [(False, SERVING), (True, BUILDING)]
        assert "other" in generations[1].embedder
        with pytest.raises(RebuildRefusedError, match="not being built"):
            await changed.live.switch(begun)


async def test_a_worker_with_neither_embedder_is_refused_and_told_how_to_rebuild(
    store: Store, make_home: MakeHome
) -> None:
    async with worker(store, make_home(), [OLD]):
        pass
    with pytest.raises(EmbedderMismatchError, match=r"revision old.*revision new.*retold rebuild-index"):
        async with worker(store, make_home(), [NEW]):
            raise AssertionError("it opened")


async def test_the_index_of_the_first_release_is_the_first_generation(
    store: Store, make_home: MakeHome, tmp_path: Path
) -> None:
    """It has no pointer and no alias; what was indexed in it is still there."""
    home = make_home()
    first = EdgeIndex(tmp_path / "index") if home.exclusive else ServerIndex(home._url, home._base)  # type: ignore[attr-defined]
    await first.ensure(OLD.identity)
    tea = record("Ann drinks tea")
    await put(first, OLD, tea)
    await first.aclose()
    for _ in range(2):
        async with worker(store, make_home(), [OLD]) as running:
            assert await running.found("Ann") == [tea.id]
            assert [each.role for each in await running.live.generations()] == [SERVING]


async def test_several_workers_that_start_at_once_agree_on_the_first(store: Store, make_home: MakeHome) -> None:
    if make_home().exclusive:
        pytest.skip("one process at a time")

    async def start() -> str:
        async with worker(store, make_home(), [OLD]) as running:
            return running.live.generation

    assert len(set(await asyncio.gather(*(start() for _ in range(4))))) == 1


async def test_a_generation_that_was_dropped_after_it_was_listed_says_nothing(make_home: MakeHome) -> None:
    home = make_home()
    first = await home.create_first(HashingEmbedder(64, "old").identity)
    other = await home.create(HashingEmbedder(96, "new").identity)
    assert await home.describe(other) is not None
    await home.drop(other)
    assert await home.describe(other) is None
    assert await home.describe(first) is not None
    await home.aclose()


async def test_an_index_that_lost_its_points_is_filled_from_the_store(store: Store, tmp_path: Path) -> None:
    """A folder somebody deleted, a server's volume that is gone: nothing is pending, and yet everything is missing."""
    settings = Settings(data_dir=tmp_path)

    async def pending() -> int:
        async with AsyncExitStack() as stack:
            live = await composition._index(settings, store, [OLD], stack)
            pending = await store.pending_index_count()
            await Indexer(store, live).drain()
            assert await live.count() == len(await store.records(ANN))
            return pending

    assert await pending() == 0, "nothing is stored"
    async with worker(store, EdgeHome(tmp_path / "index"), [OLD]) as running:
        await running.import_texts("Ann drinks tea", "Ann has a cat")
        await running.indexer.drain()
    assert await pending() == 0
    shutil.rmtree(tmp_path / "index")
    assert await pending() == 2
    assert await pending() == 0


async def test_a_pointer_that_cannot_be_read_says_what_to_do(store: Store, tmp_path: Path) -> None:
    async with worker(store, EdgeHome(tmp_path / "index"), [OLD]):
        pass
    pointer = tmp_path / "index.generations.json"
    assert json.loads(pointer.read_text()) == {"serving": "index", "building": None}
    pointer.write_text("{")
    with pytest.raises(IndexUnavailableError, match=r"generations\.json cannot be read.*serve from"):
        async with worker(store, EdgeHome(tmp_path / "index"), [OLD]):
            raise AssertionError("it opened")
