"""What everyone writes first: the same turn, every stage a regular activity, every deadline a workflow timer.

Same algorithm, same activities, same worker options, same server as the product's turn. Only how a stage is started
and how the deadline is held differ, so that the difference measured is that choice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from pydantic import BaseModel
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import FailureError

from retold.contracts import names
from retold.contracts.decision import TurnRecord
from retold.contracts.recording import RecordInput, RecordResult
from retold.contracts.stages import (
    AdmitInput,
    AdmitResult,
    DraftInput,
    DraftResult,
    FailureKind,
    Limit,
    OpenInput,
    OpenResult,
    PlanInput,
    PlanResult,
    RegenerateInput,
    RegenerateResult,
    RetrieveInput,
    RetrieveResult,
    StageFailure,
    StageResult,
)
from retold.contracts.turn import Durability, TurnRequest, TurnResult
from retold.policy.driver import TurnStart
from retold.policy.utility_aware import run_turn

ResultT = TypeVar("ResultT", bound=StageResult)
OPEN_LIMIT_MS, RECORD_LIMIT_MS = 2_000.0, 2_000.0


@workflow.defn(name="EverydayTurnWorkflow")
class EverydayTurnWorkflow:
    @workflow.run
    async def run(self, request: TurnRequest) -> TurnResult:
        return await run_turn(request, TurnStart(started_at=workflow.info().start_time), _RegularStages())


class _Running(Generic[ResultT]):
    def __init__(self, handle: workflow.ActivityHandle[ResultT], empty: type[ResultT], clock: Callable[[], float]):
        self.handle, self.finished_ms = handle, None
        self._empty, self._clock = empty, clock
        handle.add_done_callback(self._ended)

    finished_ms: float | None

    def done(self) -> bool:
        return self.handle.done()

    def abandon(self) -> None:
        self.handle.cancel()

    def __await__(self) -> Generator[Any, None, ResultT]:
        return self._value().__await__()

    async def _value(self) -> ResultT:
        try:
            return await self.handle
        except FailureError as error:
            return self._empty(failure=StageFailure(kind=FailureKind.ERROR, error=type(error).__name__))

    def _ended(self, handle: asyncio.Task[ResultT]) -> None:
        self.finished_ms = self._clock()
        if not handle.cancelled():
            handle.exception()


class _RegularStages:
    def __init__(self) -> None:
        self._started_ns = workflow.time_ns()

    def elapsed_ms(self) -> float:
        return (workflow.time_ns() - self._started_ns) / 1e6

    def utc_now(self) -> datetime:
        return workflow.now()

    def choose(self, durability: Durability, budget_ms: int | None) -> None:
        """There is one way here."""

    async def open(self, stage: OpenInput) -> OpenResult:
        opened: OpenResult = await self._activity(names.OPEN_TURN, stage, OpenResult, OPEN_LIMIT_MS)
        return opened

    def start_draft(self, stage: DraftInput) -> _Running[DraftResult]:
        return self._stage(names.GENERATE_DRAFT, stage, stage.limit, DraftResult)

    def start_plan(self, stage: PlanInput) -> _Running[PlanResult]:
        return self._stage(names.PLAN_GAPS, stage, stage.limit, PlanResult)

    async def before_deadline(self, plan: Any, limit: Limit) -> bool:
        await workflow.wait([plan.handle], timeout=limit.limit_ms / 1000)
        return bool(plan.done())

    async def retrieve(self, stage: RetrieveInput) -> RetrieveResult:
        return await self._stage(names.RETRIEVE_CANDIDATES, stage, stage.limit, RetrieveResult)

    async def admit(self, stage: AdmitInput) -> AdmitResult:
        return await self._stage(names.ADMIT_CANDIDATES, stage, stage.limit, AdmitResult)

    async def regenerate(self, stage: RegenerateInput) -> RegenerateResult:
        return await self._stage(names.REGENERATE, stage, stage.limit, RegenerateResult)

    async def record(self, record: TurnRecord, limit_ms: float) -> RecordResult:
        asked = RecordInput(record=record, limit_ms=limit_ms)
        recorded: RecordResult = await self._activity(names.RECORD_TURN, asked, RecordResult, RECORD_LIMIT_MS)
        return recorded

    def _stage(self, name: str, stage: BaseModel, limit: Limit, result: type[ResultT]) -> _Running[ResultT]:
        return _Running(self._activity(name, stage, result, limit.limit_ms), result, self.elapsed_ms)

    def _activity(
        self, name: str, stage: BaseModel, result: type[Any], limit_ms: float
    ) -> workflow.ActivityHandle[Any]:
        return workflow.start_activity(
            name,
            stage,
            result_type=result,
            start_to_close_timeout=timedelta(milliseconds=limit_ms),
            retry_policy=RetryPolicy(maximum_attempts=2),
        )
