"""What a turn costs beside its stages: ours, the plain asyncio it is held against, what everyone writes, and peers.

Every contender runs the same five stages: draft and plan together, then retrieve, admit, regenerate. Rounds are
interleaved and each is compared with the floor of its own round. Retold's turns also read and write the product's
store and make its spans; the peers only persist what their runtimes persist.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.admission import AdmissionActivities
from activities.generation import GenerationActivities
from activities.late_records import LateRecordWorkflows
from activities.opening import OpeningActivities
from activities.planning import PlanningActivities
from activities.recording import RecordingActivities
from activities.retrieval import RetrievalActivities
from benchmarks.everyday_turn import EverydayTurnWorkflow
from benchmarks.measures import rotated
from benchmarks.peer_processes import running_peers
from benchmarks.ports import Pace, PacedRetriever, paced_bodies
from benchmarks.stack import TURNS_A_SESSION, Stack, answered, improved, serving
from retold.client import Host
from retold.contracts.turn import Durability, TurnResult
from retold.policy.blocking import BlockingPool
from retold.policy.orchestrator import UtilityAwareOrchestrator
from retold.policy.recording import TurnRecorder
from retold.policy.stages import TurnStageBodies

FLOOR = "asyncio floor"
IN_PROCESS = "Retold in process"
TURN, STAGE = "Retold, durability turn", "Retold, durability stage"
EVERYDAY = "what everyone writes"
BUDGET_MS = 3_000
"""Generous, so that deadlines are held and none of them cuts a stage off."""


class Contender(Protocol):
    async def round(self, stage_ms: float, turns: int) -> list[float]:
        """Run turns one after another; milliseconds of each, from sending it to having its answer."""


@dataclass
class Overhead:
    """Walls in milliseconds: by stage length, contender and round."""

    stage_ms: tuple[int, ...]
    walls: dict[int, dict[str, list[list[float]]]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


async def measure_overhead(
    contenders: Mapping[str, Contender],
    stage_ms: Mapping[int, int],
    rounds: int,
    progress: Callable[[str], None],
) -> Overhead:
    """Args:
    stage_ms: stage length in milliseconds -> turns a round.
    """
    found = Overhead(tuple(stage_ms))
    for name, contender in contenders.items():
        progress(f"warming up {name}")
        await contender.round(0, 8)
    for length, turns in stage_ms.items():
        found.walls[length] = {name: [] for name in contenders}
        for number in range(rounds):
            for name in rotated(list(contenders), number):
                progress(f"{length} ms stages, round {number + 1} of {rounds}: {name}")
                found.walls[length][name].append(await contenders[name].round(length, turns))
    return found


@asynccontextmanager
async def contenders(
    stack: Stack, peers_python: Path | None
) -> AsyncIterator[tuple[dict[str, Contender], dict[str, str]]]:
    """Everybody who takes part, by name, and the versions of the peers. Without peers when there is no interpreter."""
    pace, pool = Pace(), BlockingPool(max_threads=8, name="benchmark")
    bodies = paced_bodies(stack.store, stack.certificate, pace, PacedRetriever(pace, stack.stored), pool)
    client = await stack.client()
    async with AsyncExitStack() as exits:
        host = await exits.enter_async_context(serving(client, bodies, TurnRecorder(stack.store)))
        queue = await exits.enter_async_context(everyday_worker(client, bodies, TurnRecorder(stack.store)))
        everybody: dict[str, Contender] = {
            FLOOR: Floor(pace),
            IN_PROCESS: InProcess(stack, pace, bodies),
            TURN: ThroughTemporal(stack, pace, host, Durability.TURN),
            STAGE: ThroughTemporal(stack, pace, host, Durability.STAGE),
            EVERYDAY: Everyday(stack, pace, client, queue),
        }
        versions: dict[str, str] = {}
        if peers_python is not None:
            folder = stack.folder / "peers"
            folder.mkdir()
            peers = await exits.enter_async_context(running_peers(peers_python, folder))
            everybody.update(peers)
            versions = {name: found for peer in peers.values() for name, found in peer.versions.items()}
        yield everybody, versions
        pool.close()


@asynccontextmanager
async def everyday_worker(client: Client, bodies: TurnStageBodies, recorder: TurnRecorder) -> AsyncIterator[str]:
    """The everyday turn's worker, with the product's activities; its task queue."""
    queue = f"everyday-{uuid.uuid4()}"
    async with Worker(
        client,
        task_queue=queue,
        workflows=[EverydayTurnWorkflow],
        activities=[
            *OpeningActivities(bodies.open).get_activities(),
            *GenerationActivities(bodies.generate).get_activities(),
            *PlanningActivities(bodies.plan).get_activities(),
            *RetrievalActivities(bodies.retrieve).get_activities(),
            *AdmissionActivities(bodies.admit).get_activities(),
            *RecordingActivities(recorder, LateRecordWorkflows(client)).get_activities(),
        ],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        yield queue


class Floor:
    """The five stages and nothing else: no store, no spans, no decision."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    async def round(self, stage_ms: float, turns: int) -> list[float]:
        self._pace.stage_ms = stage_ms
        return [await _timed(self._turn()) for _ in range(turns)]

    async def _turn(self) -> None:
        pause = self._pace.pause
        await asyncio.gather(pause(), pause())
        for _ in ("retrieve", "admit", "regenerate"):
            await pause()


