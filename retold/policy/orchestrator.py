"""The in-process driver of the turn: the same algorithm as the workflow, with plain awaits.

For the fitness suite, for hosts that bring their own generation callbacks, and as the floor of the benchmark.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
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
from retold.contracts.turn import Durability, Principal, TurnOptions, TurnRequest, TurnResult
from retold.policy.driver import TurnStart
from retold.policy.limits import abandon, utc_now
from retold.policy.recording import TurnRecorder
from retold.policy.stages import TurnStageBodies
from retold.policy.utility_aware import run_turn

ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class TurnMemoryDecision:
    """The answer of one turn and the decision behind it."""

    result: TurnResult
    decision: TurnDecision | None
    """None when the turn had been answered before: its decision is in the log."""

    @property
    def response(self) -> str:
        return self.result.answer


class UtilityAwareOrchestrator:
    """Runs turns in this process. Fails closed to the draft on every error and budget path.

    The configuration is that of the certificate `bodies.open` was built with: whoever asks to serve a bundle that
    is not approved gets BundleNotApprovedError from `certify`, and nothing to construct this with.

    A record the store could not take in time is retried in the background; `aclose` waits for those.
    """

    def __init__(
        self,
        bodies: TurnStageBodies,
        recorder: TurnRecorder,
        *,
        utc_now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._bodies = bodies
        self._recorder = recorder
        self._utc_now = utc_now
        self._late: set[asyncio.Task[None]] = set()

    async def prepare_turn(
        self,
        principal: Principal,
        session_id: str,
        turn_id: str,
        text: str,
        *,
        public_context: str | None = None,
        options: TurnOptions = TurnOptions(),
    ) -> TurnMemoryDecision:
        """Decide and answer one turn (specification section 3).

        Raises:
            pydantic.ValidationError: the request is not valid; the message names field and limit.
            SessionOwnedByAnotherError: the session belongs to another user.
            TurnConflictError: this turn was already answered for another text.
            DraftFailedError: the draft failed, so there is nothing to answer with.
        """
        request = TurnRequest(
            principal=principal,
            session_id=session_id,
            turn_id=turn_id,
            text=text,
            public_context=public_context,
            options=options,
        )
        stages = _InProcessStages(self._bodies, self._record, self._utc_now)
        result = await run_turn(request, TurnStart(started_at=self._utc_now()), stages)
        return TurnMemoryDecision(result, stages.recorded)

    async def end_session(self, principal: Principal, session_id: str) -> None:
        """Drop the session's profile; the next session assembles a fresh one."""
        await self._bodies.open.profiles.forget(principal, session_id)

    async def aclose(self) -> None:
        """Wait until every record is written."""
        await asyncio.gather(*self._late)

    async def _record(self, record: TurnRecord, limit_ms: float) -> RecordResult:
        recorded = RecordResult(written=False)
        try:
            recorded = await self._recorder.try_record(record, limit_ms)
        finally:
            if not recorded.written:  # slow, away, or the caller gave up meanwhile: the row is written all the same
                late = asyncio.create_task(self._recorder.record_until_written(record))
                self._late.add(late)
                late.add_done_callback(self._late.discard)
        return recorded


class _RunningTask(Generic[ResultT]):
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

    def _note_end(self, _: asyncio.Task[ResultT]) -> None:
        self.finished_ms = self._elapsed_ms()


@dataclass
class _InProcessStages:
    bodies: TurnStageBodies
    write: Callable[[TurnRecord, float], Coroutine[Any, Any, RecordResult]]
    utc_now: Callable[[], datetime]
    recorded: TurnDecision | None = None
    _started: float = field(default_factory=time.monotonic)

    def elapsed_ms(self) -> float:
        return (time.monotonic() - self._started) * 1000

    def choose(self, durability: Durability, budget_ms: int | None) -> None:
        """In one process there is nothing to choose: nothing survives it."""

    async def open(self, stage: OpenInput) -> OpenResult:
        return await self.bodies.open(stage)

    def start_draft(self, stage: DraftInput) -> _RunningTask[DraftResult]:
        return _RunningTask(self.bodies.generate.draft(stage), self.elapsed_ms)

    def start_plan(self, stage: PlanInput) -> _RunningTask[PlanResult]:
        return _RunningTask(self.bodies.plan(stage), self.elapsed_ms)

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
