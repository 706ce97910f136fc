"""The lifecycle on PostgreSQL, where writers in several processes really meet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from uuid import uuid4

import pytest

from retold.contracts.lifecycle import ContradictInput, CorrectInput, ExpireInput, RestoreInput
from retold.contracts.record import RecordStatus, RecordWrite
from retold.contracts.turn import Principal
from retold.store.engine import open_engine
from retold.store.migrations import migrate
from retold.store.store import Store
from tests.postgres import running_postgres
from tests.unit.store.conftest import NOON

TICK = timedelta(microseconds=1)
DAY = timedelta(days=1)


@pytest.fixture
def postgresql() -> Iterator[str]:
    with running_postgres() as server, server.database(migrated=False) as url:
        yield url


@pytest.fixture
async def stores(postgresql: str) -> AsyncIterator[list[Store]]:
    """Four processes' worth of stores on one database."""
    engines = [open_engine(postgresql) for _ in range(4)]
    await migrate(engines[0])
    stores = [Store(engine) for engine in engines]
    yield stores
    for store in stores:
        await store.close()


@pytest.fixture
def who() -> Principal:
    return Principal(tenant=str(uuid4()), user="ada")


def home(number: int) -> RecordWrite:
    return RecordWrite(text=f"Lives in city {number}", attribute="home_city")


async def test_writers_in_different_processes_leave_one_value(stores: list[Store], who: Principal) -> None:
    async def write(number: int) -> None:
        store, at = stores[number % 4], NOON + number * TICK
        if number % 3:
            await store.lifecycle.remember(who, [home(number)], actor="ada", at=at)
        else:
            await store.import_lines(who, [home(number)], actor="host", at=at)

    await asyncio.gather(*(write(number) for number in range(40)))
    records = await stores[0].records(who)
    assert len(records) == 40
    assert [record.is_current(NOON + DAY) for record in records].count(True) == 1
    assert [record.status for record in records].count(RecordStatus.SUPERSEDED) == 39


async def test_the_same_statement_from_everywhere_at_once_is_one_record(stores: list[Store], who: Principal) -> None:
    async def write(number: int) -> None:
        await stores[number % 4].lifecycle.remember(who, [home(1)], actor="ada", at=NOON + number * TICK)

    await asyncio.gather(*(write(number) for number in range(16)))
    (record,) = await stores[0].records(who)
    assert record.version == 1


async def test_changes_from_everywhere_at_once_neither_deadlock_nor_lose_one(
    stores: list[Store], who: Principal
) -> None:
    writes = [RecordWrite(text=f"fact {number}", id=f"k{number}") for number in range(6)]
    await stores[0].lifecycle.remember(who, writes, actor="ada", at=NOON)

    async def change(number: int) -> None:
        lifecycle, at = stores[number % 4].lifecycle, NOON + number * TICK
        one, other = f"k{number % 6}", f"k{(number + 1) % 6}"
        asked = {"principal": who, "actor": "ada", "reason": "a test"}
        if number % 2:
            await lifecycle.contradict(ContradictInput(**asked, record_ids=(one, other)), at=at)
        else:
            corrected = CorrectInput(**asked, record_id=other, text=f"corrected {number}")
            await lifecycle.correct(corrected, at=at)

    async with asyncio.timeout(30):
        await asyncio.gather(*(change(number) for number in range(24)))
    records = {record.id: record for record in await stores[0].records(who)}
    for record in records.values():
        assert record.conflicting == bool(record.conflicts_with)
        assert all(record.id in records[peer].conflicts_with for peer in record.conflicts_with)
        events = [event for event in await stores[0].audit_events(who, record.id) if event.after]
        assert {event.after["version"] for event in events if event.after} == set(range(1, record.version + 1))


async def test_times_and_states_are_as_on_sqlite(stores: list[Store], who: Principal) -> None:
    store = stores[0]
    trip = RecordWrite(text="Stays in Rome", attribute="home_city", valid_from=NOON + DAY, valid_until=NOON + 2 * DAY)
    await store.lifecycle.remember(who, [home(1), trip], actor="ada", at=NOON)

    async def holding(at: datetime) -> set[str]:
        records = await store.records(who)
        loaded = await store.load_current(who, [record.ref for record in records], at)
        return {record.text for record in loaded.values()}

    assert await holding(NOON + DAY - TICK) == {"Lives in city 1"}
    assert await holding(NOON + DAY) == {"Stays in Rome"}
    assert await holding(NOON + 2 * DAY) == {"Lives in city 1"}
    assert list(await store.lifecycle.settle_due(NOON + 2 * DAY)) == [who]
    first = next(record for record in await store.records(who) if record.text == "Lives in city 1")
    assert first.suspended_by is None
    asked = {"principal": who, "record_id": first.id, "actor": "ada", "reason": "a test"}
    await store.lifecycle.expire(ExpireInput(**asked), at=NOON + 3 * DAY)
    assert await holding(NOON + 3 * DAY) == set()
    await store.lifecycle.restore(RestoreInput(**asked), at=NOON + 4 * DAY)
    assert await holding(NOON + 4 * DAY) == {"Lives in city 1"}
