"""What a worker does for the index without being asked: it follows the outbox, says what it reads, and tidies up.

Operations bring the index into line themselves. This is for what they leave behind: a worker that died between
commit and index, an index that was away, a change that was set aside, and whoever never sends another operation.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta
from typing import Protocol

from retold.index.generations import LiveIndex
from retold.index.indexer import Indexer
from retold.policy.limits import utc_now

logger = logging.getLogger(__name__)

EVERY_S = 5.0
TIDY_EVERY = timedelta(seconds=30)
HEARD_OF_WITHIN = timedelta(minutes=3)
"""A worker that has not said for so long which generation it answers from is gone: it could not open a turn either."""


class ReaderLog(Protocol):
    async def note_index_reader(self, worker: str, generation: str, at: datetime, forget_before: datetime) -> None: ...

    async def index_readers(self, since: datetime) -> set[str]: ...


async def follow_outbox(
    indexer: Indexer, live: LiveIndex, readers: ReaderLog, *, worker: str, every_s: float = EVERY_S
) -> None:
    """Every few seconds, until cancelled. Costs one small read of the store while there is nothing to do.

    Args:
        worker: a name that no other running process has.
    """
    tidied: datetime | None = None
    complained = ""
    while True:
        now = utc_now()
        try:
            if tidied is None or now - tidied >= TIDY_EVERY:
                # First: a worker that cannot follow still answers from its generation, and must be heard of.
                tidied = now
                await _tidy(live, readers, worker, now)
            await indexer.drain()
            complained = ""
        except Exception as error:  # noqa: BLE001 - it must go on, whatever the store, index or embedder has
            # Once for each new trouble: an index that is away for an hour is one line, not seven hundred.
            if (trouble := f"{type(error).__name__}: {error}") != complained:
                logger.warning("the index does not follow at the moment: %s", trouble)
                complained = trouble
        await asyncio.sleep(every_s)


async def _tidy(live: LiveIndex, readers: ReaderLog, worker: str, now: datetime) -> None:
    """Drop generations nobody answers from any more. A process that has the index to itself knows that at once."""
    if live.exclusive:
        await live.drop_retired((), now, timedelta(0))
        return
    await readers.note_index_reader(worker, live.generation, now, now - 2 * HEARD_OF_WITHIN)
    await live.drop_retired(await readers.index_readers(now - HEARD_OF_WITHIN), now, HEARD_OF_WITHIN)
