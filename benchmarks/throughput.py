"""Turns a second with everything on this machine's cores: server, worker, host, store, index, spans.

A closed loop: as many hosts' calls as the concurrency says, each sending its next turn when it has its answer. Stages
take no time of their own, so what is measured is the machinery; retrieval is the product's, on the embedded index.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from temporalio.service import RPCError

from benchmarks.ports import Pace, paced_bodies
from benchmarks.stack import TURNS_A_SESSION, Stack, answered, serving
from retold.client import Host, UnreachableError
from retold.contracts.disposition import Disposition
from retold.contracts.turn import Durability
from retold.index.edge import EdgeIndex
from retold.index.indexer import Indexer, OneIndex
from retold.models.embedding.hashing import HashingEmbedder
from retold.policy.blocking import BlockingPool
from retold.policy.recording import TurnRecorder
from retold.retrieval.pipeline import Retriever

CONCURRENCIES = (8, 32, 128)
RAMP_S = 0.5
"""Over which the loops begin: all at once would be a test of the first second."""


@dataclass(frozen=True)
class Throughput:
    walls_ms: Sequence[float]
    """Of the turns that went through all five stages; only they count."""
    cut_short: int
    """Turns that overload kept from a stage: answered with their draft."""
    unreached: int
    """Turns that Temporal did not accept in time: the host's call failed and was not repeated."""
    recorded_late: int
    """Turns whose record was left to a workflow of its own, because the store did not take it in time."""
    elapsed_s: float
    cpu_s: float
    """Of this process: host, worker, store and index together; the server's is not in it."""

    @property
    def turns_per_s(self) -> float:
        return len(self.walls_ms) / self.elapsed_s

    @property
    def cpu_ms_a_turn(self) -> float:
        return self.cpu_s * 1000 / (len(self.walls_ms) + self.cut_short)


async def measure_throughput(stack: Stack, seconds: float, progress: Callable[[str], None]) -> dict[int, Throughput]:
    """By concurrency, in durability `turn`. The embedder hashes words: model time is measured with retrieval."""
    found: dict[int, Throughput] = {}
    async with _whole_turns(stack) as host:
        for concurrency in CONCURRENCIES:
            progress(f"{concurrency} turns in flight")
            await _loop(stack, host, concurrency, seconds / 4)
            found[concurrency] = await _loop(stack, host, concurrency, seconds)
    return found


@asynccontextmanager
async def _whole_turns(stack: Stack) -> AsyncIterator[Host]:
    embedder, index = HashingEmbedder(), EdgeIndex(stack.folder / "index")
    pool = BlockingPool(max_threads=8, name="benchmark")
    try:
        await index.ensure(embedder.identity)
        await Indexer(stack.store, OneIndex(index, embedder)).drain(256)
        bodies = paced_bodies(stack.store, stack.certificate, Pace(), Retriever(index, embedder, stack.store), pool)
        async with serving(await stack.client(), bodies, TurnRecorder(stack.store)) as host:
            yield host
    finally:
        pool.close()
        await index.aclose()


async def _loop(stack: Stack, host: Host, concurrency: int, seconds: float) -> Throughput:
    run = str(uuid.uuid4())
    walls_ms: list[float] = []
    cut_short = unreached = recorded_late = 0
    started, cpu = time.perf_counter(), time.process_time()
    until = started + seconds

    async def one_after_another(lane: int) -> None:
        nonlocal cut_short, unreached, recorded_late
        await asyncio.sleep(RAMP_S * lane / concurrency)
        for number in itertools.count():
            if (sent := time.perf_counter()) >= until:
                break
            conversation = lane + concurrency * (number // TURNS_A_SESSION)
            try:
                result = await answered(host, stack.request(run, conversation, number, Durability.TURN, None))
            except (RPCError, UnreachableError):
                unreached += 1
                continue
            recorded_late += not result.recorded
            if result.disposition is Disposition.REGENERATED:
                walls_ms.append((time.perf_counter() - sent) * 1000)
            else:
                cut_short += 1

    async with asyncio.TaskGroup() as group:
        for lane in range(concurrency):
            group.create_task(one_after_another(lane))
    elapsed_s = time.perf_counter() - started
    return Throughput(walls_ms, cut_short, unreached, recorded_late, elapsed_s, time.process_time() - cpu)
