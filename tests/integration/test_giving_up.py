"""A host that gives up a turn, and turns whose task is handed out twice: host and log never know different answers."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from temporalio.activity import ActivityCancellationDetails
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment

from activities.answering import AnsweringActivities
from activities.late_records import LateRecordWorkflows
from retold.client import Principal, TurnCancelledError
from retold.contracts.answering import AnswerInput
from retold.contracts.decision import TurnRecord
from retold.contracts.disposition import Disposition, Reason
from retold.contracts.identity import turn_workflow_id
from retold.contracts.stages import DraftInput, DraftResult, StoredAnswer
from retold.contracts.turn import Durability, TurnOptions
from retold.policy.driver import TurnStart
from retold.policy.in_process import InProcessStages
from retold.policy.permits import MemoryPermits
from retold.policy.recording import TurnRecorder
from retold.policy.stages import GenerateStages
from retold.policy.utility_aware import run_turn
from tests.cases import SERVED
from tests.integration.test_turn_workflow import BOTH, ask, assert_replays, serving, unique
from tests.scripted import DRAFT, FINAL, NEVER_MS, NOW, Script, Step, request, scripted


@pytest.mark.parametrize(
    ("hanging", "durability"),
    [
        *((stage, Durability.STAGE) for stage in ("draft", "plan", "admit", "regenerate")),
        # Heard only when the server has its task back for a moment, after most of the task timeout.
        *((stage, Durability.TURN) for stage in ("draft", "regenerate")),
    ],
)
async def test_cancellation_by_the_host_is_recorded(client: Client, hanging: str, durability: Durability) -> None:
    stack, principal = scripted(SERVED.but(**{hanging: Step(None, NEVER_MS)})), unique()
    async with serving(client, stack) as host:
        turn = asyncio.create_task(ask(host, stack, principal, durability))
        while hanging not in stack.called.ports:
            await asyncio.sleep(0.02)
        await host.cancel(principal, "s1", "t1")
        with pytest.raises(TurnCancelledError):
            await turn
        assert (stack.decision.disposition, stack.decision.reason) == (Disposition.CANCELLED, Reason.BY_HOST)
        await assert_replays(client.get_workflow_handle(turn_workflow_id(principal, "s1", "t1")))


@BOTH
@pytest.mark.parametrize("record_ms", [200, 600], ids=["the store is slow", "slower than it is waited for"])
async def test_giving_up_while_the_turn_is_recorded_comes_too_late(
    client: Client, durability: Durability, record_ms: int
) -> None:
    stack, principal = scripted(SERVED.but(record=Step(None, record_ms))), unique()
    async with serving(client, stack) as host:
        turn = asyncio.create_task(ask(host, stack, principal, durability))
        while not stack.store.attempts:
            await asyncio.sleep(0.01)
        await host.cancel(principal, "s1", "t1")
        result = await turn
        assert (result.answer, result.disposition) == (FINAL, Disposition.REGENERATED)
        async with asyncio.timeout(20):
            while not stack.store.written:
                await asyncio.sleep(0.05)
        assert stack.decision.disposition is Disposition.REGENERATED
        await assert_replays(client.get_workflow_handle(turn_workflow_id(principal, "s1", "t1")))


@pytest.mark.parametrize("worker_is_going", [False, True])
async def test_only_a_host_can_give_up_a_turn_a_worker_that_goes_leaves_it_to_the_next(worker_is_going: bool) -> None:
    script = SERVED.but(draft=Step(DRAFT, 300), options=TurnOptions(durability=Durability.TURN))
    stack = scripted(script)
    asked = AnswerInput(request=request(script), start=TurnStart(started_at=NOW))
    environment = ActivityEnvironment()
    answering = AnsweringActivities(
        stack.bodies, TurnRecorder(stack.store), later=NobodyTakes(), permits=MemoryPermits(1)
    )
    turn = asyncio.create_task(environment.run(answering.answer_turn, asked))
    while "draft" not in stack.called.ports:
        await asyncio.sleep(0.01)
    environment.cancel(
        ActivityCancellationDetails(cancel_requested=not worker_is_going, worker_shutdown=worker_is_going)
    )
    if worker_is_going:
        with pytest.raises(asyncio.CancelledError):
            await turn
        while not stack.store.written:
            await asyncio.sleep(0.01)
        assert stack.decision.disposition is Disposition.REGENERATED, "what it still records is nothing but the truth"
    else:
        assert (await turn).given_up
        assert stack.decision.disposition is Disposition.CANCELLED


@pytest.mark.parametrize("steps", range(8))
async def test_a_permit_that_comes_free_as_its_turn_fails_is_not_kept_by_the_plan_it_leaves_behind(steps: int) -> None:
    """In whichever step of the failing turn."""
    script = SERVED.but(options=TurnOptions(durability=Durability.TURN))
    stack, permits = scripted(script), MemoryPermits(1)
    broken = asyncio.get_running_loop().create_future()
    generate = stack.bodies.generate
    bodies = replace(stack.bodies, generate=DraftsNever(model=generate.model, store=generate.store, until=broken))
    answering = AnsweringActivities(bodies, TurnRecorder(stack.store), later=NobodyTakes(), permits=permits)
    never = asyncio.get_running_loop().create_future()
    assert await permits.taken(before=never)
    asked = AnswerInput(request=request(script), start=TurnStart(started_at=NOW))
    turn = asyncio.create_task(ActivityEnvironment().run(answering.answer_turn, asked))
    await asyncio.sleep(0.05)
    broken.set_exception(RuntimeError("a mistake of ours"))
    for _ in range(steps):
        await asyncio.sleep(0)
    permits.give_back()
    assert (await turn).failure is not None
    async with asyncio.timeout(1):
        assert await permits.taken(before=never)


@dataclass(frozen=True, kw_only=True)
class DraftsNever(GenerateStages):
    until: asyncio.Future[DraftResult]

    async def draft(self, stage: DraftInput) -> DraftResult:
        return await self.until


class NobodyTakes:
    async def take(self, record: TurnRecord) -> StoredAnswer | None:
        raise AssertionError("the store is quick here")


async def _recorded(script: Script, principal: Principal) -> TurnRecord:
    """The record of a turn played in this process."""
    stack = scripted(script)
    stages = InProcessStages(stack.bodies, TurnRecorder(stack.store).try_record)
    start = TurnStart(started_at=stages.utc_now(), given_up=script.draft.answer is None)
    with contextlib.suppress(asyncio.CancelledError):
        await run_turn(request(script, principal=principal), start, stages)
    (record,) = stack.store.written.values()
    return record


async def test_a_repeated_attempt_meets_what_was_handed_over_before(client: Client) -> None:
    principal = unique()
    cancelled = await _recorded(SERVED.but(draft=Step(None)), principal)
    plain = await _recorded(SERVED.but(plan=Step(())), principal)
    improved = await _recorded(SERVED, principal)
    run = f"run-{principal.tenant}"
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, workflow_run_id=run, task_queue="nobody-listens-here")
    later = LateRecordWorkflows(client)

    async def take(record: TurnRecord) -> StoredAnswer | None:
        taken: StoredAnswer | None = await environment.run(later.take, record)
        return taken

    assert await take(cancelled) is None
    assert await take(plain) is None, "an answer is taken beside a record without one"
    for record in (improved, plain, cancelled):
        earlier = await take(record)
        assert earlier is not None
        assert (earlier.result["answer"], earlier.request_digest) == (DRAFT, plain.decision.request_digest)
    for id in (f"record/{run}", f"record/{run}/1"):
        described = await client.get_workflow_handle(id).describe()
        assert described.raw_description.workflow_execution_info.execution_time.ToDatetime() > (
            described.start_time.replace(tzinfo=None) + timedelta(milliseconds=500)
        ), "not before the workers have answered their turns"
        await client.get_workflow_handle(id).terminate()
