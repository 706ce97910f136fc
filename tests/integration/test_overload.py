"""More turns than a worker may give memory to: drafts go out, nobody waits, nothing is lost (issue 5.13)."""

from __future__ import annotations

import asyncio
from collections import Counter
from uuid import uuid4

from temporalio.client import Client
from temporalio.worker import Worker

from retold.client import Host
from retold.contracts.disposition import Disposition, Reason
from retold.contracts.turn import Durability
from retold.policy.recording import TurnRecorder
from retold.settings import WorkerSettings
from tests.cases import SERVED
from tests.integration.test_turn_workflow import ask, unique
from tests.scripted import DRAFT, GAP, Stack, Step, helpful, scripted
from worker import turn_worker


def turns_of(client: Client, stack: Stack, queue: str, concurrent_turns: int = 32) -> Worker:
    settings = WorkerSettings(concurrent_turns=concurrent_turns)
    return turn_worker(client, stack.bodies, TurnRecorder(stack.store), settings, task_queue=queue, sandboxed=True)


async def test_turns_above_those_with_memory_go_out_as_drafts_beside_them(client: Client) -> None:
    script = SERVED.but(draft=Step(DRAFT, 100), admit=Step(helpful("r1"), 1_500))
    stack, queue = scripted(script), f"turns-{uuid4()}"
    async with turns_of(client, stack, queue, concurrent_turns=1):
        host = Host(client, task_queue=queue)
        results = await asyncio.gather(*(ask(host, stack, unique(), Durability.TURN) for _ in range(3)))
    assert Counter(result.reason for result in results) == {Reason.ADMITTED: 1, Reason.OVERLOADED: 2}
    rows = [row.decision for row in stack.store.written.values()]
    assert len(rows) == 3
    assert max(row.late_by_ms for row in rows) < 1_500, "none waited for another one's judge"
    assert [call for call in stack.called.ports if call == "plan"] == ["plan"], "who has no permit asks no planner"


async def test_the_same_bound_holds_where_every_stage_is_durable_by_itself(client: Client) -> None:
    script = SERVED.but(plan=Step((GAP,), 1_500), draft=Step(DRAFT, 100))
    stack, queue = scripted(script), f"turns-{uuid4()}"
    async with turns_of(client, stack, queue, concurrent_turns=1):
        host = Host(client, task_queue=queue)
        together = await asyncio.gather(*(ask(host, stack, unique(), Durability.STAGE) for _ in range(3)))
        alone = await ask(host, stack, unique(), Durability.STAGE)
    assert Counter(result.reason for result in together) == {Reason.ADMITTED: 1, Reason.OVERLOADED: 2}
    assert alone.reason is Reason.ADMITTED


async def test_a_permit_is_given_back_however_its_turn_ends(client: Client) -> None:
    stack, queue = scripted(SERVED.but(plan=Step(OSError("away")))), f"turns-{uuid4()}"
    async with turns_of(client, stack, queue, concurrent_turns=1):
        host = Host(client, task_queue=queue)
        for durability in (Durability.TURN, Durability.STAGE) * 2:
            assert (await ask(host, stack, unique(), durability)).reason is Reason.PLANNER_ERROR


async def test_turns_that_waited_for_any_worker_are_shed_and_not_called_redelivered(client: Client) -> None:
    stack, queue = scripted(SERVED.with_config(shed_after_ms=200)), f"turns-{uuid4()}"
    host = Host(client, task_queue=queue)
    waiting = [
        asyncio.create_task(ask(host, stack, unique(), durability))
        for durability in (Durability.TURN, Durability.STAGE)
    ]
    await asyncio.sleep(2.5)  # longer than the task timeout, by which a repeated turn was once guessed
    async with turns_of(client, stack, queue):
        results = await asyncio.gather(*waiting)
        afterwards = await ask(host, stack, unique(), Durability.TURN)
    for result in results:
        assert (result.disposition, result.reason) == (Disposition.BASELINE_BUDGET_EXHAUSTED, Reason.OVERLOADED)
        assert (result.answer, result.redelivered) == (DRAFT, False)
    assert afterwards.reason is Reason.ADMITTED
