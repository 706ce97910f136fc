"""Does the answer leave the worker in time when a stage never comes back (specification section 3.3)?

A cell is one budget, durability, style of policy, number of turns in flight and kind of store. Its turns take it in
rotation which stage hangs: the planner, the judge, and (a serving model is always async) the regeneration.

Over-run is counted on one clock from the moment the model gave the draft, plus the budget, to the moment the workflow's
code returned its answer: dispatch, the server's delays and recording the turn all count against the product. It is
negative where the turn's own clock, which is the server's, ran behind.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.client import Interceptor as ClientInterceptor
from temporalio.worker import (
    ExecuteWorkflowInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)
from temporalio.worker import Interceptor as WorkerInterceptor

from benchmarks.measures import quantile
from benchmarks.ports import ANSWER, Pace, PacedRetriever, first_admitted, one_gap, stage_bodies
from benchmarks.stack import RECORD_TEXT, Stack, answered, serving
from benchmarks.targets import STAGE_PROMISES_FROM_MS
from retold.client import Host
from retold.contracts.disposition import Reason
from retold.contracts.identity import turn_workflow_id
from retold.contracts.record import MemoryRecord
from retold.contracts.turn import Durability
from retold.policy.blocking import BlockingPool
from retold.policy.ports import (
    AdmissionDecision,
    AdmissionPolicy,
    GapDecision,
    GapPolicy,
    Generation,
    Message,
    TurnStore,
)
from retold.policy.prompts import ChatPrompt
from retold.policy.recording import TurnRecorder

BUDGETS_MS = (50, 150, 400, 1_000, 3_000)
DRAFT_MS = 20.0
CROWDED_DRAFT_MS = 200.0
"""A draft of a turn among many. They start spread over one draft's length: people do not press the key together."""
SETTLES_S = 0.5
"""After a crowd, before the next cell: what it left behind is not the next one's to pay."""
SLOW_STORE_MS = 400.0
"""What every call to a slow store waits before it begins: longer than a profile or a record may take."""
IN_FLIGHT = 16
APART_MS = 250.0
"""Of long budgets several turns wait at once, started this far apart, so that no two of them end together."""
LONG_BUDGET_MS = 1_000
THREADS = 64

PLANNER, JUDGE, REGENERATION = "planner", "judge", "regeneration"
HANGS = {"async": (PLANNER, JUDGE, REGENERATION), "blocking": (PLANNER, JUDGE)}
KINDS = tuple((style, slow_store) for slow_store in (False, True) for style in HANGS)
CUT_OFF = frozenset(
    {
        Reason.PLANNER_CUT_OFF,
        Reason.RETRIEVAL_CUT_OFF,
        Reason.JUDGE_CUT_OFF,
        Reason.REGENERATION_CUT_OFF,
        Reason.BEFORE_RETRIEVAL,
        Reason.BEFORE_ADMISSION,
    }
)
"""The deadline ended the turn. Other turns answered before it, because too little was left for a regeneration."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Over-runs in milliseconds of the turns that the deadline ended; `early` counts those that did not need it."""

    budget_ms: int
    durability: str
    style: str
    in_flight: int
    slow_store: bool
    over_ms: tuple[float, ...]
    host_over_ms: tuple[float, ...]
    """The same until the host had the answer: the server's share is in it."""
    early: int

    @property
    def median_ms(self) -> float:
        return quantile(self.over_ms, 0.5)

    @property
    def p95_ms(self) -> float:
        return quantile(self.over_ms, 0.95)

    @property
    def promised(self) -> bool:
        """Below 100 ms nothing is promised in `stage` (design section 3.1)."""
        return self.durability == Durability.TURN.value or self.budget_ms >= STAGE_PROMISES_FROM_MS


async def measure_budgets(
    stack: Stack,
    budgets_ms: Sequence[int],
    runs: int,
    progress: Callable[[str], None],
    *,
    kinds: Sequence[tuple[str, bool]] = KINDS,
) -> list[Cell]:
    """Args:
    kinds: style of policies, and whether the store is slow.
    """
    clock = AnswerClock()
    client = await stack.client(interceptors=[clock])
    cells: list[Cell] = []
    for style, slow_store in kinds:
        async with _hanging(stack, client, clock, style, slow_store) as bench:
            for durability, budget_ms, in_flight in itertools.product(
                (Durability.TURN, Durability.STAGE), budgets_ms, (1, IN_FLIGHT)
            ):
                where = f"{style} policies, slow store" if slow_store else f"{style} policies"
                progress(f"{budget_ms} ms in {durability.value}, {where}, {in_flight} in flight")
                cells.append(await bench.cell(budget_ms, durability, in_flight, runs))
    return cells


class AnswerClock(ClientInterceptor, WorkerInterceptor):
    """When each turn's draft was there and when its answer left, by workflow id, on this process's clock."""

    def __init__(self) -> None:
        self.drafted: dict[str, float] = {}
        self.left: dict[str, float] = {}

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        left = self.left

        class Leaving(WorkflowInboundInterceptor):
            async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
                answer = await super().execute_workflow(input)
                left[workflow.info().workflow_id] = time.perf_counter()
                return answer

        return Leaving


@dataclass
class Holding:
    """Calls that never return, until the cell is over and their threads are wanted back."""

    _event: threading.Event = field(default_factory=threading.Event)

    def for_ever(self) -> None:
        self._event.wait()

    def release(self) -> None:
        self._event.set()
        self._event = threading.Event()


