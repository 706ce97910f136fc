"""Turns recorded by an earlier version still replay: what a deployment must not break while turns are in flight."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from retold.client import plugins
from retold.contracts.identity import turn_workflow_id
from tests.scripted import ANNA
from worker import TURN_WORKFLOWS

HISTORIES = sorted((Path(__file__).parent / "histories").glob("*.json"))


def test_there_are_histories_of_both_durabilities() -> None:
    kinds = {path.name.split("-")[0] for path in HISTORIES}
    assert kinds == {"turn", "stage"}


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_replays_without_a_difference_and_without_a_span(path: Path, spans: InMemorySpanExporter) -> None:
    spans.clear()
    history = WorkflowHistory.from_json(turn_workflow_id(ANNA, "s1", path.stem), path.read_text())
    await Replayer(workflows=TURN_WORKFLOWS, plugins=plugins()).replay_workflow(history)
    assert spans.get_finished_spans() == ()