class InProcess:
    """The whole turn without Temporal: the algorithm, the store and the spans."""

    def __init__(self, stack: Stack, pace: Pace, bodies: TurnStageBodies) -> None:
        self._stack, self._pace = stack, pace
        self._driver = UtilityAwareOrchestrator(bodies, TurnRecorder(stack.store))

    async def round(self, stage_ms: float, turns: int) -> list[float]:
        self._pace.stage_ms, run = stage_ms, str(uuid.uuid4())
        return [await _timed(self._turn(run, number)) for number in range(turns)]

    async def _turn(self, run: str, number: int) -> None:
        asked = self._stack.request(run, number // TURNS_A_SESSION, number, Durability.TURN, BUDGET_MS)
        done = await self._driver.prepare_turn(
            asked.principal, asked.session_id, asked.turn_id, asked.text, options=asked.options
        )
        improved(done.result)


class ThroughTemporal:
    """The product: a host's call to the answer it gets."""

    def __init__(self, stack: Stack, pace: Pace, host: Host, durability: Durability) -> None:
        self._stack, self._pace, self._host, self._durability = stack, pace, host, durability

    async def round(self, stage_ms: float, turns: int) -> list[float]:
        self._pace.stage_ms, run = stage_ms, str(uuid.uuid4())
        return [await _timed(self._turn(run, number)) for number in range(turns)]

    async def _turn(self, run: str, number: int) -> None:
        improved(
            await answered(
                self._host, self._stack.request(run, number // TURNS_A_SESSION, number, self._durability, BUDGET_MS)
            )
        )


class Everyday:
    def __init__(self, stack: Stack, pace: Pace, client: Client, queue: str) -> None:
        self._stack, self._pace, self._client, self._queue = stack, pace, client, queue

    async def round(self, stage_ms: float, turns: int) -> list[float]:
        self._pace.stage_ms, run = stage_ms, str(uuid.uuid4())
        return [await _timed(self.turn(f"everyday/{run}/{number}", run, number)) for number in range(turns)]

    async def turn(self, workflow_id: str, run: str, number: int) -> None:
        request = self._stack.request(run, number // TURNS_A_SESSION, number, Durability.STAGE, BUDGET_MS)
        result: TurnResult = await self._client.execute_workflow(
            EverydayTurnWorkflow.run,
            request,
            id=workflow_id,
            task_queue=self._queue,
            execution_timeout=timedelta(seconds=60),
            request_eager_start=True,
        )
        improved(result)


async def _timed(turn: Awaitable[None]) -> float:
    started = time.perf_counter()
    await turn
    return (time.perf_counter() - started) * 1000
