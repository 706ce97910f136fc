"""How many turns of one worker may have memory at work at the same time."""

from __future__ import annotations

import asyncio
from typing import Any


class MemoryPermits:
    """Bounds what planner, search, judge and second generation of all turns together ask of a worker.

    Drafts take none: a host would have asked its model for them anyway. So under more load than a worker can carry,
    turns go without memory, and none waits for it longer than for its draft.
    """

    def __init__(self, permits: int) -> None:
        self._free = asyncio.Semaphore(permits)

    async def taken(self, before: asyncio.Future[Any]) -> bool:
        """Whether a permit was free before `before` was done. One that was taken must be given back."""
        if not self._free.locked():
            return await self._free.acquire()
        taking = asyncio.ensure_future(self._free.acquire())
        try:
            await asyncio.wait({taking, before}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if not taking.cancel():
                self.give_back()
            raise
        return taking.done() or not taking.cancel()

    def give_back(self) -> None:
        self._free.release()
