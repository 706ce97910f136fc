"""Writing the turn's record without making the turn wait for a store that is slow or away (design section 3)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from retold.contracts.decision import TurnDecision, TurnRecord
from retold.contracts.disposition import UNANSWERED
from retold.contracts.recording import RecordResult
from retold.contracts.stages import StoredAnswer
from retold.policy.limits import LimitReachedError, within
from retold.policy.ports import TurnStore
from retold.telemetry.names import HANDED_OVER, note

ASKED_AGAIN_AFTER_S = 0.2

_logger = logging.getLogger(__name__)


class LateRecords(Protocol):
    """Somebody durable who writes a record that could not be written now."""

    async def take(self, record: TurnRecord) -> StoredAnswer | None:
        """See to it that the record is written, whatever happens to this process from now on.

        Returns:
            The answer of another record of this run of the turn that was taken before, if one was: that one is
            written, this one is not.

        Raises:
            Exception: it could not be taken.
        """


def answer_of(record: TurnRecord, *, recorded: bool) -> StoredAnswer | None:
    """What the host gets, or got, by this record; None for a turn without an answer."""
    if record.draft is None or record.decision.disposition in UNANSWERED:
        return None
    result = record.decision.as_result(record.final or record.draft, recorded=recorded)
    return StoredAnswer(request_digest=result.request_digest, result=result.model_dump(mode="json"))


@dataclass
class CircuitBreaker:
    """Keeps an outage from charging its wait to every turn.

    After `failures_to_open` failures in a row nothing is tried for `open_ms`; then one attempt is let through,
    and its success closes the breaker.
    """

    failures_to_open: int = 3
    open_ms: float = 2_000.0
    clock_ms: Callable[[], float] = field(default=lambda: time.monotonic() * 1000)
    _failures: int = 0
    _open_until_ms: float = 0.0

    def allows(self) -> bool:
        if self._failures < self.failures_to_open:
            return True
        now_ms = self.clock_ms()
        if now_ms < self._open_until_ms:
            return False
        self._open_until_ms = now_ms + self.open_ms  # one attempt; the others wait for what it finds
        return True

    def succeeded(self) -> None:
        self._failures = 0

    def failed(self) -> None:
        self._failures += 1
        self._open_until_ms = self.clock_ms() + self.open_ms


@dataclass
class TurnRecorder:
    """Tries to record within a limit. What it could not write is the driver's to write later.

    Args:
        counted: told of every decision that came on record just now, and whether its answer had left before.
    """

    store: TurnStore
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    counted: Callable[[TurnDecision, bool], None] = lambda decision, late: None

    async def try_record(self, record: TurnRecord, limit_ms: float) -> RecordResult:
        """Whether it is on record now; otherwise why not: breaker open, limit passed, or the error's type."""
        if not self.breaker.allows():
            return RecordResult(written=False, why_not="CircuitOpen")
        try:
            earlier = await within(limit_ms, self.store.record_turn(record))
        except LimitReachedError:
            self.breaker.failed()
            return RecordResult(written=False, why_not="LimitReached")
        except Exception as error:  # noqa: BLE001 - whatever the store raises, the record is written later
            self.breaker.failed()
            return RecordResult(written=False, why_not=type(error).__name__)
        self.breaker.succeeded()
        if earlier is None:
            self.counted(record.decision, False)
        return RecordResult(written=True, earlier=earlier)

    async def record(self, record: TurnRecord, limit_ms: float, later: LateRecords) -> RecordResult:
        """On record or in somebody's durable hands when this returns, however long that takes.

        It takes long only while neither the store nor Temporal can be reached, and then no answer could leave either.
        """
        while not (recorded := await self.try_record(record, limit_ms)).written:
            try:
                earlier = await later.take(record)
                note(HANDED_OVER, error_type=recorded.why_not or "unknown")
                return recorded.model_copy(update={"earlier": earlier})
            except Exception as error:  # noqa: BLE001 - whatever is in the way, the record must not be lost
                _logger.warning("a record could not be handed over (%s), trying again", type(error).__name__)
                await asyncio.sleep(ASKED_AGAIN_AFTER_S)
        return recorded

    async def record_late(self, record: TurnRecord) -> None:
        """Write it, whatever the breaker thinks: this is the attempt that finds out whether the store is back.

        Raises:
            Exception: whatever the store raises; ask again.
        """
        if await self.store.record_turn(record) is None:
            self.counted(record.decision, True)

    async def record_until_written(self, record: TurnRecord, *, first_wait_ms: float = 200.0) -> None:
        """Retry for as long as it takes, with waits doubling up to 10 s. For drivers without a durable queue."""
        wait_ms = first_wait_ms
        while not (await self.try_record(record, 30_000.0)).written:
            await asyncio.sleep(wait_ms / 1000)
            wait_ms = min(wait_ms * 2, 10_000.0)
