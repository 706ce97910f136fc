"""Heartbeats of regular activities: how a worker's death, or a host's change of mind, is noticed."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from temporalio import activity

P = ParamSpec("P")
T = TypeVar("T")

FIRST_BEAT_S = 0.5
"""Most stages end before a beat would be worth its round trip, which the server writes down like any other."""
BEAT_S = 0.2
UNHURRIED_BEAT_S = 1.0
"""Where nobody waits to call it off: often enough to tell of a death, a fifth of the server's work."""


@contextlib.asynccontextmanager
async def heartbeating(every_s: float = BEAT_S) -> AsyncIterator[None]:
    """Beat, 200 ms apart unless told otherwise, after the first 500 ms of the body. A local activity lives inside its
    workflow task and needs none.

    Without beats a cancelled loser of a race keeps its slot, and its paid model call, until its own limit.
    """
    if activity.info().is_local:
        yield
        return
    beating = asyncio.create_task(_beat(every_s))
    try:
        yield
    finally:
        beating.cancel()


def while_beating(body: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """The activity, beating: for those that `workflows.durably` calls. Its worker's death is noticed within seconds,
    and one that ends within 500 ms costs nothing more."""

    @functools.wraps(body)
    async def beating(*args: P.args, **kwargs: P.kwargs) -> T:
        async with heartbeating(UNHURRIED_BEAT_S):
            return await body(*args, **kwargs)

    return beating


async def _beat(every_s: float) -> None:
    await asyncio.sleep(FIRST_BEAT_S)
    while True:
        activity.heartbeat()
        await asyncio.sleep(every_s)
