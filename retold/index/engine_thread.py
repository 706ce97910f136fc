"""One thread for one engine: calls run in order, off the event loop, and are refused when too many wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from retold.index.port import IndexUnavailableError

T = TypeVar("T")


class EngineThread:
    """Runs calls one at a time on a thread of its own.

    A caller that is cancelled leaves; its call is dropped if it has not begun, and otherwise finishes in its thread.

    Args:
        name: shown in thread dumps and in errors.
        max_waiting: calls that may wait; the next one is refused at once instead of joining a queue it would
            time out in.
    """

    def __init__(self, name: str, max_waiting: int = 256) -> None:
        self._name = name
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._max_waiting = max_waiting
        self._waiting = 0
        self._closed = False

    async def run(self, call: Callable[[], T]) -> T:
        """The call's result or exception.

        Raises:
            IndexUnavailableError: closed, or too many calls wait.
        """
        if self._closed:
            raise IndexUnavailableError(f"{self._name} is closed")
        if self._waiting >= self._max_waiting:
            raise IndexUnavailableError(f"{self._name} is overloaded: {self._waiting} calls wait")
        loop = asyncio.get_running_loop()
        self._waiting += 1
        submitted = self._executor.submit(call)
        submitted.add_done_callback(lambda _: self._one_less(loop))
        return await asyncio.wrap_future(submitted)

    async def aclose(self, last: Callable[[], None]) -> None:
        """Run `last` after what was begun, and end the thread. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        try:
            await asyncio.wrap_future(self._executor.submit(last))
        finally:
            self._executor.shutdown(wait=False, cancel_futures=True)

    def _one_less(self, loop: asyncio.AbstractEventLoop) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._decrement)

    def _decrement(self) -> None:
        self._waiting -= 1
