"""How many turns of one worker may have memory at work at the same time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class MemoryPermits:
    """Bounds what planner, search, judge and second generation of all turns together ask of a worker.

    Drafts take none: a host would have asked its model for them anyway. So under more load than a worker can carry,
    turns go without memory, and none waits for it longer than for its draft.
    """

    def __init__(self, permits: int) -> None:
        self._permits = permits
        self._in_use = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def taken(self, before: asyncio.Future[Any]) -> bool:
        """Whether a permit was free before `before` was done; who came first gets it first. Give it back."""
        if self._in_use < self._permits:
            self._in_use += 1
            return True
        handed_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(handed_over)
        try:
            await asyncio.wait({handed_over, before}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if handed_over.done():
                self.give_back()
            raise
        finally:
            if not handed_over.done():
                self._waiting.remove(handed_over)
        return handed_over.done()

    @contextmanager
    def used(self) -> Iterator[None]:
        """One more is in use during the block, free or not: for what has begun and must not wait."""
        self._in_use += 1
        try:
            yield
        finally:
            self.give_back()

    def give_back(self) -> None:
        self._in_use -= 1
        while self._waiting and self._in_use < self._permits:
            self._in_use += 1
            self._waiting.popleft().set_result(None)
