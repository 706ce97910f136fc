"""Heartbeats of regular stages: how a worker's death, or a host's change of mind, is noticed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from temporalio import activity

BEAT_S = 0.2


@contextlib.asynccontextmanager
async def heartbeating() -> AsyncIterator[None]:
    """Beat every 200 ms while the body runs. A local activity lives inside its workflow task and needs none.

    Without beats a cancelled loser of a race keeps its slot, and its paid model call, until its own limit.
    """
    if activity.info().is_local:
        yield
        return
    beating = asyncio.create_task(_beat())
    try:
        yield
    finally:
        beating.cancel()


async def _beat() -> None:
    while True:
        await asyncio.sleep(BEAT_S)  # first: most stages end before a first beat would be worth its round trip
        activity.heartbeat()
