"""The worker under load: the product's turn worker, store and retrieval, with models that are only long.

    python -m benchmarks.load_worker ORDERS      # ORDERS: `Orders` as JSON

How long a model takes is drawn anew for every call from a log-normal distribution: most calls are near the median, and
a few take several times as long, as served models do. It says `ready` on stdout once it polls, and stops politely on
SIGTERM or when its stdin ends.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field
from temporalio.client import Client
from temporalio.service import GrpcCompression

from benchmarks.ports import ANSWER, development_certificate, first_admitted, one_gap, stage_bodies
from retold.client import plugins
from retold.client.runtime import core_runtime
from retold.client.tracing import install_tracing
from retold.contracts._base import Contract
from retold.contracts.record import MemoryRecord
from retold.ending import end_process
from retold.index.edge import EdgeIndex
from retold.index.indexer import Indexer, OneIndex
from retold.models.embedding.hashing import HashingEmbedder
from retold.policy.blocking import BlockingPool
from retold.policy.ports import AdmissionDecision, GapDecision, Generation, Message
from retold.policy.prompts import ChatPrompt
from retold.policy.recording import TurnRecorder
from retold.retrieval.pipeline import Retriever
from retold.settings import WorkerSettings
from retold.store.engine import open_engine
from retold.store.store import Store
from worker import keep_what_is_loaded, turn_worker

READY = b"ready\n"
MEMORY = "<memory-"


class Length(Contract):
    """Of one kind of model call."""

    median_ms: Annotated[float, Field(ge=0)]
    spread: Annotated[float, Field(ge=0, le=2)] = 0.4
    """Sigma of the logarithm: with 0.4 one call in twenty takes twice the median."""

    def drawn(self, chance: random.Random) -> float:
        """Seconds."""
        return self.median_ms / 1000 * math.exp(self.spread * chance.gauss(0, 1))


class Lengths(Contract):
    draft: Length = Length(median_ms=250)
    plan: Length = Length(median_ms=150)
    judge: Length = Length(median_ms=100)
    regenerate: Length = Length(median_ms=250)

    @property
    def whole_turn_ms(self) -> float:
        """Of medians: a turn that goes through all stages, with nothing but its models."""
        together = max(self.draft.median_ms, self.plan.median_ms)
        return together + self.judge.median_ms + self.regenerate.median_ms


class Orders(Contract):
    address: str
    task_queue: str
    folder: Path
    store_url: str
    lengths: Lengths = Lengths()
    settings: WorkerSettings = WorkerSettings(graceful_shutdown_s=5)
    seed: int = 1


@dataclass(frozen=True)
class LongModels:
    """Serving model, planner and judge: each call takes its time and no processor."""

    lengths: Lengths
    chance: random.Random
    identity: str = "load-model"
    style: ChatPrompt = field(default_factory=ChatPrompt)

    async def generate(self, messages: Sequence[Message]) -> Generation:
        improving = MEMORY in messages[0].content
        await self._pass(self.lengths.regenerate if improving else self.lengths.draft)
        return Generation(text=ANSWER, model=self.identity, prompt_tokens=200, completion_tokens=100)

    async def plan(self, *asked: object) -> GapDecision:
        await self._pass(self.lengths.plan)
        return one_gap()

    async def admit(
        self, turn: str, context: object, profile: object, draft: str, candidates: Sequence[MemoryRecord]
    ) -> AdmissionDecision:
        await self._pass(self.lengths.judge)
        return first_admitted(candidates)

    async def _pass(self, length: Length) -> None:
        await asyncio.sleep(length.drawn(self.chance))


async def serve(orders: Orders) -> None:
    """Poll until SIGTERM."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    threading.Thread(target=_until_stdin_ends, args=(lambda: loop.call_soon_threadsafe(stop.set),), daemon=True).start()
    store, pool = Store(open_engine(orders.store_url)), BlockingPool(max_threads=8, name="load")
    embedder, index = HashingEmbedder(), EdgeIndex(orders.folder / "index")
    models = LongModels(orders.lengths, random.Random(orders.seed))
    with install_tracing("retold-load"):
        await index.ensure(embedder.identity)
        await Indexer(store, OneIndex(index, embedder)).drain(256)
        client = await Client.connect(
            orders.address, plugins=plugins(), runtime=core_runtime(), grpc_compression=GrpcCompression.NONE
        )
        bodies = stage_bodies(
            store,
            await development_certificate(store),
            model=models,
            planner=models,
            retriever=Retriever(index, embedder, store),
            judge=models,
            pool=pool,
        )
        keep_what_is_loaded()
        async with turn_worker(client, bodies, TurnRecorder(store), orders.settings, task_queue=orders.task_queue):
            os.write(sys.stdout.fileno(), READY)
            await stop.wait()
    pool.close()
    await index.aclose()
    await store.close()


def _until_stdin_ends(then: object) -> None:
    """Whoever started us is gone, or wants us gone."""
    while os.read(sys.stdin.fileno(), 64):
        pass
    assert callable(then)
    then()


def resident_mb(pid: int, proc: Path = Path("/proc")) -> float:
    """Memory of a running process, in megabytes; where there is no /proc, 0."""
    status = proc / str(pid) / "status"
    if not status.exists():
        return 0.0
    fields: Mapping[str, str] = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    return int(fields["VmRSS"].split()[0]) / 1024


if __name__ == "__main__":
    asyncio.run(serve(Orders.model_validate_json(sys.argv[1])))
    end_process(0)
