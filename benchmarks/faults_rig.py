"""A deployment to break: `worker.py` as a process of its own, as its settings describe it, and hosts that send turns.

A `Site` is one task queue with its store, its workers and everything they talk to. Traffic goes on whatever happens:
a turn every fifth of a second, half of them in each durability, none waiting for another's answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import httpx
from temporalio.client import Client
from temporalio.service import RPCError

from benchmarks.crash_rig import HUNG_S, ROOT
from benchmarks.faults_endpoints import ModelEndpoint, free_port
from benchmarks.ports import TEXT
from retold.cli.embedded import Addresses, embedded_temporal
from retold.client import Host, RetoldError, TurnResult, plugins
from retold.client.runtime import core_runtime
from retold.contracts.decision import TurnDecision
from retold.contracts.identity import turn_workflow_id
from retold.contracts.record import RecordWrite
from retold.contracts.turn import Principal, TurnOptions, TurnRequest
from retold.policy.limits import utc_now
from retold.store.engine import open_engine
from retold.store.migrations import migrate
from retold.store.store import Store

GUARD = ROOT / "retold" / "cli" / "guard.py"
APART_S = 0.2
TIGHT_MS, WIDE_MS = 800, 4_000
"""Budgets of the two kinds of turns: the first runs in durability `turn`, the second in `stage`."""
UTILITY = {"gap_enabled": True, "admission_mode": "hosted_judge", "shadow": False, "draft_timeout_ms": 3_000}
ANNA = Principal(tenant="faults", user="anna")
ANSWERED_WITHIN_S = 30.0
NO_ANSWER = f"no answer in {ANSWERED_WITHIN_S:.0f} s"
ROWS_WITHIN_S = 30.0


@dataclass(frozen=True)
class Sent:
    """One turn, from a host's side."""

    request: TurnRequest
    sent_at: float
    """Seconds since the epoch, as below."""
    ended_at: float
    result: TurnResult | None
    error: str = ""
    """The type of what the host got instead of an answer."""

    @property
    def workflow_id(self) -> str:
        return turn_workflow_id(self.request.principal, self.request.session_id, self.request.turn_id)

    @property
    def answer_ms(self) -> float:
        return (self.ended_at - self.sent_at) * 1000


@dataclass
class Traffic:
    """Turns sent at a steady pace until it is told to stop."""

    host: Host
    run: str = field(default_factory=lambda: str(uuid4()))
    ended: list[Sent] = field(default_factory=list)
    _number: int = 0
    _under_way: set[asyncio.Task[None]] = field(default_factory=set)
    _sending: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._sending = asyncio.create_task(self._send_on())

    async def stop(self) -> Sequence[Sent]:
        """Send no more, and wait for what was sent."""
        assert self._sending is not None
        self._sending.cancel()
        if self._under_way:
            _, hung = await asyncio.wait(self._under_way, timeout=ANSWERED_WITHIN_S)
            for turn in hung:
                turn.cancel()
            await asyncio.gather(*hung, return_exceptions=True)
        return self.ended

    async def again(self, sent: Sent) -> Sent:
        """The same turn once more, as a host does that got an error."""
        sent_at = time.time()
        try:
            async with asyncio.timeout(ANSWERED_WITHIN_S):
                return await self._outcome(sent.request, sent_at)
        except TimeoutError:
            return Sent(sent.request, sent_at, time.time(), None, NO_ANSWER)

    async def _send_on(self) -> None:
        while True:
            turn = asyncio.create_task(self._turn(self._drawn()))
            self._under_way.add(turn)
            turn.add_done_callback(self._under_way.discard)
            await asyncio.sleep(APART_S)

    async def _turn(self, request: TurnRequest) -> None:
        sent_at = time.time()
        try:
            self.ended.append(await self._outcome(request, sent_at))
        except asyncio.CancelledError:
            self.ended.append(Sent(request, sent_at, time.time(), None, NO_ANSWER))

    async def _outcome(self, request: TurnRequest, sent_at: float) -> Sent:
        try:
            result = await self.host.send(request)
        except (RetoldError, RPCError) as error:
            return Sent(request, sent_at, time.time(), None, type(error).__name__)
        assert isinstance(result, TurnResult), "no fallback was given"
        return Sent(request, sent_at, time.time(), result)

    def _drawn(self) -> TurnRequest:
        number, self._number = self._number, self._number + 1
        budget = WIDE_MS if number % 2 else TIGHT_MS
        return TurnRequest(
            principal=ANNA,
            session_id=f"{self.run}-{number}",
            turn_id="t1",
            text=TEXT,
            options=TurnOptions(latency_budget_ms=budget),
        )


@dataclass
class Worker:
    """`worker.py`, with a guard beside it that ends it should the rig die."""

    guard: asyncio.subprocess.Process
    probes: str
    log: Path

    @property
    def running(self) -> bool:
        return self.guard.returncode is None

    async def ready(self, within_s: float = HUNG_S) -> None:
        async with asyncio.timeout(within_s), httpx.AsyncClient() as http:
            while True:
                with suppress(httpx.HTTPError):
                    if (await http.get(f"http://{self.probes}/readyz", timeout=3)).status_code == 200:
                        return
                if not self.running:
                    said = self.log.read_text(errors="replace")
                    raise RuntimeError(f"a worker ended before it was ready; the last it said: {said[-2_000:]}")
                await asyncio.sleep(0.1)

    async def kill(self) -> None:
        """kill -9: the process group is the worker's and its guard's."""
        with suppress(ProcessLookupError):
            os.killpg(self.guard.pid, signal.SIGKILL)
        await self.guard.wait()

    async def stop(self) -> float:
        """SIGTERM; how many seconds it took to end."""
        assert self.guard.stdin is not None
        began = time.monotonic()
        self.guard.stdin.close()
        try:
            async with asyncio.timeout(HUNG_S):
                await self.guard.wait()
        except TimeoutError:
            await self.kill()
        return time.monotonic() - began


