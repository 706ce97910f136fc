"""A worker to be killed: the real turn worker over the real SQL store, with ports that take as long as they are told.

    python -m benchmarks.crash_worker ORDERS     # ORDERS: `Orders` as JSON

It connects, says `ready` on stdout, polls from the line `serve` on stdin, and stops politely on SIGTERM, as
`worker.py` does. When its stdin ends, whoever started it is gone: it ends at once, so that no rig leaves one behind.
Every execution of a port is a line in the execution log before anything else happens, so kill -9 loses none.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from temporalio.client import Client

from retold.client import plugins
from retold.client.runtime import core_runtime
from retold.client.tracing import install_tracing
from retold.contracts._base import Contract
from retold.contracts.config import AdmissionMode, UtilityAwareConfig
from retold.contracts.decision import TurnRecord
from retold.contracts.record import MemoryRecord
from retold.contracts.stages import Candidate, ProfileBlock, ProposedGap, ProposedVerdict, SearchEntry, StoredAnswer
from retold.contracts.turn import Principal
from retold.ending import end_process
from retold.policy.blocking import BlockingPool
from retold.policy.bundles import BundleRegistry, bundle_components, certify
from retold.policy.ports import (
    AdmissionDecision,
    GapDecision,
    Generation,
    Message,
    OpenedSession,
    SearchRequest,
    SearchResponse,
)
from retold.policy.profile import ProfileAssembler
from retold.policy.recording import TurnRecorder
from retold.policy.stages import AdmitStage, GenerateStages, OpenStage, PlanStage, RetrieveStage, TurnStageBodies
from retold.settings import WorkerSettings
from retold.store.engine import open_engine
from retold.store.store import Store
from worker import turn_worker

READY, SERVE = b"ready\n", b"serve\n"
STAGES = ("open", "draft", "plan", "retrieve", "admit", "regenerate", "record")
MEMORY = "memory:"

CONFIG = UtilityAwareConfig(
    gap_enabled=True,
    admission_mode=AdmissionMode.LOCAL_JUDGE,
    shadow=False,
    profile_timeout_ms=1_500,  # the opening is slow on purpose, so that it can be killed
    shed_after_ms=None,  # what waits here waits for the dead
)


class Orders(Contract):
    address: str
    task_queue: str
    store_url: str
    executions: Path
    """The log all workers of a rig append to."""
    takes_ms: dict[str, int] = {}
    """How long the port behind each stage takes; unnamed stages answer at once."""


@dataclass(frozen=True)
class Executions:
    """Says that a stage began, then takes the time ordered."""

    log: int
    takes_ms: Mapping[str, int]

    async def take(self, stage: str) -> None:
        # One short append: whole or not at all, and in the page cache when the process is killed right after.
        os.write(self.log, f"{time.time():.6f} {os.getpid()} {stage}\n".encode())
        await asyncio.sleep(self.takes_ms.get(stage, 0) / 1000)


class SlowStore(Store):
    """The SQL store, slow where a turn begins and where it is recorded."""

    def __init__(self, url: str, executions: Executions) -> None:
        super().__init__(open_engine(url))
        self._executions = executions

    async def open_turn(
        self, principal: Principal, session_id: str, decision_id: str, at: datetime, *, want_inventory: bool
    ) -> OpenedSession:
        await self._executions.take("open")
        return await super().open_turn(principal, session_id, decision_id, at, want_inventory=want_inventory)

    async def record_turn(self, record: TurnRecord) -> StoredAnswer | None:
        await self._executions.take("record")
        return await super().record_turn(record)


class SlowModel:
    """Names the process that answered, so that an answer shows which of its stages were done again."""

    identity = "crash-model"

    class style:
        version = "crash-prompt"

        @staticmethod
        def render(
            turn: str,
            public_context: str | None,
            profile: ProfileBlock,
            admitted: Sequence[MemoryRecord],
            delimiter: str,
        ) -> tuple[Message, ...]:
            return (Message(role="user", content=(MEMORY if admitted else "") + turn),)

    def __init__(self, executions: Executions) -> None:
        self._executions = executions

    async def generate(self, messages: Sequence[Message]) -> Generation:
        improving = messages[0].content.startswith(MEMORY)
        await self._executions.take("regenerate" if improving else "draft")
        text = f"{'improved' if improving else 'drafted'} by {os.getpid()}"
        return Generation(text=text, model=self.identity)


@dataclass(frozen=True)
class SlowPlanner:
    executions: Executions

    async def plan(self, *_asked: Any) -> GapDecision:
        await self.executions.take("plan")
        return GapDecision(gaps=(ProposedGap(category="constraint", query="what the user may not eat"),))


@dataclass(frozen=True)
class SlowRetriever:
    executions: Executions
    store: Store

    async def search(self, asked: SearchRequest) -> SearchResponse:
        await self.executions.take("retrieve")
        refs = tuple(record.ref for record in await self.store.records(asked.principal))
        searches = tuple(
            SearchEntry(search_id=f"{asked.decision_id}/{index}", gap_index=index, query=gap.query, kept=refs)
            for index, gap in enumerate(asked.gaps)
        )
        return SearchResponse(
            candidates=tuple(Candidate(ref=ref, score=1.0, gaps=(0,)) for ref in refs), searches=searches
        )


@dataclass(frozen=True)
class SlowJudge:
    executions: Executions

    async def admit(
        self,
        turn: str,
        public_context: str | None,
        ambient_profile: ProfileBlock,
        draft: str,
        candidates: Sequence[MemoryRecord],
    ) -> AdmissionDecision:
        await self.executions.take("admit")
        ids = tuple(record.id for record in candidates)
        return AdmissionDecision(admitted=ids, verdicts=tuple(ProposedVerdict(id=id, verdict="helpful") for id in ids))


async def slow_bodies(store: SlowStore, executions: Executions, pool: BlockingPool) -> TurnStageBodies:
    registry, components = BundleRegistry(store), bundle_components(CONFIG)
    await registry.approve_for_development(components, reason="its crashes are measured", recorded_by="crash worker")
    certificate = await certify(CONFIG, components, registry)
    return TurnStageBodies(
        open=OpenStage(certificate=certificate, store=store, profiles=ProfileAssembler(store)),
        generate=GenerateStages(model=SlowModel(executions), store=store),
        plan=PlanStage(policy=SlowPlanner(executions), pool=pool),
        retrieve=RetrieveStage(retriever=SlowRetriever(executions, store)),
        admit=AdmitStage(policy=SlowJudge(executions), store=store, pool=pool),
    )


async def serve(orders: Orders) -> None:
    """Connect, wait to be told, then poll until SIGTERM; turns in hand are finished or handed over."""
    loop = asyncio.get_running_loop()
    told, stop = asyncio.Event(), asyncio.Event()

    def stop_politely() -> None:
        stop.set()
        told.set()  # also when it never was

    loop.add_signal_handler(signal.SIGTERM, stop_politely)
    threading.Thread(target=_obey, args=(lambda: loop.call_soon_threadsafe(told.set),), daemon=True).start()
    log = os.open(orders.executions, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    executions = Executions(log, orders.takes_ms)
    store, pool = SlowStore(orders.store_url, executions), BlockingPool(max_threads=4, name="policy")
    with install_tracing("crash-worker"):
        client = await Client.connect(orders.address, plugins=plugins(), runtime=core_runtime())
        bodies, recorder = await slow_bodies(store, executions, pool), TurnRecorder(store)
        worker = turn_worker(client, bodies, recorder, WorkerSettings(), task_queue=orders.task_queue)
        os.write(sys.stdout.fileno(), READY)
        await told.wait()
        async with worker:
            await stop.wait()
    pool.close()
    await store.close()


def _obey(told: Callable[[], object]) -> None:
    """On a thread of its own: stdin may stay silent for as long as the rig likes.

    Read past Python's buffer, whose lock a thread blocked in it would take into the interpreter's end.
    """
    while line := os.read(sys.stdin.fileno(), len(SERVE)):
        if line == SERVE:
            told()
    os._exit(1)


if __name__ == "__main__":
    asyncio.run(serve(Orders.model_validate_json(sys.argv[1])))
    end_process(0)
