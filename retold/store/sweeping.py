"""Sessions nobody ended: after a while their profile is forgotten, so that a returning user gets a fresh one."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from retold.policy.limits import utc_now
from retold.store.engine import StoreUnavailableError
from retold.store.store import Store

logger = logging.getLogger(__name__)

BATCH = 500


async def sweep_idle_sessions(store: Store, *, idle: timedelta, every: timedelta) -> None:
    """End sessions last seen longer than `idle` ago, every `every`, until cancelled. Several workers may do this."""
    while True:
        try:
            while await store.expire_idle_sessions(utc_now() - idle, utc_now(), limit=BATCH) == BATCH:
                await asyncio.sleep(0)
        except StoreUnavailableError as error:
            logger.warning("idle sessions are not swept: %s; the next sweep tries again", error)
        await asyncio.sleep(every.total_seconds())
