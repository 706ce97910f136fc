"""One turn is one trace, from the host to the last SQL statement, over the real adapters; none of it is text."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from uuid import uuid4

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.client import Client

from retold.client import Host, TurnResult
from retold.composition import compose
from retold.contracts import names
from retold.contracts.disposition import Disposition
from retold.contracts.importing import ImportReport
from retold.contracts.operations import ImportInput
from retold.contracts.record import RecordWrite
from retold.contracts.turn import Durability, Principal
from retold.settings import Settings, WorkerSettings
from tests.scripted import SERVING
from worker import running

FACT = "The user's dentist is Dr. Ravnholt in Aarhus."
QUESTION = "What is the name of my dentist?"


def children(spans: list[ReadableSpan]) -> dict[str, list[str]]:
    """Names of each span's children, by the parent's name."""
    by_id = {span.context.span_id: span.name for span in spans if span.context is not None}
    tree: dict[str, list[str]] = defaultdict(list)
    for span in spans:
        tree["(root)" if span.parent is None else by_id[span.parent.span_id]].append(span.name)
    return tree


@pytest.mark.parametrize("durability", [Durability.TURN, Durability.STAGE])
async def test_the_tree_of_a_regenerated_turn(
    client: Client, spans: InMemorySpanExporter, tmp_path: Path, durability: Durability
) -> None:
    queues = WorkerSettings(turns_queue=f"turns-{uuid4()}", operations_queue=f"operations-{uuid4()}")
    utility = SERVING
    settings = Settings(data_dir=tmp_path, utility=utility, worker=queues, development_approval="a test")
    principal = Principal(tenant=f"acme/{uuid4()}", user="anna")
    async with compose(settings) as adapters, running(client, adapters, settings):
        await client.execute_workflow(
            names.IMPORT_WORKFLOW,
            ImportInput(principal=principal, lines=(RecordWrite(text=FACT),), actor="test"),
            id=f"import/{uuid4()}",
            task_queue=queues.operations_queue,
            result_type=ImportReport,
        )
        spans.clear()
        host = Host(client, task_queue=queues.turns_queue)
        result = await host.turn(principal, "s1", "t1", QUESTION, durability=durability)
        decision = await adapters.store.decision(result.decision_id) if isinstance(result, TurnResult) else None
        model = adapters.bodies.generate.model.identity
    assert isinstance(result, TurnResult) and decision is not None
    assert result.disposition is Disposition.REGENERATED

    finished = [span for span in spans.get_finished_spans() if span.name != "embeddings all-MiniLM-L6-v2"]
    turn = [span for span in finished if span.context and f"{span.context.trace_id:032x}" == decision.trace_id]
    tree = children(turn)
    assert tree["(root)"] == ["turn"], "the host's own span is the only root"
    assert tree["turn"] == ["turn.workflow"]
    stages = ["turn.open", "turn.draft", "turn.plan", "turn.retrieve", "turn.admit", "turn.regenerate", "turn.record"]
    assert sorted(tree["turn.workflow"]) == sorted(stages)
    assert tree["turn.draft"] == [f"chat {model}"]
    assert tree["turn.regenerate"] == ["read retold", f"chat {model}"]
    assert "query_batch retold" in tree["turn.retrieve"]
    assert tree["turn.admit"][0] == "read retold"
    # A session's first turn: look, claim; ambient records, profile. Later turns only look.
    assert tree["turn.open"] == ["read retold", "write retold"] * 2
    assert tree["turn.record"] == ["write retold"]

    said = (FACT, QUESTION, result.answer, "Ravnholt")
    for span in spans.get_finished_spans():
        shown = f"{span.name} {dict(span.attributes or {})} {[dict(event.attributes or {}) for event in span.events]}"
        assert not any(text in shown for text in said), f"text in span {span.name}"
