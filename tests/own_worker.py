"""A host's own worker by script, and the service it works for: what tests of host-owned generation stand on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import uuid4

from temporalio import activity
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

from activities.heartbeat import heartbeating
from retold.client import Host, HostGeneration, Principal, TurnResult
from retold.contracts.decision import TurnDecision
from retold.contracts.identity import turn_workflow_id
from tests.integration.test_turn_workflow import serving, unique
from tests.scripted import DRAFT, FINAL, Script, Stack, Step, scripted

BOUND_S = 10
"""Separates a turn that ends on its own terms from one that waits for the defaults, 30 s a generation."""

Json = dict[str, Any]


@dataclass
class OwnWorker:
    """A host's activities: plain JSON in, whatever the test says out."""

    draft: Callable[[], Awaitable[Any]] = Step({"text": DRAFT}).play
    regenerate: Callable[[], Awaitable[Any]] = Step({"text": FINAL}).play
    asked: dict[str, list[Json]] = field(default_factory=dict)
    given_up: asyncio.Event = field(default_factory=asyncio.Event)

    @activity.defn(name="generate_draft")
    async def serve_draft(self, asked: Json) -> Any:
        return await self._play("draft", asked, self.draft)

    @activity.defn(name="regenerate")
    async def serve_regenerate(self, asked: Json) -> Any:
        return await self._play("regenerate", asked, self.regenerate)

    async def _play(self, stage: str, asked: Json, play: Callable[[], Awaitable[Any]]) -> Any:
        self.asked.setdefault(stage, []).append(asked)
        try:
            async with heartbeating():
                return await play()
        except asyncio.CancelledError:
            self.given_up.set()
            raise


async def vanish() -> None:
    """What a server sees of a host that dies in mid-call: the call was taken, and then nothing, no heartbeat either."""
    activity.raise_complete_async()


@asynccontextmanager
async def polling(client: Client, queue: str, activities: Sequence[Callable[..., Any]]) -> AsyncIterator[None]:
    """A worker with the SDK's own JSON converter: what Retold's client and worker are configured with is not here."""
    plain = await Client.connect(client.service_client.config.target_host, namespace=client.namespace)
    beat = timedelta(milliseconds=100)
    async with Worker(
        plain,
        task_queue=queue,
        activities=activities,
        max_heartbeat_throttle_interval=beat,
        default_heartbeat_throttle_interval=beat,
    ):
        yield


@dataclass
class Deployment:
    """A scripted stack and a queue for a host's worker, with the one principal of a test."""

    client: Client
    stack: Stack
    host: Host
    queue: str
    principal: Principal = field(default_factory=unique)

    async def ask(self, *, pickup_timeout_ms: int = 5_000, heartbeat_timeout_ms: int | None = None) -> TurnResult:
        generation = HostGeneration(
            task_queue=self.queue, pickup_timeout_ms=pickup_timeout_ms, heartbeat_timeout_ms=heartbeat_timeout_ms
        )
        async with asyncio.timeout(BOUND_S):
            result = await self.host.turn(
                self.principal,
                "s1",
                "t1",
                "what can I eat?",
                public_context="a menu",
                budget_ms=self.stack.script.options.latency_budget_ms,
                host_generation=generation,
            )
        assert isinstance(result, TurnResult)
        return result

    @property
    def decision(self) -> TurnDecision:
        return self.stack.decision

    @property
    def handle(self) -> Any:
        return self.client.get_workflow_handle(turn_workflow_id(self.principal, "s1", "t1"))

    async def started(self, name: str) -> None:
        """Wait until some worker has this activity in hand."""
        async with asyncio.timeout(BOUND_S):
            while True:
                with contextlib.suppress(RPCError):  # the turn itself may not have started yet
                    for pending in (await self.handle.describe()).raw_description.pending_activities:
                        if (pending.activity_type.name, pending.state) == (
                            name,
                            PendingActivityState.PENDING_ACTIVITY_STATE_STARTED,
                        ):
                            return
                await asyncio.sleep(0.02)


@asynccontextmanager
async def deployed(client: Client, script: Script, own: OwnWorker | None = None) -> AsyncIterator[Deployment]:
    """The service by script, and the host's worker unless there is none."""
    stack, queue = scripted(script), f"own-{uuid4()}"
    async with contextlib.AsyncExitStack() as running:
        host = await running.enter_async_context(serving(client, stack))
        if own is not None:
            await running.enter_async_context(polling(client, queue, [own.serve_draft, own.serve_regenerate]))
        yield Deployment(client, stack, host, queue)
