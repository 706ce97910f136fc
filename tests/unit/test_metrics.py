"""What is counted of a turn comes from its record; names are fixed; a blocking policy's threads are a number."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from retold.composition import NOT_OF_THE_BUNDLE
from retold.contracts.stages import ModelUse, Stage
from retold.policy.blocking import BlockingPool
from retold.policy.recording import TurnRecorder
from retold.settings import ModelRole
from retold.telemetry import metrics as instruments
from retold.telemetry.metrics import INSTRUMENTS
from tests.cases import CASES, SERVED, Case
from tests.scripted import Step, scripted
from tests.unit.test_turn_in_process import play


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryMetricReader]:
    reader = InMemoryMetricReader()
    monkeypatch.setattr("opentelemetry.metrics.get_meter", MeterProvider([reader]).get_meter)
    made = (instruments._counter, instruments._histogram)
    for instrument in made:
        instrument.cache_clear()
    yield reader
    for instrument in made:
        instrument.cache_clear()


async def test_abandoned_threads_are_counted(reader: InMemoryMetricReader) -> None:
    pool, release = BlockingPool(max_threads=3, name="test"), threading.Event()
    instruments.watch_blocking_threads(pool, "test")
    given_up = asyncio.create_task(pool.run(release.wait))
    await asyncio.sleep(0.05)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    assert _threads(reader) == {"busy": 1, "abandoned": 1, "bound": 3}
    release.set()
    async with asyncio.timeout(5):
        while pool.busy:
            await asyncio.sleep(0.01)
    assert _threads(reader) == {"busy": 0, "abandoned": 0, "bound": 3}
    pool.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_every_outcome_is_counted_once_under_its_own_name(reader: InMemoryMetricReader, case: Case) -> None:
    stack = scripted(case.script)
    await play(stack)
    instruments.observe_turn(stack.decision)
    ((attributes, value),) = _points(reader, "retold.turn.decisions")
    assert (value, attributes["disposition"], attributes["reason"]) == (1, case.disposition, case.reason)
    failed = [timing for timing in stack.decision.timings if timing.failure is not None]
    counted = _points(reader, "retold.turn.stage.failures")
    assert sum(value for _, value in counted) == len(failed)


async def test_added_latency_counts_from_the_draft_and_keeps_turns_with_gaps_apart(
    reader: InMemoryMetricReader,
) -> None:
    for script in (SERVED.with_budget(5_000), SERVED.but(plan=Step(()))):
        stack = scripted(script)
        await play(stack)
        instruments.observe_turn(stack.decision, late=True)
    by_gaps = {attributes["gaps"]: value for attributes, value in _points(reader, "retold.turn.added_latency")}
    assert by_gaps == {"yes": 1, "no": 1}
    assert [value for _, value in _points(reader, "retold.turn.budget.used")] == [1]
    assert _points(reader, "retold.turn.recorded_late") == [({}, 2)]
    tokens = {attributes["stage"] for attributes, _ in _points(reader, "retold.model.tokens")}
    assert tokens <= {stage.value for stage in Stage}


async def test_a_turn_is_counted_when_it_comes_on_record_and_not_before(reader: InMemoryMetricReader) -> None:
    stack = scripted(SERVED)
    counted: list[bool] = []
    recorder = TurnRecorder(stack.store, counted=lambda _, late: counted.append(late))
    await play(stack, recorder)
    assert counted == [False]
    (record,) = stack.store.written.values()
    away = scripted(SERVED.but(record=Step(ConnectionError("away"))))
    assert not (await TurnRecorder(away.store, counted=lambda *_: counted.append(True)).try_record(record, 50)).written
    assert counted == [False], "what is not on record is not counted"
    fresh = scripted(SERVED)
    late = TurnRecorder(fresh.store, counted=lambda _, late: counted.append(late))
    await late.record_late(record)
    assert counted == [False, True]


async def test_cost_is_counted_where_a_price_is_known(reader: InMemoryMetricReader) -> None:
    stack = scripted(SERVED)
    await play(stack)
    use = ModelUse(role=Stage.DRAFT, model="m", prompt_tokens=2_000_000, completion_tokens=500_000)
    local = use.model_copy(update={"role": Stage.PLAN})
    decision = stack.decision.model_copy(update={"usage": (use, local)})
    instruments.observe_turn(decision, prices={Stage.DRAFT: instruments.Price(input_usd=0.5, output_usd=2.0)})
    assert _points(reader, "retold.model.cost_usd") == [({"stage": "draft"}, 2.0)]


def test_prices_change_no_bundle() -> None:
    roles = {"provider": "openai", "model": "m", "base_url": "http://localhost:1/v1"}
    free = ModelRole.model_validate(roles).model_dump(exclude=NOT_OF_THE_BUNDLE)
    priced = {**roles, "usd_per_million_input_tokens": 1.0, "usd_per_million_output_tokens": 2.0}
    assert ModelRole.model_validate(priced).model_dump(exclude=NOT_OF_THE_BUNDLE) == free


def test_names_are_unique_and_spelled_alike() -> None:
    names = [instrument.name for instrument in INSTRUMENTS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"retold(\.[a-z_]+){2,4}", name) for name in names), names
    spelled = {instrument.name: instrument.prometheus_name for instrument in INSTRUMENTS}
    assert spelled["retold.turn.decisions"] == "retold_turn_decisions_total"
    assert spelled["retold.turn.stage.duration"] == "retold_turn_stage_duration_seconds"
    assert spelled["retold.review.oldest_age"] == "retold_review_oldest_age_seconds"


def test_no_attribute_names_a_person_or_grows_with_use() -> None:
    personal = {"tenant", "user", "session", "turn", "record", "principal", "text", "query", "id"}
    for instrument in INSTRUMENTS:
        assert not personal & set(instrument.attributes), instrument.name
        assert len(instrument.attributes) <= 4


def _threads(reader: InMemoryMetricReader) -> dict[str, float]:
    return {attributes["state"]: value for attributes, value in _points(reader, "retold.policy.blocking_threads")}


def _points(reader: InMemoryMetricReader, name: str) -> list[tuple[dict[str, Any], float]]:
    """Attributes and value of each point; of a histogram, how many values it took."""
    data = reader.get_metrics_data()
    if data is None:
        return []
    return [
        (dict(point.attributes or {}), point.count if hasattr(point, "count") else point.value)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
        for point in metric.data.data_points
    ]