class HangingModel:
    """Drafts in a while. Asked again for a turn whose regeneration hangs, it never answers."""

    identity = "benchmark-model"
    style = ChatPrompt()

    def __init__(self, clock: AnswerClock) -> None:
        self.draft_ms = DRAFT_MS
        self._clock = clock

    async def generate(self, messages: Sequence[Message]) -> Generation:
        asked = " ".join(message.content for message in messages)
        if RECORD_TEXT not in asked:  # a draft; of a turn that is handed out again, its second
            await asyncio.sleep(self.draft_ms / 1000)
            self._clock.drafted[activity.info().workflow_id or ""] = time.perf_counter()
        elif REGENERATION in asked:
            await asyncio.Event().wait()
        return Generation(text=ANSWER, model=self.identity)


class AsyncPlanner:
    async def plan(self, turn: str, *asked: object) -> GapDecision:
        if turn == PLANNER:
            await asyncio.Event().wait()
        return one_gap()


class AsyncJudge:
    async def admit(
        self, turn: str, context: object, profile: object, draft: str, candidates: Sequence[MemoryRecord]
    ) -> AdmissionDecision:
        if turn == JUDGE:
            await asyncio.Event().wait()
        return first_admitted(candidates)


@dataclass(frozen=True)
class BlockingPlanner:
    holding: Holding

    def plan(self, turn: str, *asked: object) -> GapDecision:
        if turn == PLANNER:
            self.holding.for_ever()
        return one_gap()


@dataclass(frozen=True)
class BlockingJudge:
    holding: Holding

    def admit(
        self, turn: str, context: object, profile: object, draft: str, candidates: Sequence[MemoryRecord]
    ) -> AdmissionDecision:
        if turn == JUDGE:
            self.holding.for_ever()
        return first_admitted(candidates)


class SlowStore:
    """The product's store, every call of which begins late."""

    def __init__(self, store: TurnStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._store, name)

        async def later(*arguments: Any) -> Any:
            await asyncio.sleep(SLOW_STORE_MS / 1000)
            return await method(*arguments)

        return later


@dataclass
class _Bench:
    stack: Stack
    host: Host
    clock: AnswerClock
    model: HangingModel
    holding: Holding
    style: str
    slow_store: bool

    async def cell(self, budget_ms: int, durability: Durability, in_flight: int, runs: int) -> Cell:
        run = str(uuid.uuid4())

        async def one(number: int) -> tuple[float, float, bool]:
            return await self._turn(run, number, budget_ms, durability)

        self.model.draft_ms = CROWDED_DRAFT_MS if in_flight > 1 else DRAFT_MS
        if in_flight > 1:
            ended = []
            for first in range(0, max(runs, in_flight), in_flight):
                apart_ms = CROWDED_DRAFT_MS / in_flight
                ended += await asyncio.gather(*(_after(at * apart_ms, one, first + at) for at in range(in_flight)))
                self.holding.release()
                await asyncio.sleep(SETTLES_S)
        elif budget_ms >= LONG_BUDGET_MS:
            ended = await asyncio.gather(*(_after(number * APART_MS, one, number) for number in range(runs)))
        else:
            ended = [await one(number) for number in range(runs)]
        self.holding.release()
        late = [(over, host_over) for over, host_over, cut_off in ended if cut_off]
        if not late:
            raise RuntimeError(f"no turn was ended by its deadline of {budget_ms} ms: nothing was measured")
        return Cell(
            budget_ms=budget_ms,
            durability=durability.value,
            style=self.style,
            in_flight=in_flight,
            slow_store=self.slow_store,
            over_ms=tuple(over for over, _ in late),
            host_over_ms=tuple(over for _, over in late),
            early=len(ended) - len(late),
        )

    async def _turn(self, run: str, number: int, budget_ms: int, durability: Durability) -> tuple[float, float, bool]:
        """Over-run at the worker and at the host in milliseconds, and whether the deadline ended the turn."""
        hangs = HANGS[self.style]
        asked = self.stack.request(run, number, number, durability, budget_ms, text=hangs[number % len(hangs)])
        result = await answered(self.host, asked)
        had = time.perf_counter()
        turn = turn_workflow_id(asked.principal, asked.session_id, asked.turn_id)
        # In this process the host has the answer before the workflow has returned it, which is what is measured.
        await self.host.client.get_workflow_handle(turn).result()
        due = self.clock.drafted.pop(turn) + budget_ms / 1000
        left = self.clock.left.pop(turn)
        return (left - due) * 1000, (had - due) * 1000, result.reason in CUT_OFF


@asynccontextmanager
async def _hanging(
    stack: Stack, client: Client, clock: AnswerClock, style: str, slow_store: bool
) -> AsyncIterator[_Bench]:
    store = cast(TurnStore, SlowStore(stack.store)) if slow_store else stack.store
    model = HangingModel(clock)
    holding, pool = Holding(), BlockingPool(max_threads=THREADS, name="hanging")
    planner: GapPolicy = AsyncPlanner() if style == "async" else BlockingPlanner(holding)
    judge: AdmissionPolicy = AsyncJudge() if style == "async" else BlockingJudge(holding)
    bodies = stage_bodies(
        store,
        stack.certificate,
        model=model,
        planner=planner,
        retriever=PacedRetriever(Pace(), stack.stored),
        judge=judge,
        pool=pool,
    )
    try:
        async with serving(client, bodies, TurnRecorder(store)) as host:
            yield _Bench(stack, host, clock, model, holding, style, slow_store)
    finally:
        holding.release()
        pool.close()


async def _after(wait_ms: float, turn: Callable[[int], Any], number: int) -> tuple[float, float, bool]:
    await asyncio.sleep(wait_ms / 1000)
    ended: tuple[float, float, bool] = await turn(number)
    return ended
