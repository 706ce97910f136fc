"""Instruments and their names. Without a meter provider they cost nothing and go nowhere."""

from __future__ import annotations

from collections.abc import Iterable

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from retold.policy.blocking import BlockingPool

METER = "retold"
BLOCKING_THREADS = "retold.policy.blocking_threads"


def watch_blocking_threads(pool: BlockingPool, pool_name: str) -> None:
    """How many threads blocking policies hold, how many of those nobody waits for any more, and the bound.

    An abandoned call keeps its thread until it returns. Near the bound, blocking policies are refused at once and
    their turns fall to the draft: alert before.
    """

    def observe(_: CallbackOptions) -> Iterable[Observation]:
        for state, count in (("busy", pool.busy), ("abandoned", pool.abandoned), ("bound", pool.max_threads)):
            yield Observation(count, {"retold.pool": pool_name, "state": state})

    metrics.get_meter(METER).create_observable_gauge(
        BLOCKING_THREADS, callbacks=[observe], unit="{thread}", description="threads of blocking policies"
    )
