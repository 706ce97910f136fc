"""Reading what people said takes tenths of a second of Python, and the event loop has turns to answer meanwhile.

So it is done in a thread of the pool, on an event loop of its own; the embedder alone is asked where it belongs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from retold.policy.blocking import BlockingPool
from retold.policy.ports import Embedder, EmbedderIdentity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")


async def aside(
    pool: BlockingPool, read: Callable[[Embedder | None], Coroutine[Any, Any, T]], embedder: Embedder | None
) -> T:
    """What `read` finds, in a thread. It is given an embedder that may be awaited there.

    Raises:
        PoolExhaustedError, PoolClosedError: nothing was read.
        Exception: whatever `read` raised.
    """
    here = asyncio.get_running_loop()
    there = None if embedder is None else _EmbedderOf(here, embedder)
    return await pool.run(lambda: asyncio.run(read(there)))


class _EmbedderOf:
    """An embedder as seen from another event loop than its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, embedder: Embedder) -> None:
        self._loop = loop
        self._embedder = embedder

    @property
    def identity(self) -> EmbedderIdentity:
        return self._embedder.identity

    async def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        asked = asyncio.run_coroutine_threadsafe(self._embedder.embed_queries(texts), self._loop)
        return await asyncio.wrap_future(asked)

    async def embed_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        asked = asyncio.run_coroutine_threadsafe(self._embedder.embed_passages(texts), self._loop)
        return await asyncio.wrap_future(asked)
