"""The table of outcomes through the workflow, in both durabilities, on the real server; every history is replayed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import uuid4

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.worker import Replayer

from retold.client import (
    DraftFailedError,
    Host,
    InvalidTurnError,
    RetoldError,
    SessionOwnedByAnotherError,
    TurnConflictError,
    TurnDeadlineError,
    TurnResult,
    plugins,
)
from retold.contracts import names
from retold.contracts.disposition import Disposition, Reason
from retold.contracts.identity import turn_workflow_id
from retold.contracts.turn import Durability, Principal, TurnOptions
from retold.policy.recording import TurnRecorder
from retold.policy.replay import replay
from retold.settings import WorkerSettings
from tests.cases import CASES, SERVED, Case
from tests.scripted import ANNA, DRAFT, FINAL, Stack, Step, request, scripted
from worker import TURN_WORKFLOWS, turn_worker

BOTH = pytest.mark.parametrize("durability", [Durability.TURN, Durability.STAGE])


@asynccontextmanager
async def serving(client: Client, stack: Stack) -> AsyncIterator[Host]:
    queue = f"turns-{uuid4()}"
    worker = turn_worker(
        client, stack.bodies, TurnRecorder(stack.store), WorkerSettings(), task_queue=queue, sandboxed=True
    )
    async with worker:
        yield Host(client, task_queue=queue)


def unique() -> Principal:
    """A fresh tenant, so that tests sharing the server cannot meet."""
    return Principal(tenant=f"acme/{uuid4()}", user="anna")


async def ask(
    host: Host, stack: Stack, principal: Principal, durability: Durability, text: str = "what can I eat?"
) -> TurnResult:
    options = TurnOptions(latency_budget_ms=stack.script.options.latency_budget_ms, durability=durability)
    result = await host.send(request(stack.script.but(options=options), principal=principal, text=text))
    assert isinstance(result, TurnResult)
    return result


async def assert_replays(handle: WorkflowHandle[object, object]) -> None:
    await Replayer(workflows=TURN_WORKFLOWS, plugins=plugins()).replay_workflow(await handle.fetch_history())


@BOTH
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_outcome(client: Client, case: Case, durability: Durability) -> None:
    stack, principal = scripted(case.script), unique()
    async with serving(client, stack) as host:
        result = await ask(host, stack, principal, durability)
    decision = stack.decision
    assert (result.disposition, result.reason) == (case.disposition, case.reason)
    assert (decision.disposition, decision.reason, decision.durability) == (case.disposition, case.reason, durability)
    assert decision.bundle_approval == ("fitness" if case.script.config.serving else None)
    assert not set(case.not_called) & set(stack.called.ports)
    if case.failures is not None:
        assert decision.failures == case.failures
    expected = FINAL if case.disposition is Disposition.REGENERATED else case.script.draft.answer
    assert result.answer == expected
    assert await replay(decision) == (case.disposition, case.reason)
    await assert_replays(client.get_workflow_handle(turn_workflow_id(principal, "s1", "t1")))


@BOTH
async def test_a_failed_draft_is_a_typed_error_recorded_and_sending_again_tries_again(
    client: Client, durability: Durability
) -> None:
    stack, principal = scripted(SERVED.but(draft=Step(OSError("reset")))), unique()
    async with serving(client, stack) as host:
        with pytest.raises(DraftFailedError, match="OSError"):
            await ask(host, stack, principal, durability)
        assert (stack.decision.disposition, stack.decision.reason) == (Disposition.FAILED, Reason.DRAFT_ERROR)
        asked = len(stack.called.prompts)
        with pytest.raises(DraftFailedError):
            await ask(host, stack, principal, durability)
        assert len(stack.called.prompts) == 2 * asked


@BOTH
async def test_the_same_turn_gets_the_same_answer_while_it_runs_and_after(
    client: Client, durability: Durability
) -> None:
    stack, principal = scripted(SERVED.but(draft=Step(DRAFT, 300))), unique()
    async with serving(client, stack) as host:
        first, second = await asyncio.gather(*(ask(host, stack, principal, durability) for _ in range(2)))
        third = await ask(host, stack, principal, durability)
        assert first == second == third
        assert stack.called.ports.count("draft") == 1
        with pytest.raises(TurnConflictError):
            await ask(host, stack, principal, durability, text="something else")


async def test_a_session_belongs_to_one_user_of_a_tenant(client: Client) -> None:
    stack, principal = scripted(SERVED), unique()
    async with serving(client, stack) as host:
        await ask(host, stack, principal, Durability.TURN)
        mallory = Principal(tenant=principal.tenant, user="mallory")
        with pytest.raises(SessionOwnedByAnotherError):
            await ask(host, stack, mallory, Durability.TURN)
        elsewhere = Principal(tenant=f"{principal.tenant}/", user="mallory")
        assert (await ask(host, stack, elsewhere, Durability.TURN)).answer == FINAL


async def test_two_turns_of_one_session_at_once_both_get_their_answers(client: Client) -> None:
    stack, principal = scripted(SERVED.with_config(admission_mode="disabled", shadow=True)), unique()
    async with serving(client, stack) as host:
        turns = [request(stack.script, f"t{n}", principal=principal) for n in range(2)]
        results = await asyncio.gather(*(host.send(turn) for turn in turns))
        assert {result.answer for result in results} == {DRAFT}
        assert len(stack.store.written) == 2


async def test_the_callers_deadline_ends_the_wait_and_the_answer_can_be_picked_up(client: Client) -> None:
    stack, principal = scripted(SERVED.but(draft=Step(DRAFT, 600))), unique()
    async with serving(client, stack) as host:
        turn = request(SERVED, principal=principal)
        with pytest.raises(TurnDeadlineError):
            await host.send(turn, deadline_ms=150)
        result = await host.send(turn)
        assert result.answer == FINAL
        assert stack.called.ports.count("draft") == 1


@BOTH
async def test_a_store_that_is_away_does_not_delay_the_answer_and_gets_its_row_later(
    client: Client, durability: Durability
) -> None:
    stack, principal = scripted(SERVED), unique()
    stack.store.fail_next = 2
    async with serving(client, stack) as host:
        result = await ask(host, stack, principal, durability)
        assert (result.answer, result.recorded, stack.store.written) == (FINAL, False, {})
        async with asyncio.timeout(30):
            while not stack.store.written:
                await asyncio.sleep(0.1)
    assert stack.decision.disposition is Disposition.REGENERATED
    await assert_replays(client.get_workflow_handle(turn_workflow_id(principal, "s1", "t1")))


async def test_plain_json_works_without_our_client_and_is_refused_with_field_and_limit(client: Client) -> None:
    stack, principal = scripted(SERVED), unique()
    plain = {
        "principal": {"tenant": principal.tenant, "user": principal.user},
        "session_id": "s1",
        "turn_id": "t1",
        "text": "what can I eat?",
    }
    queue = f"turns-{uuid4()}"
    worker = turn_worker(client, stack.bodies, TurnRecorder(stack.store), WorkerSettings(), task_queue=queue)
    async with worker:
        id = turn_workflow_id(principal, "s1", "t1")
        answered = await client.execute_workflow(names.TURN_WORKFLOW, plain, id=id, task_queue=queue)
        assert answered["answer"] == FINAL
        for bad, said in (
            ({**plain, "turn_id": "t2", "text": " "}, "text: must not be empty or blank"),
            ({**plain, "turn_id": "t2", "options": {"latency_budget_ms": 1.5}}, "options.latency_budget_ms"),
            ({**plain, "turn_id": "t3"}, "the workflow id of this turn must be"),
            ({**plain, "turn_id": "t2", "mode": "fast"}, "mode: Extra inputs are not permitted"),
        ):
            with pytest.raises(WorkflowFailureError) as failed:
                await client.execute_workflow(
                    names.TURN_WORKFLOW, bad, id=turn_workflow_id(principal, "s1", "t2"), task_queue=queue
                )
            cause = failed.value.cause
            assert isinstance(cause, ApplicationError) and cause.type == names.INVALID_REQUEST
            assert said in cause.message


async def test_invalid_input_is_refused_before_anything_is_sent(client: Client) -> None:
    host = Host(client, task_queue="nobody-listens-here")
    for fields, said in (
        ({"session": "  "}, "session_id"),
        ({"turn": "x" * 129}, "turn_id"),
        ({"text": "a\x00b"}, "NUL"),
        ({"text": "\ud800"}, "surrogates"),
        ({"text": "x" * 32_001}, "32000"),
        ({"budget_ms": -1}, "latency_budget_ms"),
        ({"public_context": "x" * 64_001}, "public_context"),
    ):
        values: dict[str, object] = {"session": "s1", "turn": "t1", "text": "hello", **fields}
        with pytest.raises(InvalidTurnError, match=said):
            await host.turn(ANNA, **values)  # type: ignore[arg-type]


@BOTH
async def test_history_stays_small(client: Client, durability: Durability) -> None:
    stack, principal = scripted(SERVED), unique()
    async with serving(client, stack) as host:
        await ask(host, stack, principal, durability)
    history = await client.get_workflow_handle(turn_workflow_id(principal, "s1", "t1")).fetch_history()
    assert len(history.events) <= (12 if durability is Durability.TURN else 36)


async def test_a_mistake_of_ours_fails_the_turn_at_once_instead_of_wedging_it(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("retold.policy.turn_books.TurnBooks._chosen_durability", broken)
    stack, principal = scripted(SERVED), unique()
    async with serving(client, stack) as host, asyncio.timeout(20):
        with pytest.raises(RetoldError, match="ZeroDivisionError"):
            await ask(host, stack, principal, Durability.TURN)


@pytest.mark.parametrize(
    "data",
    [b'{"text": "hi \\ud83d"}', b"not json at all", b"[" * 5_000, b"[]", b"null", b"\xff\xfe", b'{"text": 1}'],
    ids=["half an emoji", "prose", "nesting", "list", "null", "bytes", "wrong type"],
)
async def test_whatever_a_turn_is_started_with_is_refused_at_once(client: Client, data: bytes) -> None:
    stack, queue = scripted(SERVED), f"turns-{uuid4()}"
    raw = RawValue(Payload(metadata={"encoding": b"json/plain"}, data=data))
    async with turn_worker(
        client, stack.bodies, TurnRecorder(stack.store), WorkerSettings(), task_queue=queue, sandboxed=True
    ):
        for arguments in ([raw], [], *([[raw, raw]] if data in (b"null", b"[]") else [])):
            with pytest.raises(WorkflowFailureError) as failed:
                await client.execute_workflow(
                    names.TURN_WORKFLOW,
                    args=arguments,
                    id=f"bad/{uuid4()}",
                    task_queue=queue,
                    execution_timeout=timedelta(seconds=8),
                )
            assert isinstance(failed.value.cause, ApplicationError), "refused, not timed out"


async def test_a_refusal_repeats_nothing_that_was_sent(client: Client, spans: InMemorySpanExporter) -> None:
    stack, queue = scripted(SERVED), f"turns-{uuid4()}"
    sent = {"principal": ANNA.model_dump(), "session_id": "s1", "turn_id": "t1", "text": "SECRET", "mood": "SECRET"}
    spans.clear()
    async with turn_worker(
        client, stack.bodies, TurnRecorder(stack.store), WorkerSettings(), task_queue=queue, sandboxed=True
    ):
        id = f"bad/{uuid4()}"
        with pytest.raises(WorkflowFailureError) as failed:
            await client.execute_workflow(names.TURN_WORKFLOW, sent, id=id, task_queue=queue)
    history = await client.get_workflow_handle(id).fetch_history()
    assert "SECRET" not in str(failed.value.cause)
    assert "SECRET" not in str(history.events[-1])
    for span in spans.get_finished_spans():
        assert "SECRET" not in f"{span.attributes} {[dict(event.attributes or {}) for event in span.events]}"
