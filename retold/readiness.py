"""Whether this worker can do its work now: what its readiness probe answers, and why not.

Readiness is not liveness. A worker whose PostgreSQL is away is alive: drafts go out, and a restart would not bring the
database back. It is not ready, and says which of its dependencies it waits for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from retold.index.port import RecordIndex
from retold.policy.limits import LimitReachedError, within
from retold.policy.switches import SwitchBoard

LOOK_LIMIT_MS = 2_000.0
FRESH_FOR_S = 2.0
"""Probes of several observers within this time get one answer."""
SWITCHES_STALE_AFTER_S = 120.0

Look = Callable[[], Awaitable[object]]


@dataclass
class Readiness:
    """Looks at each dependency, all at once, at most once in `FRESH_FOR_S`.

    Args:
        looks: by dependency; one that raises or does not return in time is not ready.
        clock_s: monotonic seconds.
    """

    looks: Mapping[str, Look]
    clock_s: Callable[[], float] = time.monotonic
    _found: dict[str, str | None] = field(default_factory=dict)
    _found_at_s: float | None = None
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def look(self) -> dict[str, str | None]:
        """What is wrong with each dependency; None: nothing."""
        async with self._looking:
            if self._found_at_s is None or self.clock_s() - self._found_at_s >= FRESH_FOR_S:
                wrong = await asyncio.gather(*(_wrong(look) for look in self.looks.values()))
                # Fresh from here on: looking may itself take two seconds, and who waited meanwhile need not look again.
                self._found, self._found_at_s = dict(zip(self.looks, wrong, strict=True)), self.clock_s()
            return self._found

    async def keep_looking(self, every_s: float) -> None:
        """Look again and again until cancelled, so that the metric is fresh when nobody probes."""
        while True:
            await self.look()
            await asyncio.sleep(every_s)

    def as_metric(self) -> Iterable[tuple[float, Mapping[str, str]]]:
        """1 for each dependency that was ready when last looked at."""
        for dependency, wrong in self._found.items():
            yield float(wrong is None), {"dependency": dependency}


def switches_are_fresh(board: SwitchBoard) -> Look:
    """Raises RuntimeError while the kill switches were not read for two minutes."""

    async def look() -> None:
        staleness_s = board.staleness_s
        if staleness_s is None or staleness_s > SWITCHES_STALE_AFTER_S:
            raise RuntimeError("never read" if staleness_s is None else f"last read {staleness_s:.0f} s ago")

    return look


async def index_answers(index: RecordIndex) -> None:
    """Raises RuntimeError if the index says that it is not healthy, and whatever it raises when it cannot say."""
    if not await index.healthy():
        raise RuntimeError("not healthy")


async def _wrong(look: Look) -> str | None:
    async def looked() -> None:
        await look()

    try:
        await within(LOOK_LIMIT_MS, looked())
    except LimitReachedError:
        return f"does not answer in {LOOK_LIMIT_MS:.0f} ms"
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the probe is there to say so
        return f"{type(error).__name__}: {error}"[:200]
    return None
