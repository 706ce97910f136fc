"""Heartbeats of regular stages: how a worker's death, or a host's change of mind, is noticed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from temporalio import activity

FIRST_BEAT_S = 0.5
"""Most stages end before a beat would be worth its round trip, which the server writes down like any other."""
BEAT_S = 0.2


@contextlib.asynccontextmanager
async def heartbeating() -> AsyncIterator[None]:
    """Beat every 200 ms after the first 500 while the body runs. A local activity lives inside its workflow task and
    needs none.

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
    await asyncio.sleep(FIRST_BEAT_S)
    while True:
        activity.heartbeat()
        await asyncio.sleep(BEAT_S)
