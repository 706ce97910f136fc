"""What a sweep takes for due goes by the database's clock; a worker whose own disagrees sweeps nothing, and says so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session
from temporalio.testing import ActivityEnvironment

from activities.reviewing import ReviewActivities
from benchmarks.faults_moved_clock import MovedDatetime
from retold.contracts.record import RecordId, RecordStatus, RecordWrite, TranscriptWrite
from retold.contracts.review import ReviewState, ReviewStatus, ReviewStep, ReviewStepInput
from retold.contracts.turn import Principal
from retold.notices import LogNotifier
from retold.policy import limits
from retold.policy.limits import utc_now
from retold.store import sweeping
from retold.store.store import Store
from retold.store.tables import RecordRow
from tests.unit.store.conftest import ADA
from tests.unit.store.review_items import Queue

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
EVERY = timedelta(milliseconds=20)
LONG_ENOUGH_S = 0.3

Started = list[object]
Sweep = Callable[[Store, Started], Awaitable[None]]


async def idle_sessions(store: Store, started: Started) -> None:
    await sweeping.sweep_idle_sessions(store, idle=HOUR, every=EVERY)


async def unread_sessions(store: Store, started: Started) -> None:
    async def read(principal: Principal, session_id: str) -> None:
        started.append(session_id)

    await sweeping.sweep_unread_sessions(store, read, idle=HOUR, every=EVERY)


async def due_records(store: Store, started: Started) -> None:
    async def evaluate(principal: Principal, ids: Sequence[RecordId]) -> None:
        started.append(tuple(ids))

    await sweeping.sweep_due_records(store, evaluate, every=EVERY)


async def swept(sweep: Sweep, store: Store) -> Started:
    started: Started = []
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(sweep(store, started), LONG_ENOUGH_S)
    return started


@pytest.fixture
def clock_is_ahead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[timedelta], None]:
    """Moves the clock of this worker, and nobody else's."""

    def moved(by: timedelta) -> None:
        file = tmp_path / "seconds"
        file.write_text(str(int(by.total_seconds())))
        monkeypatch.setattr("benchmarks.faults_moved_clock.FILE", file)
        monkeypatch.setattr(limits, "datetime", MovedDatetime)

    return moved


async def test_the_databases_clock_is_aware_and_goes_on(store: Store) -> None:
    first = await store.now()
    assert first.utcoffset() == timedelta(0)
    assert abs(utc_now() - first) < timedelta(seconds=10)
    await asyncio.sleep(0.05)
    assert timedelta(milliseconds=20) < await store.now() - first < timedelta(seconds=10)


async def home_moves(store: Store, begins_in: timedelta) -> Callable[[], Awaitable[RecordStatus]]:
    """What becomes of where Ada lives, when she said where she will live later."""
    now = utc_now()
    for write in (
        RecordWrite(text="Lives in Bern", attribute="home_city"),
        RecordWrite(text="Lives in Rome", attribute="home_city", valid_from=now + begins_in),
    ):
        await store.lifecycle.remember(ADA, [write], actor="ada", at=now - MINUTE)

    async def bern() -> RecordStatus:
        return {record.text: record for record in await store.records(ADA)}["Lives in Bern"].status

    return bern


@pytest.mark.parametrize("ahead", [DAY, -DAY, timedelta(minutes=1)])
async def test_a_worker_with_a_wrong_clock_settles_nothing_and_says_it_as_an_error(
    store: Store,
    ahead: timedelta,
    clock_is_ahead: Callable[[timedelta], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    bern = await home_moves(store, begins_in=HOUR)
    clock_is_ahead(ahead)
    assert await swept(due_records, store) == []
    assert await bern() is RecordStatus.CONFIRMED
    (said, *_) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert ("ahead of the database's" if ahead > timedelta(0) else "behind the database's") in said.getMessage()


@pytest.mark.parametrize("ahead", [timedelta(0), timedelta(seconds=20)])
async def test_what_is_due_by_the_databases_clock_is_settled_and_nothing_else(
    store: Store, ahead: timedelta, clock_is_ahead: Callable[[timedelta], None]
) -> None:
    bern = await home_moves(store, begins_in=timedelta(seconds=2))
    clock_is_ahead(ahead)
    await swept(due_records, store)
    assert await bern() is RecordStatus.CONFIRMED, "by this worker's clock it may be over, by the database's it is not"
    await asyncio.sleep(2)
    assert len(await swept(due_records, store)) == 1
    assert await bern() is RecordStatus.SUPERSEDED


@pytest.mark.parametrize("sweep", [idle_sessions, unread_sessions])
async def test_sessions_are_neither_ended_nor_read_by_a_wrong_clock(
    store: Store, sweep: Sweep, clock_is_ahead: Callable[[timedelta], None], caplog: pytest.LogCaptureFixture
) -> None:
    await store.open_session(ADA, "s", utc_now() - MINUTE)
    turn = TranscriptWrite(
        kind="turn", session_id="s", turn_id="t", role="user", text="I live in Bern.", at=utc_now() - MINUTE
    )
    await store.import_lines(ADA, [turn], actor="ada", at=utc_now())
    clock_is_ahead(DAY)
    assert await swept(sweep, store) == []
    assert [event.event for event in await store.audit_events(ADA, "s")].count("session.expired") == 0
    assert any(each.levelno == logging.ERROR for each in caplog.records)


@pytest.mark.parametrize("step", [ReviewStep.LOOK, ReviewStep.EXPIRE])
async def test_a_review_is_neither_withdrawn_nor_expired_by_a_wrong_clock(
    store: Store, engine: Engine, step: ReviewStep, clock_is_ahead: Callable[[timedelta], None]
) -> None:
    review = await Queue(store, engine, utc_now(), ADA).item(lives_for=HOUR)
    with Session(engine) as session, session.begin():
        session.get_one(RecordRow, review.record.id).valid_until = utc_now() + HOUR
    clock_is_ahead(DAY)
    nobody_to_start: Any = None
    reviewing = ReviewActivities(store.reviews, LogNotifier(), nobody_to_start)
    asked = ReviewStepInput(review_id=review.review_id, step=step)
    state: ReviewState = await ActivityEnvironment().run(reviewing.step_review, asked)
    assert state.status is ReviewStatus.OPEN


async def test_an_idle_session_is_ended_by_a_worker_whose_clock_is_right(store: Store) -> None:
    await store.open_session(ADA, "s", utc_now() - 2 * HOUR)
    await swept(idle_sessions, store)
    assert [event.event for event in await store.audit_events(ADA, "s")].count("session.expired") == 1
