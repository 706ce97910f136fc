"""What kills and what is killed: an embedded Temporal server on a file, one SQL store, and workers as processes.

A rig runs turns of a `Line` of workers: one polls, the next stands by, connected and silent, until the first was
killed. So every stage before the crash ran in a known process, and whatever ran after it ran in another one.
Everything a rig starts ends with it: by name of process id, and by a closed pipe should the rig itself be killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from temporalio.client import Client

from benchmarks.crash_worker import READY, SERVE, Orders
from retold.cli.embedded import Addresses, embedded_temporal
from retold.client import Host, TurnResult, plugins
from retold.client.runtime import core_runtime
from retold.contracts.decision import TurnDecision
from retold.contracts.identity import decision_id, turn_workflow_id
from retold.contracts.record import RecordType, RecordWrite, RetrievalCategory
from retold.contracts.turn import Durability, Principal, TurnOptions, TurnRequest
from retold.store.engine import open_engine
from retold.store.migrations import migrate
from retold.store.store import Store

ROOT = Path(__file__).resolve().parent.parent
ANNA = Principal(tenant="crashes", user="anna")
HUNG_S = 60.0
"""No step of a rig takes this long unless something hangs."""


@dataclass(frozen=True)
class Execution:
    """A port began its work."""

    at: float
    """Seconds since the epoch."""
    pid: int
    stage: str


@dataclass(frozen=True)
class WorkerProcess:
    process: asyncio.subprocess.Process

    @property
    def pid(self) -> int:
        return self.process.pid

    async def poll_for_turns(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(SERVE)
        await self.process.stdin.drain()

    async def kill(self) -> float:
        """kill -9; when, in seconds since the epoch."""
        os.kill(self.pid, signal.SIGKILL)
        at = time.time()
        await self.process.wait()
        return at

    async def stop(self) -> int:
        """SIGTERM, and its exit code once it has stopped."""
        self.process.terminate()
        async with asyncio.timeout(HUNG_S):
            return await self.process.wait()

    async def end(self) -> None:
        """Whatever it is doing."""
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


@dataclass
class Line:
    """One task queue, its workers one after another, and the log of what they executed."""

    name: str
    start: Callable[[Line], Awaitable[WorkerProcess]]
    executions_log: Path
    takes_ms: Mapping[str, int]
    active: WorkerProcess = field(init=False)
    standby: WorkerProcess = field(init=False)
    """The active one itself once it has taken over."""

    @property
    def task_queue(self) -> str:
        return f"turns-{self.name}"

    async def ready(self, *, standby: bool) -> None:
        """One worker polls; another one stands by, if wanted."""
        started = await asyncio.gather(*(self.start(self) for _ in range(2 if standby else 1)))
        self.active, self.standby = started[0], started[-1]
        await self.active.poll_for_turns()

    async def end(self) -> None:
        await asyncio.gather(self.active.end(), self.standby.end())

    async def take_over(self) -> None:
        """The worker that stood by polls; nobody stands by now."""
        self.active = self.standby
        await self.active.poll_for_turns()

    async def stand_by(self) -> None:
        """Start the next one, unless somebody stands by."""
        if self.standby is self.active or self.standby.process.returncode is not None:
            self.standby = await self.start(self)

    def executions(self) -> list[Execution]:
        if not self.executions_log.exists():
            return []
        rows = (line.split() for line in self.executions_log.read_text().splitlines())
        return [Execution(float(at), int(pid), stage) for at, pid, stage in rows]

    async def began(self, stage: str, since: int, *, times: int = 1) -> None:
        """Wait until a stage has begun so often after the first `since` executions."""
        async with asyncio.timeout(HUNG_S):
            while sum(execution.stage == stage for execution in self.executions()[since:]) < times:
                await asyncio.sleep(0.005)


@dataclass(frozen=True)
class SentTurn:
    """A turn on its way, from a host that waits for it in this process."""

    request: TurnRequest
    sent_at: float
    answer: asyncio.Task[tuple[TurnResult, float]]

    @property
    def workflow_id(self) -> str:
        return turn_workflow_id(self.request.principal, self.request.session_id, self.request.turn_id)

    async def answered(self) -> tuple[TurnResult, float]:
        """The result, and when it arrived, in seconds since the epoch."""
        async with asyncio.timeout(HUNG_S):
            return await self.answer


@dataclass
class CrashRig:
    data_dir: Path
    server: Addresses
    client: Client
    store: Store
    _owned: AsyncExitStack
    _servers: AsyncExitStack
    _sent: set[str] = field(default_factory=set)

    async def line(self, name: str, takes_ms: Mapping[str, int], *, standby: bool = True) -> Line:
        """A line of workers whose stages take as long as said; one polls, one stands by."""
        line = Line(f"{name}-{uuid4()}", self._start_worker, self.data_dir / f"{name}.executions", takes_ms)
        await line.ready(standby=standby)
        return line

    def send(self, line: Line, durability: Durability, *, budget_ms: int | None = None) -> SentTurn:
        options = TurnOptions(latency_budget_ms=budget_ms, durability=durability)
        request = TurnRequest(
            principal=ANNA, session_id=f"s-{uuid4()}", turn_id="t1", text="what can I eat?", options=options
        )
        return self.send_again(line, request)

    def send_again(self, line: Line, request: TurnRequest) -> SentTurn:
        host = Host(self.client, task_queue=line.task_queue)
        self._sent.add(turn_workflow_id(request.principal, request.session_id, request.turn_id))

        async def answer() -> tuple[TurnResult, float]:
            result = await host.send(request)
            assert isinstance(result, TurnResult)
            return result, time.time()

        return SentTurn(request, time.time(), asyncio.create_task(answer()))

    async def row(self, sent: SentTurn, *, within_s: float = HUNG_S) -> TurnDecision:
        """The one decision row of a turn, once it is there, with the texts it refers to."""
        session_id = sent.request.session_id
        async with asyncio.timeout(within_s):
            while not (rows := await self.store.decisions(ANNA.tenant, session_id=session_id)):
                await asyncio.sleep(0.02)
        (row,) = rows
        assert row.decision_id == decision_id(sent.workflow_id)
        said = [turn.role for turn in await self.store.session_turns(ANNA, session_id)]
        assert said == ["user", "draft", "final"] if row.final_turn_ref else ["user", "draft"]
        return row

    async def turns_and_rows(self) -> tuple[int, int]:
        """How many different turns were sent, and how many decision rows there are of all."""
        return len(self._sent), len(await self.store.decisions(limit=2 * len(self._sent) + 1))

    async def history_events(self, sent: SentTurn) -> int:
        return len((await self.client.get_workflow_handle(sent.workflow_id).fetch_history()).events)

    @asynccontextmanager
    async def store_locked(self) -> AsyncIterator[None]:
        """Another process's write lock on the store's file, as far as SQLite can tell: nobody else can write."""
        with ThreadPoolExecutor(max_workers=1) as thread:
            loop = asyncio.get_running_loop()
            held = await loop.run_in_executor(thread, _lock, self.data_dir / "retold.db")
            try:
                yield
            finally:
                await loop.run_in_executor(thread, held.close)

    async def kill_server(self) -> float:
        """kill -9 of the Temporal server; when, in seconds since the epoch."""
        os.killpg(self.server.process_group, signal.SIGKILL)
        at = time.time()
        await self._servers.aclose()
        return at

    async def restart_server(self) -> None:
        """On the same file and port."""
        port = int(self.server.temporal.rsplit(":", 1)[1])
        self.server = await self._servers.enter_async_context(embedded_temporal(self.data_dir, port=port))

    async def _start_worker(self, line: Line) -> WorkerProcess:
        orders = Orders(
            address=self.server.temporal,
            task_queue=line.task_queue,
            store_url=_store_url(self.data_dir),
            executions=line.executions_log,
            takes_ms=dict(line.takes_ms),
        )
        errors = os.open(self.data_dir / "workers.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "benchmarks.crash_worker", orders.model_dump_json(),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors, cwd=ROOT,
            )  # fmt: skip
        finally:
            os.close(errors)
        worker = WorkerProcess(process)
        self._owned.push_async_callback(worker.end)
        assert process.stdout is not None
        async with asyncio.timeout(HUNG_S):
            if await process.stdout.readline() != READY:
                said = (self.data_dir / "workers.log").read_text()
                raise RuntimeError(f"a worker did not start; the last that workers said: {said[-2_000:]}")
        return worker


@asynccontextmanager
async def crash_rig(data_dir: Path) -> AsyncIterator[CrashRig]:
    """A server, a store with two records in it, and no workers yet. A tracer provider must be installed."""
    async with AsyncExitStack() as servers, AsyncExitStack() as owned:
        server = await servers.enter_async_context(embedded_temporal(data_dir))
        engine = open_engine(_store_url(data_dir))
        await migrate(engine)
        store = Store(engine)
        owned.push_async_callback(store.close)
        records = [_record("Anna does not eat peanuts."), _record("Anna eats no fish on weekdays.")]
        await store.import_lines(ANNA, records, actor="crash rig", at=datetime.now(UTC))
        client = await Client.connect(server.temporal, plugins=plugins(), runtime=core_runtime())
        yield CrashRig(data_dir, server, client, store, owned, servers)


def _record(text: str) -> RecordWrite:
    return RecordWrite(kind="record", type=RecordType.SEMANTIC, text=text, category=RetrievalCategory.CONSTRAINTS)


def _store_url(data_dir: Path) -> str:
    return f"sqlite+aiosqlite:///{data_dir / 'retold.db'}"


def _lock(file: Path) -> sqlite3.Connection:
    held = sqlite3.connect(file, isolation_level=None, timeout=10)
    held.execute("BEGIN IMMEDIATE")
    return held
