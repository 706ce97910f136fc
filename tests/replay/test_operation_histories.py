"""Every workflow but turns and reviews, as an earlier version ran it, still replays; and no workflow is without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from retold.client import plugins
from worker import ALL_WORKFLOWS

HERE = Path(__file__).parent
HISTORIES = sorted((HERE / "operation_histories").glob("*.json"))


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_replays_without_a_difference_and_without_a_span(path: Path, spans: InMemorySpanExporter) -> None:
    spans.clear()
    history = WorkflowHistory.from_json(f"recorded/{path.stem}", path.read_text())
    await Replayer(workflows=ALL_WORKFLOWS, plugins=plugins()).replay_workflow(history)
    assert spans.get_finished_spans() == ()


def test_every_workflow_has_a_history() -> None:
    """Whoever adds a workflow records one, or its first deployment is its first replay."""
    recorded = {_workflow_of(path) for path in HERE.glob("*histories/*.json")}
    registered = {each.__temporal_workflow_definition.name for each in ALL_WORKFLOWS}  # type: ignore[attr-defined]
    assert recorded == registered


def test_an_evaluation_led_to_a_review() -> None:
    """The longest way through the workflow of activation is among what is replayed."""
    assert any("start_reviews" in _activities(path) for path in HISTORIES)


def _events(path: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(path.read_text())["events"]
    return events


def _workflow_of(path: Path) -> str:
    name: str = _events(path)[0]["workflowExecutionStartedEventAttributes"]["workflowType"]["name"]
    return name


def _activities(path: Path) -> set[str]:
    scheduled = (event.get("activityTaskScheduledEventAttributes") for event in _events(path))
    return {each["activityType"]["name"] for each in scheduled if each is not None}
