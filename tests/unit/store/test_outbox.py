"""The outbox in the store: what is due, what is set aside, who drains, and who reads which generation."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from sqlalchemy import Engine

from retold.contracts.indexing import OutboxLag
from retold.store.store import Store
from tests.unit.store.conftest import BOB, NOON, PutRecord

SECOND = timedelta(seconds=1)


async def due(store: Store, at: datetime = NOON) -> list[str]:
    return [entry.record_id for entry in await store.pending_index(10, at)]


async def test_what_is_set_aside_comes_back_ever_more_rarely(store: Store) -> None:
    await store.enqueue_index(["poison", "good"], NOON)
    (poison, good) = await store.pending_index(10)

    at = NOON
    for seconds in (30, 60, 120, 240, 480, 960, 1920, 3600, 3600):
        await store.index_set_aside([poison.seq], "UnindexableError", at)
        assert await due(store, at + (seconds - 1) * SECOND) == ["good"]
        at += seconds * SECOND
        assert await due(store, at) == ["poison", "good"]

    await store.index_done([good.seq])
    assert await store.pending_index_count() == 1, "set aside is not forgotten"
    assert await store.pending_index(10) == [poison]


async def test_the_lag_says_how_much_how_old_and_what_failed(store: Store) -> None:
    assert await store.index_lag(NOON) == OutboxLag(pending=0)
    await store.enqueue_index(["a"], NOON)
    await store.enqueue_index(["b", "c"], NOON + 40 * SECOND)
    assert await store.index_lag(NOON + 60 * SECOND) == OutboxLag(pending=3, oldest_age_s=60)
    assert (await store.index_lag(NOON - SECOND)).oldest_age_s == 0, "a clock that is behind"

    seqs = [entry.seq for entry in await store.pending_index(10)]
    await store.index_set_aside(seqs[1:], "UnindexableError", NOON)
    assert await store.index_lag(NOON) == OutboxLag(pending=3, set_aside=2, errors={"UnindexableError": 2})
    assert await store.pending_index_among({"a", "b", "z"}) == {"a", "b"}
    assert await store.latest_index_seq() == seqs[-1]


async def test_everything_can_be_enqueued_and_paged(store: Store, put_record: PutRecord) -> None:
    ids = [f"rec-{n}" for n in range(7)]
    for n, id in enumerate(ids):
        await put_record(id, **({"status": "deleted"} if n == 3 else {}), **({"owner": BOB} if n == 5 else {}))

    paged: list[str] = []
    while page := await store.record_ids(paged[-1] if paged else None, 3):
        paged += page
    assert paged == ids
    await store.enqueue_whole_index(NOON)
    assert await due(store) == ids
    assert await store.index_lag(NOON + SECOND) == OutboxLag(pending=7, oldest_age_s=1)


async def test_one_worker_drains_until_it_gives_back_or_runs_out(store: Store, engine: Engine) -> None:
    other = Store(engine)
    lasting = 15 * SECOND
    assert await store.take_index_lease("one", NOON, lasting)
    assert not await other.take_index_lease("two", NOON + 14 * SECOND, lasting)
    assert await store.take_index_lease("one", NOON + 10 * SECOND, lasting), "prolonged"
    assert not await other.take_index_lease("two", NOON + 24 * SECOND, lasting)
    assert await other.take_index_lease("two", NOON + 25 * SECOND, lasting), "it ran out"
    assert not await store.take_index_lease("one", NOON + 26 * SECOND, lasting)
    await store.give_back_index_lease("one")
    assert not await store.take_index_lease("one", NOON + 27 * SECOND, lasting), "only the holder can give it back"
    await other.give_back_index_lease("two")
    assert await store.take_index_lease("one", NOON + 27 * SECOND, lasting)


@pytest.mark.parametrize(("later_s", "read"), [(0, {"index", "index-g2"}), (1, {"index-g2"}), (61, set())])
async def test_readers_are_those_heard_of(store: Store, later_s: int, read: set[str]) -> None:
    await store.note_index_reader("w1", "index", NOON - 90 * SECOND, NOON - 600 * SECOND)
    await store.note_index_reader("w2", "index", NOON - 60 * SECOND, NOON - 600 * SECOND)
    await store.note_index_reader("w1", "index-g2", NOON, NOON - 600 * SECOND)
    assert await store.index_readers(NOON - 60 * SECOND + later_s * SECOND) == read
    await store.note_index_reader("w3", "index-g2", NOON + SECOND, NOON + SECOND)
    assert await store.index_readers(NOON - 600 * SECOND) == {"index-g2"}, "the others are gone"
