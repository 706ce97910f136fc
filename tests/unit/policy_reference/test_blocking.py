"""Blocking calls: bounded, refused when full, abandoned when given up, never in the way of anything."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import subprocess
import sys
import threading

import pytest

from retold.policy.blocking import BlockingPool, PoolClosedError, PoolExhaustedError, call_policy

GENEROUS_S = 10.0


async def until_idle(pool: BlockingPool) -> None:
    async with asyncio.timeout(GENEROUS_S):
        while pool.busy:
            await asyncio.sleep(0.001)


async def test_a_call_runs_in_a_daemon_thread_with_the_callers_context() -> None:
    marker: contextvars.ContextVar[str] = contextvars.ContextVar("marker")
    marker.set("here")
    pool = BlockingPool(1, "judge")
    thread, seen = await pool.run(lambda: (threading.current_thread(), marker.get()))
    assert thread is not threading.main_thread()
    assert thread.daemon
    assert thread.name.startswith("judge")
    assert seen == "here"
    assert (pool.busy, pool.abandoned) == (0, 0)


@pytest.mark.parametrize("raised", [KeyError("k"), SystemExit(3), StopIteration(), asyncio.CancelledError()])
async def test_what_a_call_raises_reaches_the_caller_and_never_cancels_it(raised: BaseException) -> None:
    def fail() -> None:
        raise raised

    pool = BlockingPool(1, "judge")
    expected = RuntimeError if isinstance(raised, StopIteration | asyncio.CancelledError) else type(raised)
    with pytest.raises(expected):
        await pool.run(fail)
    assert pool.busy == 0


async def test_a_call_given_up_holds_its_thread_until_it_returns_and_others_are_refused_meanwhile() -> None:
    pool = BlockingPool(2, "judge")
    release = threading.Event()
    for _ in range(2):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await pool.run(release.wait)
    assert (pool.busy, pool.abandoned) == (2, 2)

    called: list[int] = []
    with pytest.raises(PoolExhaustedError, match="2 abandoned"):
        await pool.run(called.append, 1)
    assert called == []

    release.set()
    await until_idle(pool)
    assert pool.abandoned == 0
    await pool.run(called.append, 2)
    assert called == [2]


async def test_counts_are_right_after_many_calls_racing_their_cancellation() -> None:
    pool = BlockingPool(4, "judge")

    async def one(delay: float) -> None:
        try:
            async with asyncio.timeout(delay):
                await pool.run(threading.Event().wait, 0.002)
        except (TimeoutError, PoolExhaustedError):
            return

    await asyncio.gather(*(one(0.0005 * (index % 8)) for index in range(200)))
    await until_idle(pool)
    assert pool.abandoned == 0


async def test_a_closed_pool_refuses_and_waits_for_nobody() -> None:
    pool = BlockingPool(1, "judge")
    release = threading.Event()
    waiting = asyncio.create_task(pool.run(release.wait))
    await asyncio.sleep(0)
    pool.close()
    with pytest.raises(PoolClosedError):
        await pool.run(int)
    release.set()
    assert await waiting is True


def test_a_stuck_call_does_not_hold_the_interpreter() -> None:
    program = """
import asyncio, threading
from retold.policy.blocking import BlockingPool

async def main():
    try:
        async with asyncio.timeout(0.05):
            await BlockingPool(1, "stuck").run(threading.Event().wait)
    except TimeoutError:
        print("abandoned")

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert (ended.stdout, ended.stderr) == ("abandoned\n", "")


class AsyncPolicy:
    async def plan(self, turn: str) -> tuple[str, str]:
        return turn, threading.current_thread().name


class BlockingPolicy:
    def plan(self, turn: str) -> tuple[str, str]:
        return turn, threading.current_thread().name


class CallableAsync:
    async def __call__(self, turn: str) -> tuple[str, str]:
        return turn, threading.current_thread().name


async def test_an_async_policy_is_awaited_on_the_loop_and_a_blocking_one_in_the_pool() -> None:
    pool = BlockingPool(1, "policy")
    here = threading.current_thread().name
    for method in (AsyncPolicy().plan, functools.partial(AsyncPolicy().plan), CallableAsync()):
        assert await call_policy(method, "hi", pool=pool) == ("hi", here)
    turn, name = await call_policy(BlockingPolicy().plan, "hi", pool=pool)
    assert (turn, name.startswith("policy")) == ("hi", True)
    # An async function behind a plain one is only found out by its answer.
    assert await call_policy(lambda turn: AsyncPolicy().plan(turn), "hi", pool=pool) == ("hi", here)


async def test_an_abandoned_policy_that_answers_with_a_coroutine_leaves_no_warning(
    recwarn: pytest.WarningsRecorder,
) -> None:
    pool = BlockingPool(1, "policy")
    release = threading.Event()

    def plan() -> object:
        release.wait()
        return AsyncPolicy().plan("late")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await call_policy(plan, pool=pool)
    release.set()
    await until_idle(pool)
    assert [warning for warning in recwarn if "never awaited" in str(warning.message)] == []
