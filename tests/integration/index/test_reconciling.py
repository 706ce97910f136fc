"""Store and index are told apart exactly: every kind of difference is found and repaired, and none is imagined."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
import qdrant_edge as qe
from numpy.typing import NDArray

from retold.contracts.indexing import FINDINGS_MAX, Difference, ReconcileReport, ReconcileStep
from retold.contracts.record import RecordId
from retold.index import reconciling
from retold.index.edge import EdgeIndex
from retold.index.filters import INDEXED, Key
from retold.index.indexer import Indexer
from retold.index.points import passage, point, point_id
from retold.index.port import PayloadValue, RecordIndex
from retold.index.reconciling import Reconciler
from retold.index.server import ServerIndex
from retold.models.embedding.hashing import HashingEmbedder
from retold.store.store import Store
from tests.integration.index.conftest import MakeHome
from tests.integration.index.following import Worker, reconciled, worker
from tests.integration.index.records import ANN, put, record

TEXTS = [f"Fact number {n}" for n in range(10)]
_SENTINEL: dict[Key, PayloadValue] = {Key.VERSION: 77, Key.NAMES: ["somebody"]}


@pytest.fixture
async def running(store: Store, make_home: MakeHome, embedder: HashingEmbedder) -> AsyncIterator[Worker]:
    async with worker(store, make_home(), [embedder]) as opened:
        yield opened


@pytest.fixture
async def ids(running: Worker) -> list[RecordId]:
    stored = await running.import_texts(*TEXTS)
    await running.indexer.drain()
    return stored


async def raw(running: Worker) -> RecordIndex:
    return running.live.answering.index


async def tamper(running: Worker, id: RecordId, key: Key, value: PayloadValue | None) -> None:
    """Rewrite a record's point with one key changed, or without it."""
    stored = (await running.store.records_by_id([id]))[id]
    (vector,) = await running.live.embedder.embed_passages([passage(stored)])
    good = point(stored, vector)
    payload = {name: kept for name, kept in good.payload.items() if name != key}
    await (await raw(running)).upsert([replace(good, payload=payload if value is None else {**payload, key: value})])


async def drop_vector(running: Worker, id: RecordId, name: str) -> None:
    match await raw(running):
        case EdgeIndex() as edge:
            await edge._run(lambda: edge._write(qe.UpdateOperation.delete_vectors([point_id(id)], [name])))
        case ServerIndex() as server:
            await server._client.delete_vectors(server._collection, [name], [point_id(id)])


async def check(
    running: Worker,
    expected: dict[Difference, int],
    named: Sequence[RecordId],
    seen_by_repair: dict[Difference, int] | None = None,
) -> ReconcileReport:
    """Exactly these differences are found, again and again; a repair leaves none and says how many it repaired."""
    for _ in range(2):
        report = await running.reconcile()
        assert report.differences == expected
        assert {each.record_id for each in report.findings if each.record_id} == set(named)
        assert (report.equal, report.repaired) == (False, 0)
    repaired = await running.reconcile(repair=True)
    assert (repaired.differences, repaired.left) == (seen_by_repair or expected, 0)
    assert repaired.equal
    after = await running.reconcile()
    assert after.found == 0
    assert after.equal
    return report


async def test_what_followed_is_equal(running: Worker, ids: list[RecordId]) -> None:
    await running.change(ids[0], text="Ann moved")
    await running.change(ids[1], suspended_by=ids[0], suspended_until=datetime(2030, 1, 1, tzinfo=UTC))
    await running.change(ids[2], conflicting=True)
    await running.change(ids[3], superseded_by=ids[0], status="superseded")
    await running.delete(ids[4])
    await running.indexer.drain()
    report = await running.reconcile()
    assert report.model_dump() == ReconcileReport(records=10, indexed=8, points=8).model_dump()


