"""What workers are scaled by and alerts ask for is what the SDK says of a worker that holds turns."""

from __future__ import annotations

import asyncio
import re
import socket
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from temporalio.client import Client

from infra.grafana.queries import IN_HAND
from retold.client import Host, plugins
from retold.client.runtime import core_runtime
from retold.contracts.disposition import Reason
from retold.contracts.turn import Durability
from retold.policy.recording import TurnRecorder
from retold.settings import WorkerSettings
from tests.cases import SERVED
from tests.integration.test_turn_workflow import ask, unique
from tests.scripted import DRAFT, Stack, Step, helpful, scripted
from worker import STICKY_POLLS, TURNS_A_PERMIT, turn_worker

RULES = Path(__file__).parents[2] / "infra" / "prometheus" / "rules" / "retold.yml"


class Watched:
    """A worker of a queue of its own, and what Prometheus would read from it."""

    def __init__(self, address: str, queue: str, host: Host) -> None:
        self.address, self.queue, self.host = address, queue, host

    def samples(self) -> list[Sample]:
        """Answered by a thread of the SDK's, in a millisecond."""
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=5) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        return [each for family in families for each in family.samples if each.labels.get("task_queue") == self.queue]

    def in_hand(self) -> float:
        """The query's own selector, applied by hand: only the queue is another one here."""
        wanted = re.fullmatch(r'(\w+)\{task_queue="retold-turns",worker_type=~"(.+)"\}', IN_HAND)
        assert wanted is not None
        name, types = wanted.groups()
        return sum(
            each.value
            for each in self.samples()
            if each.name == name and re.fullmatch(types, each.labels["worker_type"])
        )

    def free(self) -> float:
        (free,) = (
            each.value
            for each in self.samples()
            if each.name == "temporal_worker_task_slots_available" and each.labels["worker_type"] == "WorkflowWorker"
        )
        return free

    async def holds(self, turns: int) -> None:
        async with asyncio.timeout(20):
            while self.in_hand() != turns:
                await asyncio.sleep(0.02)


@asynccontextmanager
async def watched(client: Client, stack: Stack) -> AsyncIterator[Watched]:
    address, queue = f"127.0.0.1:{_free_port()}", f"turns-{uuid4()}"
    config = client.service_client.config
    mine = await Client.connect(config.target_host, plugins=plugins(), runtime=core_runtime(address))
    settings = WorkerSettings(concurrent_turns=1)
    async with turn_worker(mine, stack.bodies, TurnRecorder(stack.store), settings, task_queue=queue):
        yield Watched(address, queue, Host(client, task_queue=queue))


async def test_a_worker_that_sheds_has_more_turns_in_hand_than_may_have_memory_and_none_waits(client: Client) -> None:
    stack = scripted(SERVED.but(draft=Step(DRAFT, 1_500), admit=Step(helpful("r1"), 1_500)))
    async with watched(client, stack) as worker:
        asked = [asyncio.create_task(ask(worker.host, stack, unique(), Durability.TURN)) for _ in range(TURNS_A_PERMIT)]
        await worker.holds(TURNS_A_PERMIT)
        assert worker.free() == STICKY_POLLS, "idle sticky polls hold the rest, and are called free"
        await worker.holds(1)  # those above went out as drafts; the one with memory is still there
        results = await asyncio.gather(*asked)
        await worker.holds(0)
    assert sorted(result.reason for result in results) == [Reason.ADMITTED, Reason.OVERLOADED, Reason.OVERLOADED]


async def test_turns_in_stage_are_in_hand_by_their_stages(client: Client) -> None:
    stack = scripted(SERVED.but(draft=Step(DRAFT, 1_000)))
    async with watched(client, stack) as worker:
        asked = [asyncio.create_task(ask(worker.host, stack, unique(), Durability.STAGE)) for _ in range(3)]
        await worker.holds(3)
        await asyncio.gather(*asked)
        await worker.holds(0)
        names = {each.name for each in worker.samples()}
    how_long_turns_wait = set(re.findall(r'(temporal_\w+_bucket)\{task_queue="retold-turns"', RULES.read_text()))
    assert len(how_long_turns_wait) == 2, "workflow tasks, and activities"
    assert how_long_turns_wait <= names


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
