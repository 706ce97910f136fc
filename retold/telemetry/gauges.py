"""What only the store and the switch board know, read on a schedule and reported when metrics are collected."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from retold.contracts.indexing import OutboxLag
from retold.contracts.switches import SwitchName
from retold.policy.limits import utc_now
from retold.policy.switches import SwitchBoard
from retold.store.engine import StoreUnavailableError
from retold.store.store import Store
from retold.telemetry import metrics

logger = logging.getLogger(__name__)

Observations = Iterable[tuple[float, Mapping[str, str]]]


@dataclass
class StoreGauges:
    """The outbox and the switches. While the store is away the outbox keeps quiet: an old number would be a lie."""

    store: Store
    board: SwitchBoard
    _lag: OutboxLag | None = None

    def watch(self) -> None:
        """Report from now on, with every collection."""
        metrics.announce()
        metrics.watch(metrics.OUTBOX_PENDING, lambda: [] if self._lag is None else [(self._lag.pending, {})])
        metrics.watch(metrics.OUTBOX_AGE, lambda: [] if self._lag is None else [(self._lag.oldest_age_s, {})])
        metrics.watch(metrics.SWITCH_OFF, self._switches)
        metrics.watch(metrics.SWITCH_STALENESS, self._staleness)

    async def keep_reading(self, every_s: float) -> None:
        """Read again and again until cancelled."""
        while True:
            await self.read()
            await asyncio.sleep(every_s)

    async def read(self) -> None:
        try:
            self._lag = await self.store.index_lag(utc_now())
        except StoreUnavailableError as error:
            if self._lag is not None:  # once, not every few seconds
                logger.warning("the outbox cannot be read: %s", error)
            self._lag = None

    def _switches(self) -> Observations:
        for switch in SwitchName:
            off = [state for state in self.board.in_force.off if state.switch is switch]
            yield float(any(state.tenant is None for state in off)), {"switch": switch.value, "scope": "all"}
            yield float(sum(state.tenant is not None for state in off)), {"switch": switch.value, "scope": "tenants"}

    def _staleness(self) -> Observations:
        if (staleness_s := self.board.staleness_s) is not None:
            yield staleness_s, {}
