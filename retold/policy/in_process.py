"""The turn's stages with plain awaits, in one process: the whole turn is one piece, and nothing of it survives alone.

Two drivers stand on it: the orchestrator, and the activity that answers a turn in durability `turn`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from retold.contracts.decision import TurnDecision, TurnRecord
from retold.contracts.recording import RecordResult
from retold.contracts.stages import (
    AdmitInput,
    AdmitResult,
    DraftInput,
    DraftResult,
    Limit,
    OpenInput,
    OpenResult,
    PlanInput,
    PlanResult,
    RegenerateInput,
    RegenerateResult,
    RetrieveInput,
    RetrieveResult,
)
from retold.contracts.turn import Durability
from retold.policy.limits import abandon, utc_now
from retold.policy.stages import TurnStageBodies

ResultT = TypeVar("ResultT")


class RunningTask(Generic[ResultT]):
    """A stage that runs as a task of this process."""

    def __init__(self, body: Coroutine[Any, Any, ResultT], elapsed_ms: Callable[[], float]) -> None:
        self.finished_ms: float | None = None
        self._task = asyncio.ensure_future(body)
        self._elapsed_ms = elapsed_ms
        self._task.add_done_callback(self._note_end)

    def done(self) -> bool:
        return self._task.done()

    def abandon(self) -> None:
        abandon(self._task)

    async def settled(self, limit_ms: float) -> bool:
        await asyncio.wait({self._task}, timeout=limit_ms / 1000)
        return self._task.done()

    def __await__(self) -> Generator[Any, None, ResultT]:
        return self._task.__await__()

    @property
    def task(self) -> asyncio.Future[ResultT]:
        return self._task

    def _note_end(self, _: asyncio.Task[ResultT]) -> None:
        self.finished_ms = self._elapsed_ms()


@dataclass
class InProcessStages:
    bodies: TurnStageBodies
    write: Callable[[TurnRecord, float], Awaitable[RecordResult]]
    """Record within so many milliseconds, or see to it that it is recorded later."""
    utc_now: Callable[[], datetime] = utc_now
    recorded: TurnDecision | None = None
    _started: float = field(default_factory=time.monotonic)

    def elapsed_ms(self) -> float:
        return (time.monotonic() - self._started) * 1000

    def choose(self, durability: Durability, budget_ms: int | None) -> None:
        """In one process there is nothing to choose."""

    async def open(self, stage: OpenInput) -> OpenResult:
        return await self.bodies.open(stage)

    def start_draft(self, stage: DraftInput) -> RunningTask[DraftResult]:
        return RunningTask(self.bodies.generate.draft(stage), self.elapsed_ms)

    def start_plan(self, stage: PlanInput) -> RunningTask[PlanResult]:
        return RunningTask(self.bodies.plan(stage), self.elapsed_ms)

    async def before_deadline(self, plan: Any, limit: Limit) -> bool:
        return bool(await plan.settled(limit.limit_ms))

    async def retrieve(self, stage: RetrieveInput) -> RetrieveResult:
        return await self.bodies.retrieve(stage)

    async def admit(self, stage: AdmitInput) -> AdmitResult:
        return await self.bodies.admit(stage)

    async def regenerate(self, stage: RegenerateInput) -> RegenerateResult:
        return await self.bodies.generate.regenerate(stage)

    async def record(self, record: TurnRecord, limit_ms: float) -> RecordResult:
        recorded = await self.write(record, limit_ms)
        if recorded.earlier is None:
            self.recorded = record.decision
        return recorded