@pytest.mark.parametrize("key", [*INDEXED, Key.VERSION, Key.TYPE, Key.SUBJECT, Key.TOLD_AT])
async def test_every_key_of_the_payload_is_compared(running: Worker, ids: list[RecordId], key: Key) -> None:
    await tamper(running, ids[3], key, _SENTINEL.get(key, "2001-02-03T00:00:00.000000Z"))
    await tamper(running, ids[5], key, None)
    # A point that does not say whose or which it is cannot be read at all: the look at the points counts it too,
    # unless the look at the records has repaired it by then.
    stale = {Difference.STALE: 2}
    unreadable = {Difference.UNREADABLE: 1} if key in (Key.TENANT, Key.USER, Key.VERSION) else {}
    report = await check(running, {**stale, **unreadable}, [ids[3], ids[5]], seen_by_repair=stale)
    assert {each.detail for each in report.findings if each.record_id} == {f"differs in {key.value}"}


async def test_missing_points_and_lost_vectors_are_found(running: Worker, ids: list[RecordId]) -> None:
    await (await raw(running)).delete_points([point_id(ids[0]), point_id(ids[1])])
    await drop_vector(running, ids[2], "dense")
    await drop_vector(running, ids[3], "lexical")
    await check(running, {Difference.MISSING: 2, Difference.INCOMPLETE: 2}, ids[:4])


async def test_words_of_another_text_are_found(running: Worker, ids: list[RecordId], embedder: HashingEmbedder) -> None:
    stored = (await running.store.records_by_id([ids[0]]))[ids[0]]
    (vector,) = await embedder.embed_passages([passage(stored)])
    await (await raw(running)).upsert([replace(point(stored, vector), text="words of an older release")])
    await check(running, {Difference.INCOMPLETE: 1}, [ids[0]])


async def test_points_that_must_not_be_there_are_found(
    running: Worker, ids: list[RecordId], embedder: HashingEmbedder
) -> None:
    ghost, dead = record("Never stored"), ids[4]
    await running.delete(dead)
    await running.indexer.drain()
    index = await raw(running)
    stored = (await running.store.records_by_id([dead]))[dead]
    await put(index, embedder, ghost, stored)
    (vector,) = await embedder.embed_passages(["lost"])
    misplaced = point(record("Somebody else's", id="mine"), vector)
    await index.upsert([replace(misplaced, payload={**misplaced.payload, Key.RECORD_ID: "not-mine"})])
    report = await check(running, {Difference.EXTRA: 2, Difference.UNREADABLE: 1}, [ghost.id, dead])
    assert await index.count() == len(ids) - 1
    assert {each.detail for each in report.findings if each.record_id == dead} == {"its record is deleted"}


async def test_no_detail_repeats_a_value(running: Worker, ids: list[RecordId]) -> None:
    await tamper(running, ids[0], Key.NAMES, ["Somebody Secret"])
    report = await running.reconcile()
    assert "Secret" not in report.model_dump_json()
    assert "Fact" not in report.model_dump_json()


class Picky(HashingEmbedder):
    """Gives a vector no index can take for one text."""

    def __init__(self, spoilt: str) -> None:
        super().__init__()
        self.spoilt: str | None = spoilt

    async def embed_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = await super().embed_passages(texts)
        for row, text in zip(rows, texts, strict=True):
            if self.spoilt is not None and self.spoilt in text:
                row[:] = np.nan
        return rows


async def test_what_the_index_cannot_take_stays_a_difference_with_its_name(
    store: Store, make_home: MakeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciling, "LAST_PAUSE_S", 0.01)
    embedder = Picky("poison")
    async with worker(store, make_home(), [embedder]) as running:
        (poison, good) = await running.import_texts("poison", "fine")
        assert await running.indexer.drain() == 1
        report = await running.reconcile(repair=True)
        assert (report.differences, report.left) == ({Difference.LAGGING: 1}, 1)
        assert [each.record_id for each in report.findings] == [poison]
        assert await running.found("fine") == [good]
        embedder.spoilt = None
        assert (await running.reconcile(repair=True)).equal
        assert (await store.index_lag(datetime.now(UTC))).pending > 0, "what was set aside is tried once more later"