@dataclass
class Site:
    """A store, a queue, and workers on them."""

    folder: Path
    rig: Rig
    store_url: str
    environment: Mapping[str, str]
    task_queue: str = field(default_factory=lambda: f"turns-{uuid4()}")
    workers: list[Worker] = field(default_factory=list)

    async def start_worker(self, *, checkout: Path = ROOT, clock: Path | None = None, **environment: str) -> Worker:
        """Of this checkout unless said otherwise; returns once it is ready.

        Args:
            clock: a file that says by how many seconds its wall clock is wrong.
        """
        probes = f"127.0.0.1:{free_port()}"
        everything = {**os.environ, **self._settings(probes), **self.environment, **environment}
        moved = ["-m", "benchmarks.faults_moved_clock", str(clock)]
        program = [str(checkout / "worker.py")] if clock is None else moved
        log_file = self.folder / f"worker-{len(self.workers)}.log"
        with log_file.open("ab") as log:
            guard = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", str(GUARD), "20", sys.executable, *program,
                stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log, cwd=checkout, start_new_session=True,
                env=everything,
            )  # fmt: skip
        worker = Worker(guard, probes, log_file)
        self.workers.append(worker)
        await worker.ready()
        return worker

    def traffic(self) -> Traffic:
        return Traffic(Host(self.rig.client, task_queue=self.task_queue))

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        """The rig's own connections to the store, for a moment: what was broken meanwhile is not kept open."""
        store = Store(open_engine(self.store_url))
        try:
            yield store
        finally:
            await store.close()

    async def rows(self, sent: Sequence[Sent]) -> Mapping[str, TurnDecision]:
        """Decisions by workflow id, once every answered turn has one or waiting has no sense any more."""
        answered = {turn.workflow_id for turn in sent if turn.result is not None}
        until = time.monotonic() + ROWS_WITHIN_S
        async with self.store() as store:
            while True:
                rows = {row.workflow_id: row for row in await store.decisions(ANNA.tenant, limit=10_000)}
                if answered <= rows.keys() or time.monotonic() > until:
                    return rows
                await asyncio.sleep(0.25)

    async def end(self) -> None:
        await asyncio.gather(*(worker.stop() for worker in self.workers if worker.running))

    def _settings(self, probes: str) -> dict[str, str]:
        hosted = {
            f"RETOLD_{role}__{name}": value
            for role in ("SERVING", "PLANNER", "JUDGE", "CLASSIFIER", "EXTRACTOR")
            for name, value in {
                "PROVIDER": "openai",
                "MODEL": "faults",
                "BASE_URL": self.rig.models.url,
                "API_KEY": "none",
                "STRUCTURED": "schema",
            }.items()
        }
        return {
            "TEMPORAL_ADDRESS": self.rig.server.temporal,
            "RETOLD_DATA_DIR": str(self.folder),
            "RETOLD_STORE_URL": self.store_url,
            "RETOLD_EMBEDDER__KIND": "hashing",
            "RETOLD_UTILITY": json.dumps(UTILITY),
            "RETOLD_DEVELOPMENT_APPROVAL": "its faults are measured",
            "RETOLD_WORKER__TURNS_QUEUE": self.task_queue,
            "RETOLD_WORKER__LIFECYCLE_QUEUE": f"{self.task_queue}-lifecycle",
            "RETOLD_WORKER__OPERATIONS_QUEUE": f"{self.task_queue}-operations",
            "RETOLD_WORKER__EXTRACTION_IDLE_S": "0",
            "RETOLD_WORKER__GRACEFUL_SHUTDOWN_S": "10",
            "RETOLD_WORKER__PROBES_ADDRESS": probes,
            **hosted,
        }


@dataclass
class Rig:
    """One Temporal server and the models, shared by every site."""

    folder: Path
    server: Addresses
    client: Client
    models: ModelEndpoint
    _servers: AsyncExitStack
    _sites: AsyncExitStack

    async def site(self, name: str, environment: Mapping[str, str], *, store_url: str | None = None) -> Site:
        """Its store has records that every turn finds. No worker runs yet."""
        folder = self.folder / name
        folder.mkdir()
        url = store_url or f"sqlite:///{folder / 'retold.db'}"
        engine = open_engine(url)
        await migrate(engine)
        engine.dispose()
        site = Site(folder, self, url, {"RETOLD_QDRANT_COLLECTION": name, **environment})
        self._sites.push_async_callback(site.end)
        async with site.store() as store:
            lines = [RecordWrite(id=f"r{at}", text=f"The team prefers dish number {at}.") for at in range(4)]
            await store.import_lines(ANNA, lines, actor="faults", at=utc_now())
        return site

    async def kill_server(self) -> None:
        os.killpg(self.server.process_group, signal.SIGKILL)
        await self._servers.aclose()

    async def restart_server(self) -> None:
        """On the same file and port."""
        port = int(self.server.temporal.rsplit(":", 1)[1])
        self.server = await self._servers.enter_async_context(embedded_temporal(self.folder, port=port))


@asynccontextmanager
async def fault_rig(folder: Path, models: ModelEndpoint) -> AsyncIterator[Rig]:
    """Everything it starts ends with the block. A tracer provider must be installed."""
    async with AsyncExitStack() as servers, AsyncExitStack() as sites:
        server = await servers.enter_async_context(embedded_temporal(folder))
        client = await Client.connect(server.temporal, plugins=plugins(), runtime=core_runtime())
        yield Rig(folder, server, client, models, servers, sites)
