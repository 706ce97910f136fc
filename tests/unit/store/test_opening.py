"""What a turn finds when it opens, and that turns of an open session do not queue for the one writer."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from retold.contracts.record import RetrievalCategory
from retold.contracts.stages import ProfileBlock
from retold.contracts.turn import Principal
from retold.policy.ports import OpenedSession, SessionOwnedByAnotherError
from retold.store.engine import open_engine
from retold.store.opening import TOUCH_AFTER
from retold.store.store import Store, StoreUnavailableError
from tests.unit.store.conftest import ADA, BOB, ELSEWHERE, NOON, PutRecord
from tests.unit.store.test_decisions import failed, turn

TICK = timedelta(microseconds=1)
BRIEF = ProfileBlock(text="be brief", tokens=2, delimiter="d1")


async def opened(
    store: Store, owner: Principal = ADA, *, at: datetime = NOON, decision: str = "none yet"
) -> OpenedSession:
    return await store.open_turn(owner, "s", decision, at, want_inventory=True)


async def test_a_first_turn_claims_its_session_and_later_ones_get_what_is_stored(
    store: Store, put_record: PutRecord
) -> None:
    assert await opened(store) == OpenedSession(inventory=())
    with pytest.raises(SessionOwnedByAnotherError):
        await opened(store, BOB)
    await store.keep_profile(ADA, "s", BRIEF)
    await put_record("1", category="people")
    await put_record("2", BOB, category="limits")
    assert await opened(store) == OpenedSession(profile=BRIEF, inventory=(RetrievalCategory.PEOPLE,))
    assert await store.open_turn(ADA, "s", "-", NOON, want_inventory=False) == OpenedSession(profile=BRIEF)
    assert await opened(store, ELSEWHERE) == OpenedSession(inventory=())


async def test_turns_of_an_open_session_open_while_somebody_else_writes(database: Path) -> None:
    store = Store(open_engine(f"sqlite:///{database}", busy_timeout_ms=0))
    await opened(store)
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    turns = await asyncio.gather(*(opened(store, at=NOON + TOUCH_AFTER) for _ in range(32)))
    assert turns == [OpenedSession(inventory=())] * 32
    with pytest.raises(StoreUnavailableError, match="locked"):
        await opened(store, at=NOON + TOUCH_AFTER + TICK)
    other.close()
    await store.close()


async def test_a_session_not_seen_for_a_while_is_touched_so_that_no_sweep_ends_it_under_the_turn(store: Store) -> None:
    await opened(store)
    await opened(store, at=NOON + TOUCH_AFTER + TICK)
    await opened(store, at=NOON)  # a late message does not turn the clock back
    assert await store.expire_idle_sessions(NOON + TOUCH_AFTER, NOON + TOUCH_AFTER) == 0


async def test_an_ended_session_starts_again(store: Store) -> None:
    await opened(store)
    await store.keep_profile(ADA, "s", BRIEF)
    await store.end_session(ADA, "s", NOON)
    assert await opened(store) == OpenedSession(inventory=())
    assert await store.expire_idle_sessions(NOON + TICK, NOON + TICK) == 1, "it is open again"


async def test_an_answer_is_repeated_before_anything_is_claimed_or_refused(store: Store) -> None:
    record = turn()
    decision_id = record.decision.decision_id
    await store.record_turn(failed())
    assert (await opened(store, decision=decision_id)).already is None, "a run without an answer has none to repeat"
    await store.record_turn(record)
    await store.end_session(ADA, "s", NOON)
    for owner in (ADA, BOB):
        found = await opened(store, owner, decision=decision_id)
        assert found == OpenedSession(already=await store.decided(decision_id))
        assert found.already is not None and found.already.result["answer"] == "Water."
    assert await store.expire_idle_sessions(NOON + TICK, NOON + TICK) == 0, "the ended session stayed ended"