DAMAGE = {
    "a word its contract does not know": ("status", "mislaid"),
    "a time that is none": ("created_at", "yesterday"),
    "JSON that is none": ("entities", "{broken"),
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_record_that_cannot_be_read_is_named_and_stops_no_other(
    running: Worker, ids: list[RecordId], damage: str
) -> None:
    damaged, lost = ids[3], ids[5]
    column, value = DAMAGE[damage]
    await running.damage(damaged, column, value)
    await (await raw(running)).delete_points([point_id(lost)])

    report = await running.reconcile()
    assert report.differences == {Difference.MISSING: 1, Difference.UNREADABLE_RECORD: 1}
    assert (report.records, report.left, report.followable) == (10, 2, 1)
    named = {each.record_id: each for each in report.findings}
    assert named[damaged].tenant == ANN.tenant
    assert named[damaged].detail.startswith(f"{column} (")
    assert value not in report.model_dump_json()

    repaired = await running.reconcile(repair=True)
    assert (repaired.repaired, repaired.left, repaired.equal) == (1, 1, False)
    index = await raw(running)
    assert set(await index.inspect(ids)) == set(ids) - {damaged}, "the others are there, of this one nothing is"
    assert (await running.reconcile()).differences == {Difference.UNREADABLE_RECORD: 1}


async def test_steps_are_bounded_and_can_be_repeated_from_anywhere(
    running: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = await running.import_texts(*(f"Fact number {n}" for n in range(300)))
    await running.indexer.drain()
    monkeypatch.setattr(reconciling, "PAGE", 32)
    monkeypatch.setattr(reconciling, "PAGES_A_STEP", 2)
    await (await raw(running)).delete_points([point_id(id) for id in stored[::3]])

    reconciler = Reconciler(running.store, running.indexer, running.live.answering)
    steps: list[ReconcileStep] = []
    report, following = ReconcileReport(), ReconcileStep()
    while following is not None:
        steps.append(following)
        once, again = await reconciler.step(following), await reconciler.step(following)
        assert once == again, "a step that is repeated after a death counts the same"
        assert once.report.records <= 64
        report, following = report.plus(once.report), once.following  # type: ignore[assignment]
    assert len(steps) > 5
    assert (report.records, report.points, report.differences) == (300, 200, {Difference.MISSING: 100})
    assert len(report.findings) == FINDINGS_MAX


async def test_writes_meanwhile_are_no_differences(running: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer changes, adds and deletes without a pause, somebody drains beside it, and the comparison runs."""
    monkeypatch.setattr(reconciling, "PAGE", 16)
    monkeypatch.setattr(reconciling, "PAGES_A_STEP", 2)
    stored = await running.import_texts(*(f"Fact number {n}" for n in range(60)))
    chance, numbers = random.Random(7), itertools.count(60)
    stop = asyncio.Event()

    async def write() -> int:
        written = 0
        while not stop.is_set():
            id = chance.choice(stored)
            match chance.randrange(4):
                case 0:
                    stored.extend(await running.import_texts(f"Fact number {next(numbers)}"))
                case 1 if len(stored) > 30:
                    stored.remove(id)
                    await running.delete(id)
                case 2:
                    await running.change(id, conflicting=chance.random() < 0.5)
                case _:
                    await running.change(id, text=f"Fact changed {next(numbers)}", content_hash=str(next(numbers)))
            written += 1
            await asyncio.sleep(0)
        return written

    async def drain() -> int:
        drained = 0
        while not stop.is_set():
            drained += await running.indexer.drain(8)
            await asyncio.sleep(0)
        return drained

    beside = [asyncio.create_task(write()), asyncio.create_task(drain())]
    try:
        for _ in range(4):
            report = await running.reconcile()
            assert report.found == 0, report.findings
            assert report.records >= 60
    finally:
        stop.set()
        written, _ = await asyncio.gather(*beside)
    assert written > 50
    await running.indexer.drain()
    assert (await running.reconcile()).equal


async def test_a_fresh_generation_is_filled_by_the_same_comparison(
    running: Worker, ids: list[RecordId], store: Store
) -> None:
    begun = await running.live.begin_rebuild(same_embedder=True)
    target = await running.live.building(begun.name)
    reconciler = Reconciler(store, Indexer(store, running.live), target, through_outbox=False)
    built = await reconciled(reconciler, ReconcileStep(repair=True, generation=begun.name))
    assert (built.differences, built.left) == ({Difference.MISSING: len(ids)}, 0)
    assert await store.pending_index_count() == 0, "building asks nothing of the outbox"
    assert await target.index.count() == len(ids)
