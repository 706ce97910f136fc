"""Bounding a stage by abandoning it: the turn goes on at the limit whether or not the call behind it comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import ValidationError

from retold.contracts.stages import FailureKind, Limit, StageFailure
from retold.policy.ports import MalformedReplyError, RefusedByProviderError

T = TypeVar("T")


class PolicyQuitError(Exception):
    """Something called by a stage raised what no call should raise: an exit, or a cancellation nobody asked for."""


class LimitReachedError(Exception):
    """The stage's own limit passed. Distinct from a TimeoutError that something inside the stage raised."""


def utc_now() -> datetime:
    return datetime.now(UTC)


def left_ms(limit: Limit, now: Callable[[], datetime] = utc_now) -> float:
    """What is left of a limit in milliseconds: queueing before the stage began has already eaten of the deadline."""
    if limit.deadline_at is None:
        return limit.limit_ms
    return min(limit.limit_ms, (limit.deadline_at - now()).total_seconds() * 1000)


async def within(limit_ms: float, body: Coroutine[Any, Any, T]) -> T:
    """The body's result, if it comes within the limit.

    A body that outlasts the limit is cancelled and left behind: even one that swallows its cancellation cannot
    hold the turn. Whatever it still raises goes nowhere.

    Raises:
        LimitReachedError: the limit passed first.
        PolicyQuitError: the body tried to end the process, or cancelled itself.
    """
    if limit_ms <= 0:
        body.close()
        raise LimitReachedError
    task = asyncio.ensure_future(_never_quitting(body))
    try:
        done, _ = await asyncio.wait({task}, timeout=limit_ms / 1000)
    except asyncio.CancelledError:
        abandon(task)
        raise
    if not done:
        abandon(task)
        raise LimitReachedError
    if task.cancelled():
        raise PolicyQuitError("CancelledError")
    return task.result()


async def _never_quitting(body: Coroutine[Any, Any, T]) -> T:
    """A `sys.exit` inside a task would end the event loop and every other turn with it."""
    try:
        return await body
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as error:
        raise PolicyQuitError(type(error).__name__) from error


def abandon(task: asyncio.Future[Any]) -> None:
    """Stop waiting for a task, for good."""
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    task.cancel()


def failure_of(error: Exception) -> StageFailure:
    """Name a failure by kind and type. Never by its message: that may hold text of a turn or a record."""
    match error:
        case LimitReachedError():
            kind = FailureKind.TIMEOUT
        case MalformedReplyError() | ValidationError():
            kind = FailureKind.MALFORMED
        case RefusedByProviderError():
            kind = FailureKind.REFUSED
        case _:
            kind = FailureKind.ERROR
    return StageFailure(kind=kind, error=type(error).__name__[:200])
