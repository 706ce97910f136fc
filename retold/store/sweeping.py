"""Sessions nobody ended, sessions nobody has read, records whose time comes or goes: found again and again, by any
worker, until they are done.

What is done here cannot be undone by a clock that is put right. So what is due goes by the database's clock, which all
workers share, and where that and the worker's own disagree nothing is: one of them is wrong, and nobody knows which.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from retold.contracts.activation import ACTIVATION_BATCH_MAX
from retold.contracts.record import RecordId
from retold.contracts.turn import Principal
from retold.policy.limits import utc_now
from retold.store.engine import StoreUnavailableError
from retold.store.store import Store

logger = logging.getLogger(__name__)

BATCH = 500
READ_AT_ONCE = 20
LONGEST_PAUSE = timedelta(hours=1)
CLOCKS_DIFFER = timedelta(seconds=30)
"""Beyond what a slow answer of the database explains, and less than a record or a session is late by."""


class ClocksDisagreeError(Exception):
    """This worker's clock, or the database's, is wrong."""


async def agreed_now(store: Store) -> datetime:
    """The database's clock.

    Raises:
        ClocksDisagreeError: it and this worker's are more than 30 s apart.
    """
    at = await store.now()
    ahead = utc_now() - at
    if abs(ahead) > CLOCKS_DIFFER:
        way = "ahead of" if ahead > timedelta(0) else "behind"
        raise ClocksDisagreeError(
            f"this worker's clock is {abs(ahead).total_seconds():.0f} s {way} the database's; nothing is swept here "
            "until they agree: put the wrong one right"
        )
    return at


async def sweep_idle_sessions(store: Store, *, idle: timedelta, every: timedelta) -> None:
    """After a while a session's profile is forgotten, so that a returning user gets a fresh one.

    Ends sessions last seen longer than `idle` ago, every `every`, until cancelled. Several workers may do this."""
    while True:
        try:
            now = await agreed_now(store)
            while await store.expire_idle_sessions(now - idle, now, limit=BATCH) == BATCH:
                await asyncio.sleep(0)
        except ClocksDisagreeError as error:
            logger.error("idle sessions are not swept: %s", error)
        except StoreUnavailableError as error:
            logger.warning("idle sessions are not swept: %s; the next sweep tries again", error)
        await asyncio.sleep(every.total_seconds())


async def sweep_unread_sessions(
    store: Store, read: Callable[[Principal, str], Awaitable[None]], *, idle: timedelta, every: timedelta
) -> None:
    """Have sessions read that have ended, or were last seen longer than `idle` ago, until cancelled.

    Args:
        read: starts the reading of one session, unless it runs already. It does not wait for its end.
        every: how often they are looked for. One that stays due is started again ever more rarely.
    """
    pauses = _Pauses(every)
    while True:
        try:
            now = await agreed_now(store)
            due = await store.transcripts.due_sessions(idle_since=now - idle, limit=BATCH)
            for principal, session_id in pauses.over(due, now)[:READ_AT_ONCE]:
                pauses.begin((principal, session_id), now)
                if await store.transcripts.is_due(principal, session_id):  # else it was read, or forgotten, meanwhile
                    await read(principal, session_id)
        except ClocksDisagreeError as error:
            logger.error("unread sessions wait: %s", error)
        except Exception as error:  # noqa: BLE001 - the store or Temporal is away: the next sweep tries again
            logger.warning("unread sessions wait: %s; the next sweep tries again", type(error).__name__)
        await asyncio.sleep(every.total_seconds())


async def sweep_due_records(
    store: Store, evaluate: Callable[[Principal, Sequence[RecordId]], Awaitable[None]], *, every: timedelta
) -> None:
    """Settle records whose time came or went, and have those evaluated that are due for it, until cancelled.

    Args:
        evaluate: starts the evaluation of at most 200 records of one principal. It does not wait for its end.
    """
    while True:
        try:
            now = await agreed_now(store)
            for principal, settled in (await store.lifecycle.settle_due(now, limit=BATCH)).items():
                for start in range(0, len(settled), ACTIVATION_BATCH_MAX):
                    await evaluate(principal, settled[start : start + ACTIVATION_BATCH_MAX])
            for principal, ids in (await store.activations.due(now, limit=BATCH)).items():
                await evaluate(principal, ids[:ACTIVATION_BATCH_MAX])
        except ClocksDisagreeError as error:
            logger.error("records whose time has come wait: %s", error)
        except Exception as error:  # noqa: BLE001 - the store or Temporal is away: the next sweep tries again
            logger.warning("records whose time has come wait: %s; the next sweep tries again", type(error).__name__)
        await asyncio.sleep(every.total_seconds())


Unread = tuple[Principal, str]


@dataclass
class _Pauses:
    """How long a session that stays due is left alone: twice as long each time, an hour at most."""

    first: timedelta
    _until: dict[Unread, tuple[datetime, timedelta]] = field(default_factory=dict)

    def over(self, due: Sequence[Unread], now: datetime) -> list[Unread]:
        """Of the due sessions those that may be started now. What is not due any more is forgotten."""
        self._until = {unread: pause for unread in due if (pause := self._until.get(unread)) is not None}
        return [unread for unread in due if unread not in self._until or self._until[unread][0] <= now]

    def begin(self, unread: Unread, now: datetime) -> None:
        _, last = self._until.get(unread, (now, self.first))
        pause = min(2 * last, LONGEST_PAUSE)
        self._until[unread] = (now + pause, pause)
