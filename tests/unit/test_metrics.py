"""The number of threads blocking policies hold is a metric: busy, abandoned, and the bound."""

from __future__ import annotations

import asyncio
import threading

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from retold.policy.blocking import BlockingPool
from retold.telemetry import metrics as instruments


async def test_abandoned_threads_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    monkeypatch.setattr("opentelemetry.metrics.get_meter", provider.get_meter)
    pool, release = BlockingPool(max_threads=3, name="test"), threading.Event()
    instruments.watch_blocking_threads(pool, "test")
    given_up = asyncio.create_task(pool.run(release.wait))
    await asyncio.sleep(0.05)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    assert observed(reader) == {"busy": 1, "abandoned": 1, "bound": 3}
    release.set()
    async with asyncio.timeout(5):
        while pool.busy:
            await asyncio.sleep(0.01)
    assert observed(reader) == {"busy": 0, "abandoned": 0, "bound": 3}
    pool.close()


def observed(reader: InMemoryMetricReader) -> dict[str, float]:
    data = reader.get_metrics_data()
    assert data is not None
    (metric,) = data.resource_metrics[0].scope_metrics[0].metrics
    assert metric.name == instruments.BLOCKING_THREADS
    return {str(point.attributes["state"]): point.value for point in metric.data.data_points}  # type: ignore[union-attr, index]
