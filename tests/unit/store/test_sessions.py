"""Sessions belong to one user, keep one profile block, and end."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import Engine

from retold.contracts.stages import ProfileBlock
from retold.policy.ports import SessionOwnedByAnotherError
from retold.store.store import SessionNotOpenError, Store
from tests.unit.store.conftest import ADA, BOB, ELSEWHERE, NOON

HOUR = timedelta(hours=1)
BRIEF = ProfileBlock(text="be brief", tokens=2, delimiter="d1")
LONG = ProfileBlock(text="be thorough", tokens=2, delimiter="d2")


async def test_of_two_users_claiming_one_session_at_once_exactly_one_gets_it(store: Store, engine: Engine) -> None:
    other_worker = Store(engine)
    for number in range(10):
        outcomes = await asyncio.gather(
            store.open_session(ADA, f"s{number}", NOON),
            other_worker.open_session(BOB, f"s{number}", NOON),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in outcomes if outcome is not None] == [SessionOwnedByAnotherError]


async def test_a_claimed_session_stays_with_its_user_and_its_tenant(store: Store) -> None:
    await store.open_session(ADA, "s", NOON)
    await store.keep_profile(ADA, "s", BRIEF)
    with pytest.raises(SessionOwnedByAnotherError):
        await store.open_session(BOB, "s", NOON)
    with pytest.raises(SessionOwnedByAnotherError):
        await store.keep_profile(BOB, "s", LONG)
    with pytest.raises(SessionOwnedByAnotherError):
        await store.end_session(BOB, "s", NOON)
    await store.forget_profile(BOB, "s")
    assert await store.open_session(ELSEWHERE, "s", NOON) is None
    assert await store.open_session(ADA, "s", NOON) == BRIEF


async def test_the_first_profile_kept_is_the_sessions(store: Store) -> None:
    with pytest.raises(SessionNotOpenError):
        await store.keep_profile(ADA, "s", BRIEF)
    assert await store.open_session(ADA, "s", NOON) is None
    assert await store.keep_profile(ADA, "s", BRIEF) == BRIEF
    assert await store.keep_profile(ADA, "s", LONG) == BRIEF
    await store.forget_profile(ADA, "s")
    assert await store.open_session(ADA, "s", NOON) is None
    assert await store.keep_profile(ADA, "s", LONG) == LONG


async def test_an_empty_profile_is_a_profile(store: Store) -> None:
    await store.open_session(ADA, "s", NOON)
    await store.keep_profile(ADA, "s", ProfileBlock())
    assert await store.open_session(ADA, "s", NOON) == ProfileBlock()


async def test_an_ended_session_has_no_profile_and_starts_again(store: Store) -> None:
    await store.open_session(ADA, "s", NOON)
    await store.keep_profile(ADA, "s", BRIEF)
    await store.end_session(ADA, "s", NOON + HOUR)
    await store.end_session(ADA, "s", NOON + 2 * HOUR)
    (event,) = await store.audit_events(ADA, "s")
    assert (event.event, event.at) == ("session.ended", NOON + HOUR)
    # A block that was being built when the session ended serves its turn and is not kept for the next session.
    assert await store.keep_profile(ADA, "s", BRIEF) == BRIEF
    assert await store.open_session(ADA, "s", NOON + 3 * HOUR) is None
    assert await store.keep_profile(ADA, "s", LONG) == LONG


async def test_idle_sessions_of_every_tenant_expire_and_used_ones_do_not(store: Store) -> None:
    for owner, session_id, last_seen in (
        (ADA, "idle", NOON),
        (ELSEWHERE, "idle", NOON),
        (ADA, "at the edge", NOON + HOUR),
        (ADA, "touched", NOON),
    ):
        await store.open_session(owner, session_id, last_seen)
        await store.keep_profile(owner, session_id, BRIEF)
    await store.open_session(ADA, "touched", NOON + 2 * HOUR)
    await store.open_session(ADA, "touched", NOON)  # a late message does not turn the clock back

    assert await store.expire_idle_sessions(NOON + HOUR, NOON + 3 * HOUR, limit=1) == 1
    assert await store.expire_idle_sessions(NOON + HOUR, NOON + 3 * HOUR) == 1
    assert await store.expire_idle_sessions(NOON + HOUR, NOON + 3 * HOUR) == 0
    assert [event.event for event in await store.audit_events(ELSEWHERE)] == ["session.expired"]
    assert await store.open_session(ADA, "idle", NOON + 4 * HOUR) is None
    assert await store.open_session(ADA, "touched", NOON + 4 * HOUR) == BRIEF
    assert await store.open_session(ADA, "at the edge", NOON + 4 * HOUR) == BRIEF
