"""Permits for memory: free ones at once, others as long as the draft takes, and none is ever lost."""

from __future__ import annotations

import asyncio
import random

from retold.policy.permits import MemoryPermits


async def test_a_free_permit_is_taken_at_once_and_a_taken_one_is_waited_for_until_the_draft_is_there() -> None:
    permits, draft = MemoryPermits(1), asyncio.get_running_loop().create_future()
    assert await permits.taken(before=draft)
    second = asyncio.create_task(permits.taken(before=draft))
    await asyncio.sleep(0.01)
    assert not second.done()
    permits.give_back()
    assert await second
    third = asyncio.create_task(permits.taken(before=draft))
    await asyncio.sleep(0.01)
    draft.set_result(None)
    assert not await third


async def test_what_has_begun_counts_and_waits_for_nobody() -> None:
    permits, never = MemoryPermits(1), asyncio.get_running_loop().create_future()
    assert await permits.taken(before=never)
    with permits.used():
        permits.give_back()
        waiting = asyncio.create_task(permits.taken(before=never))
        await asyncio.sleep(0.01)
        assert not waiting.done()
    assert await waiting


async def test_whatever_is_given_up_in_whatever_moment_no_permit_is_lost() -> None:
    chance, number = random.Random(7), 3
    permits = MemoryPermits(number)
    holding, most = 0, 0

    async def turn() -> None:
        nonlocal holding, most
        draft = asyncio.create_task(asyncio.sleep(chance.choice((0, 0, 0.001, 0.003))))
        if await permits.taken(before=draft):
            holding += 1
            most = max(most, holding)
            try:
                await asyncio.sleep(chance.choice((0, 0, 0.001)))
            finally:
                holding -= 1
                permits.give_back()
        await draft

    turns = [asyncio.create_task(turn()) for _ in range(400)]
    for each in turns:
        if chance.random() < 0.5:
            await asyncio.sleep(0)
            each.cancel()
    await asyncio.gather(*turns, return_exceptions=True)
    assert (holding, most) == (0, number)
    never = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(1):
        assert all([await permits.taken(before=never) for _ in range(number)])
    full = asyncio.create_task(permits.taken(before=never))
    await asyncio.sleep(0.01)
    assert not full.done()
    full.cancel()
