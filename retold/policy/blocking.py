"""Blocking calls off the event loop, in few threads, none of which can hold a turn or the interpreter.

A call that is given up keeps its thread until it returns: Python cannot stop a thread. So each call gets a daemon
thread of its own, at most `max_threads` at a time, abandoned ones included, and a call that finds none free is refused
at once. Queueing it behind calls nobody waits for any more would make every later turn late (design section 3.1), and
a shared executor would wait for its threads when the interpreter exits.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast, overload

T = TypeVar("T")


class PoolExhaustedError(Exception):
    """Every thread of the pool is busy, perhaps with abandoned calls. Nothing was called."""


class PoolClosedError(Exception):
    """The pool was closed. Nothing was called."""


class BlockingPool:
    """At most `max_threads` blocking calls at a time; used from one event loop or several.

    Args:
        max_threads: upper bound of calls in progress, abandoned ones included; at least 1.
        name: what the threads are called, for whoever reads a stack dump.
    """

    def __init__(self, max_threads: int, name: str) -> None:
        if max_threads < 1:
            raise ValueError(f"max_threads must be at least 1, got {max_threads}")
        self._max_threads = max_threads
        self._name = name
        self._lock = threading.Lock()
        self._busy = 0
        self._abandoned = 0
        self._closed = False

    @property
    def max_threads(self) -> int:
        return self._max_threads

    @property
    def busy(self) -> int:
        """Calls in progress, abandoned ones included."""
        return self._busy

    @property
    def abandoned(self) -> int:
        """Calls in progress whose caller was cancelled or ran out of time."""
        return self._abandoned

    async def run(self, fn: Callable[..., T], *args: Any) -> T:
        """Call `fn(*args)` in a thread, with the caller's context variables, and return its result.

        Cancelling the awaiting task returns at once and abandons the call; its result is dropped.

        Raises:
            PoolExhaustedError: all threads are busy, or the system gave no thread. `fn` was not called.
            PoolClosedError: after `close`. `fn` was not called.
            Exception: whatever `fn` raised.
        """
        call = _Call(self, asyncio.get_running_loop(), fn, args)
        self._take_thread()
        thread = threading.Thread(target=call.in_thread, name=f"{self._name}-call", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._give_back(abandoned=False)
            raise PoolExhaustedError(f"pool {self._name!r} could not start a thread: {error}") from error
        try:
            return cast(T, await call.outcome)
        except asyncio.CancelledError:
            call.abandon()
            raise

    def close(self) -> None:
        """Refuse further calls. Calls in progress are neither waited for nor stopped."""
        self._closed = True

    def _take_thread(self) -> None:
        with self._lock:
            if self._closed:
                raise PoolClosedError(f"pool {self._name!r} is closed")
            if self._busy >= self._max_threads:
                raise PoolExhaustedError(
                    f"all {self._max_threads} threads of pool {self._name!r} are busy ({self._abandoned} abandoned)"
                )
            self._busy += 1

    def _count_abandoned(self) -> None:
        with self._lock:
            self._abandoned += 1

    def _give_back(self, *, abandoned: bool) -> None:
        with self._lock:
            self._busy -= 1
            self._abandoned -= abandoned


class _Call:
    """One call: runs in its thread, settles a future on the caller's loop, knows whether anybody still waits."""

    def __init__(
        self, pool: BlockingPool, loop: asyncio.AbstractEventLoop, fn: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        self.outcome: asyncio.Future[Any] = loop.create_future()
        self._pool = pool
        self._loop = loop
        self._context = contextvars.copy_context()
        self._fn = fn
        self._args = args
        self._lock = threading.Lock()
        self._returned = False
        self._abandoned = False

    def in_thread(self) -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = self._context.run(self._fn, *self._args)
        except BaseException as raised:  # noqa: BLE001 - handed to the caller, whatever it is; the thread ends anyway
            error = raised
        if isinstance(error, StopIteration | asyncio.CancelledError):
            # A future refuses the first, and the second would read as a cancellation of the caller.
            error = RuntimeError(f"the blocking call raised {type(error).__name__}")
        with self._lock:
            self._returned = True
            abandoned = self._abandoned
        self._pool._give_back(abandoned=abandoned)
        if abandoned:
            _drop(result)
            return
        try:
            self._loop.call_soon_threadsafe(self._settle, result, error)
        except RuntimeError:
            # The loop is closed: nobody is left to hear of it.
            _drop(result)

    def abandon(self) -> None:
        with self._lock:
            if self._returned:
                return
            self._abandoned = True
            self._pool._count_abandoned()

    def _settle(self, result: Any, error: BaseException | None) -> None:
        if self.outcome.done():
            _drop(result)
        elif error is not None:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(result)


def _drop(result: object) -> None:
    """A coroutine that nobody will await is closed, so that it does not warn when it is collected."""
    if inspect.iscoroutine(result):
        result.close()


@overload
async def call_policy(method: Callable[..., Awaitable[T]], *args: Any, pool: BlockingPool) -> T: ...


@overload
async def call_policy(method: Callable[..., Awaitable[T] | T], *args: Any, pool: BlockingPool) -> T: ...


async def call_policy(method: Callable[..., Awaitable[T] | T], *args: Any, pool: BlockingPool) -> T:
    """Call a policy's method, written async or blocking (see `retold.policy.ports`).

    An async method is awaited here. Any other runs in the pool; should it answer with an awaitable after all, that is
    awaited here too.

    Raises:
        PoolExhaustedError, PoolClosedError: as `BlockingPool.run`, for a blocking method.
        Exception: whatever the method raised.
    """
    called = method if inspect.isroutine(method) else getattr(method, "__call__", method)  # noqa: B004
    if inspect.iscoroutinefunction(method) or inspect.iscoroutinefunction(called):
        return await cast(Awaitable[T], method(*args))
    answer = await pool.run(method, *args)
    return await answer if inspect.isawaitable(answer) else answer
