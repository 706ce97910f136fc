"""What a turn costs the server: calls and history events, counted from the SDK's own request metrics.

Counted are all calls the SDK made while turns ran one after another, client and worker together (`request` and
`long_request` of its metrics, by operation). Left out are polls that came back empty, and what a worker does whether
or not there are turns.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from temporalio.client import Client
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig

from benchmarks.ports import Pace, PacedRetriever, paced_bodies
from benchmarks.stack import TURNS_A_SESSION, Stack, answered, improved, serving
from benchmarks.turn_overhead import BUDGET_MS, EVERYDAY, STAGE, TURN, Everyday, everyday_worker
from retold.contracts.identity import turn_workflow_id
from retold.contracts.turn import Durability
from retold.policy.blocking import BlockingPool
from retold.policy.recording import TurnRecorder

REGARDLESS_OF_TURNS = frozenset({"DescribeNamespace", "GetSystemInfo", "RecordWorkerHeartbeat", "ShutdownWorker"})
EMPTY_POLLS = {
    "workflow_task_queue_poll_empty": "PollWorkflowTaskQueue",
    "activity_poll_no_task": "PollActivityTaskQueue",
}
POLLS = frozenset(EMPTY_POLLS.values())
REQUESTS = frozenset({"request", "long_request"})
STAGE_MS = 50.0


@dataclass(frozen=True)
class ServerCost:
    """Means over `turns` turns."""

    turns: int
    calls: dict[str, float]
    events: float
    least_events: int
    """Of the turn with the fewest: where draft and plan end together, chance decides if a deadline is started."""

    @property
    def round_trips(self) -> float:
        return sum(self.calls.values())


async def count_round_trips(stack: Stack, turns: int, progress: Callable[[str], None]) -> dict[str, ServerCost]:
    """By contender: the two durabilities, and what everyone writes. 50 ms stages."""
    buffer = MetricBuffer(200_000)
    runtime = Runtime(telemetry=TelemetryConfig(metrics=buffer))
    client = await stack.client(runtime=runtime)
    pace, pool = Pace(STAGE_MS), BlockingPool(max_threads=8, name="benchmark")
    bodies = paced_bodies(stack.store, stack.certificate, pace, PacedRetriever(pace, stack.stored), pool)
    counted: dict[str, ServerCost] = {}
    async with serving(client, bodies, TurnRecorder(stack.store)) as host:
        for name, durability in ((TURN, Durability.TURN), (STAGE, Durability.STAGE)):
            progress(f"counting calls and events: {name}")

            async def turn(run: str, number: int, durability: Durability = durability) -> str:
                asked = stack.request(run, number // TURNS_A_SESSION, number, durability, BUDGET_MS)
                improved(await answered(host, asked))
                return turn_workflow_id(asked.principal, asked.session_id, asked.turn_id)

            counted[name] = await _counted(client, buffer, turns, turn)
    async with everyday_worker(client, bodies, TurnRecorder(stack.store)) as queue:
        progress(f"counting calls and events: {EVERYDAY}")
        everyday = Everyday(stack, pace, client, queue)

        async def everyday_turn(run: str, number: int) -> str:
            workflow_id = f"everyday/{run}/{number}"
            await everyday.turn(workflow_id, run, number)
            return workflow_id

        counted[EVERYDAY] = await _counted(client, buffer, turns, everyday_turn)
    pool.close()
    return counted


async def _counted(
    client: Client, buffer: MetricBuffer, turns: int, turn: Callable[[str, int], Awaitable[str]]
) -> ServerCost:
    run = str(uuid.uuid4())
    for number in range(3):
        await turn(f"{run}-warm-up", number)
    await asyncio.sleep(0.2)
    _calls(buffer)
    ids = [await turn(run, number) for number in range(turns)]
    await asyncio.sleep(0.2)
    calls = _calls(buffer)
    histories = [await client.get_workflow_handle(workflow_id).fetch_history() for workflow_id in ids]
    return ServerCost(
        turns=turns,
        calls={operation: count / turns for operation, count in sorted(calls.items())},
        events=sum(len(history.events) for history in histories) / turns,
        least_events=min(len(history.events) for history in histories),
    )


def _calls(buffer: MetricBuffer) -> Counter[str]:
    """Calls by operation since the last time, without those that no turn caused."""
    calls: Counter[str] = Counter()
    for update in buffer.retrieve_updates():
        name = update.metric.name.removeprefix("temporal_").removesuffix("_total")
        if name in REQUESTS:
            operation = str(update.attributes["operation"])
            if operation not in REGARDLESS_OF_TURNS:
                calls[operation] += int(update.value)
        elif name in EMPTY_POLLS:
            calls[EMPTY_POLLS[name]] -= int(update.value)
    return Counter({operation: count for operation, count in calls.items() if count > 0})
