"""What a turn leads to is found from its trace, or leads back to it: late records, evaluations, reviews."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pytest
from opentelemetry import baggage, context
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.client import Client

from retold.client import Host, Reviews, TurnResult
from retold.composition import compose
from retold.contracts.identity import turn_workflow_id
from retold.contracts.review import Resolution, Review, ReviewerRole, ReviewFilter
from retold.contracts.turn import Durability, Principal, TurnOptions
from retold.policy.limits import utc_now
from retold.policy.recording import TurnRecorder
from retold.settings import Settings, WorkerSettings
from tests.cases import SERVED
from tests.integration.reviewing import eventually
from tests.scripted import ANNA, DRAFT, Step, request, scripted
from worker import running, turn_worker

DOUBTFUL = "Never explain things twice, and always use simple words when you answer me."


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def traces(spans: Sequence[ReadableSpan]) -> set[int]:
    return {span.context.trace_id for span in spans if span.context is not None}


def events(span: ReadableSpan) -> dict[str, dict[str, object]]:
    return {event.name: dict(event.attributes or {}) for event in span.events}


@pytest.mark.parametrize("durability", [Durability.TURN, Durability.STAGE])
async def test_a_record_that_is_written_late_belongs_to_the_turns_trace(
    client: Client, spans: InMemorySpanExporter, durability: Durability
) -> None:
    stack, queue, turn_id = scripted(SERVED), f"turns-{uuid4()}", str(uuid4())
    stack.store.fail_next = 1
    asked = request(SERVED.but(options=TurnOptions(durability=durability)), turn_id)
    async with turn_worker(client, stack.bodies, TurnRecorder(stack.store), WorkerSettings(), task_queue=queue):
        spans.clear()
        result = await Host(client, task_queue=queue).send(asked)
        assert isinstance(result, TurnResult) and not result.recorded
        await eventually(lambda: len(named(spans, "turn.record")) == 2)
    (turn,) = named(spans, "turn")
    records = named(spans, "turn.record")
    assert traces(records) == traces([turn])
    assert events(records[0])["handed_over"] == {"error.type": "ConnectionError"}


async def test_retries_limits_and_abandoned_calls_are_events_of_their_spans(
    client: Client, spans: InMemorySpanExporter
) -> None:
    drafts = iter((Step(OSError("what the provider said")), Step(DRAFT)))
    script = SERVED.but(plan=Step(after_ms=2_000), options=TurnOptions(latency_budget_ms=100))
    stack, queue = scripted(script), f"turns-{uuid4()}"
    stack.bodies.generate.model.script = script.but(draft=_Changing(drafts))  # type: ignore[attr-defined]
    async with turn_worker(client, stack.bodies, TurnRecorder(stack.store), WorkerSettings(), task_queue=queue):
        spans.clear()
        await Host(client, task_queue=queue).send(request(script, str(uuid4())))
        await eventually(lambda: named(spans, "turn.plan"))
    (draft,), (plan,), (whole,) = (named(spans, name) for name in ("turn.draft", "turn.plan", "turn.workflow"))
    assert events(draft) == {"retried": {"attempt": 2, "error.type": "OSError"}}
    assert events(plan) == {"abandoned": {}}
    assert events(whole) == {"budget_exhausted": {"reason": "planner_cut_off"}}


async def test_a_stage_that_used_up_its_limit_says_so(client: Client, spans: InMemorySpanExporter) -> None:
    script = SERVED.but(plan=Step(after_ms=2_000)).with_config(gap_timeout_ms=50)
    stack, queue = scripted(script), f"turns-{uuid4()}"
    async with turn_worker(client, stack.bodies, TurnRecorder(stack.store), WorkerSettings(), task_queue=queue):
        spans.clear()
        await Host(client, task_queue=queue).send(request(script, str(uuid4())))
    (plan,) = named(spans, "turn.plan")
    assert list(events(plan)) == ["limit_reached"]
    assert plan.attributes is not None and plan.attributes["retold.stage.limit_ms"] == 50


async def test_what_a_host_carries_in_its_baggage_stays_with_it(client: Client) -> None:
    stack, queue, turn_id = scripted(SERVED), f"turns-{uuid4()}", str(uuid4())
    token = context.attach(baggage.set_baggage("user.email", "ada@example.org"))
    try:
        async with turn_worker(client, stack.bodies, TurnRecorder(stack.store), WorkerSettings(), task_queue=queue):
            await Host(client, task_queue=queue).send(request(SERVED, turn_id))
        assert baggage.get_baggage("user.email") == "ada@example.org", "the host keeps it"
    finally:
        context.detach(token)
    history = await client.get_workflow_handle(turn_workflow_id(ANNA, "s1", turn_id)).fetch_history()
    headers = history.events[0].workflow_execution_started_event_attributes.header.fields
    carried = {name: payload.data.decode() for name, payload in headers.items()}
    assert any("traceparent" in value for value in carried.values())
    assert not any("baggage" in value or "ada" in value for value in carried.values())


async def test_an_evaluation_and_a_review_lead_back_to_the_turn_somebody_said_it_in(
    client: Client, spans: InMemorySpanExporter, tmp_path: Path
) -> None:
    queues = WorkerSettings(
        turns_queue=f"turns-{uuid4()}", operations_queue=f"operations-{uuid4()}", lifecycle_queue=f"lifecycle-{uuid4()}"
    )
    settings = Settings(data_dir=tmp_path, worker=queues)
    ada = Principal(tenant=f"acme/{uuid4()}"[:30], user="ada")
    async with compose(settings) as adapters, running(client, adapters, settings):
        host = Host(client, task_queue=queues.turns_queue, operations_queue=queues.operations_queue)
        result = await host.turn(ada, "s1", "t1", DOUBTFUL)
        assert isinstance(result, TurnResult)
        turn = await adapters.store.decision(result.decision_id)
        assert turn is not None
        spans.clear()
        await host.end_session(ada, "s1")
        opened: list[Review] = []

        async def is_open() -> bool:
            page = await adapters.store.reviews.page(ReviewFilter(tenants=(ada.tenant,)))
            opened[:] = [item for item in page.items if isinstance(item, Review)]
            return bool(opened)

        await eventually(is_open)
        _, token = await adapters.store.reviewers.register(
            "rita", "Rita", ReviewerRole.REVIEWER, actor="root", at=utc_now()
        )
        reviews = Reviews(client, task_queue=queues.lifecycle_queue)
        await reviews.resolve(opened[0].review_id, Resolution.REJECT, expected_version=1, reason="no", token=token)
        await eventually(lambda: named(spans, "activation"))
    evaluations, decisions = named(spans, "activation.evaluate"), named(spans, "review.decide")
    assert evaluations and decisions
    for span in (evaluations[0], decisions[0]):
        links = {(f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") for link in span.links}
        assert links == {(turn.trace_id, turn.span_id)}, span.name
    assert traces(evaluations[:1]) == traces(named(spans, "activation")[:1])
    shown = [f"{span.name} {dict(span.attributes or {})}" for span in spans.get_finished_spans()]
    assert not any(word in line for line in shown for word in ("simple words", ada.user, ada.tenant))


class _Changing(Step):
    """Another step each time."""

    def __init__(self, steps: object) -> None:
        super().__init__()
        object.__setattr__(self, "steps", steps)

    async def play(self) -> object:
        return await next(self.steps).play()  # type: ignore[attr-defined]
