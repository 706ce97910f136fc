"""Reviews that an earlier version began still replay: what a deployment must not break while they wait."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from retold.client import plugins
from workflows.review import DecideReviewWorkflow, ReviewWorkflow

HISTORIES = sorted((Path(__file__).parent / "review_histories").glob("*.json"))


def test_there_is_a_history_of_every_kind_of_end() -> None:
    assert {path.stem for path in HISTORIES} == {"decided-after-refusals", "signalled", "withdrawn", "expired"}


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_replays_without_a_difference(path: Path, spans: InMemorySpanExporter) -> None:
    history = WorkflowHistory.from_json("review/recorded", path.read_text())
    await Replayer(workflows=[ReviewWorkflow, DecideReviewWorkflow], plugins=plugins()).replay_workflow(history)
