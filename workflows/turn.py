"""One user turn as a Temporal workflow (specification section 3; design section 3).

`TurnWorkflow.run` accepts the request and has it answered in one of two durabilities by `run_turn`, the algorithm
every driver shares. In `turn` one local activity runs it, stages and all; in `stage` it runs here, and what is
Temporal's about its stages is below: how one is started (`_start`), and how the deadline races the planner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ApplicationErrorCategory,
    FailureError,
    TimeoutError,
    TimeoutType,
    is_cancelled_exception,
)

with workflow.unsafe.imports_passed_through():
    from opentelemetry import trace
    from pydantic import BaseModel

    from retold.contracts import names
    from retold.contracts.answering import AnswerInput, AnswerResult, TurnFailure, TurnStart
    from retold.contracts.decision import TurnRecord
    from retold.contracts.identity import turn_workflow_id
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
    )
    from retold.contracts.turn import Durability, TurnRequest, TurnResult
    from retold.policy.driver import Running, turn_failure
    from retold.policy.utility_aware import run_turn
    from retold.telemetry.names import WORKFLOW_SPAN, mark_turn, turn_span
    from workflows.accepting import WRONGLY_CALLED, accepted, refusal
    from workflows.host_generation import HostGenerator

BACKSTOP = timedelta(milliseconds=500)
"""Stages enforce their own limits; a server-side timeout is only there for a worker that cannot any more."""

HEARTBEAT_TIMEOUT = timedelta(seconds=1)
SHORT_DEADLINE_MS = 1_000
"""Up to here a deadline does without heartbeats: they would not tell of its worker's death before its own timeout."""
OPEN_LIMIT = timedelta(seconds=10)
"""Above the longest profile timeout there can be, which `open` enforces itself."""
TURN_LIMIT = timedelta(hours=1)
"""Above all that the limits of a turn's stages can add up to; its execution timeout ends it sooner."""
HANDED_OUT_AGAIN = 6
"""Events before a first task that another worker had: start, scheduled, started, timed out or failed, and the latter
two once more. A cancellation that came before any worker makes four."""
RECORD_LIMIT = timedelta(minutes=1)
"""Of one attempt. A turn is not over before its record is somewhere durable, so there is always another."""
NEVER_RETRIED = ["PayloadsTooLarge", names.SESSION_OWNED_BY_ANOTHER]


@workflow.defn(name=names.TURN_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class TurnWorkflow:
    @workflow.run
    async def run(self, request: RawValue) -> TurnResult:
        """Answer one turn: the argument is a `TurnRequest`, as JSON.

        Raises:
            ApplicationError: of type `InvalidRequest`, `SessionOwnedByAnother`, `TurnConflict` or `DraftFailed`.
        """
        with turn_span(WORKFLOW_SPAN):
            return await self._answer(_accepted(request))

    async def _answer(self, turn: TurnRequest) -> TurnResult:
        info = workflow.info()
        # Of the two start times this is the host's; `start_time` is when the first task ran, wherever that was.
        late_by = workflow.now() - info.workflow_start_time
        trace_id, span_id = _trace_and_span()
        start = TurnStart(
            started_at=info.workflow_start_time,
            late_by_ms=max(0.0, late_by / timedelta(milliseconds=1)),
            redelivered=info.get_current_history_length() >= HANDED_OUT_AGAIN,
            trace_id=trace_id,
            span_id=span_id,
        )
        try:
            answered = await self._answered(turn, start)
        except FailureError:
            raise
        except Exception as error:  # noqa: BLE001 - it would fail the workflow task for ever while the host waits
            answered = AnswerResult(failure=turn_failure(error))
            if answered.failure is not None and answered.failure.type == names.MISTAKE:
                workflow.logger.exception("the turn's algorithm failed")
        if answered.given_up:
            raise asyncio.CancelledError
        if answered.result is None:
            assert answered.failure is not None, "a turn that was answered in no way says why"
            raise _as_error(answered.failure)
        mark_turn(answered.result)
        return answered.result

    async def _answered(self, turn: TurnRequest, start: TurnStart) -> AnswerResult:
        """In one activity if the turn may be in `turn`: whether it is can depend on the worker's configuration."""
        stages = _TemporalStages(turn)
        if turn.options.durability is not Durability.STAGE and turn.options.host_generation is None:
            answered = await _in_one_activity(turn, start)
            if answered.opened is None:
                return answered
            stages.opened = answered.opened
        return AnswerResult(result=await run_turn(turn, start, stages))


def _accepted(request: RawValue) -> TurnRequest:
    turn = accepted(TurnRequest, request)
    expected = turn_workflow_id(turn.principal, turn.session_id, turn.turn_id)
    if workflow.info().workflow_id != expected:
        raise refusal(
            f"the workflow id of this turn must be {expected!r}: it is what makes sending the turn again safe"
        )
    return turn


def _trace_and_span() -> tuple[str, str] | tuple[None, None]:
    context = trace.get_current_span().get_span_context()
    return (f"{context.trace_id:032x}", f"{context.span_id:016x}") if context.is_valid else (None, None)


def _as_error(failure: TurnFailure) -> ApplicationError:
    category = ApplicationErrorCategory.BENIGN if failure.by_host else ApplicationErrorCategory.UNSPECIFIED
    return ApplicationError(failure.message, *failure.details, type=failure.type, non_retryable=True, category=category)


async def _in_one_activity(turn: TurnRequest, start: TurnStart) -> AnswerResult:
    """The activity hears of a host that gives up, and says whether the turn was decided by then."""
    answering = _start_answering(turn, start)
    try:
        return await answering
    except (asyncio.CancelledError, FailureError) as error:
        if not is_cancelled_exception(error):
            raise
    # It never ran in this attempt; whether it did in one whose task the server took back, the log knows.
    by_host = workflow.cancellation_reason() is not None
    return await _start_answering(turn, start.model_copy(update={"given_up": by_host}))


def _start_answering(turn: TurnRequest, start: TurnStart) -> workflow.ActivityHandle[AnswerResult]:
    return workflow.start_local_activity(
        names.ANSWER_TURN,
        AnswerInput(request=turn, start=start),
        result_type=AnswerResult,
        schedule_to_close_timeout=TURN_LIMIT,
        retry_policy=RetryPolicy(maximum_attempts=1),
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )


ResultT = TypeVar("ResultT", bound=BaseModel)


class _RunningStage(Generic[ResultT]):
    """A started stage. Whatever goes wrong with it, other than the host giving up, is a failure by value."""

    def __init__(
        self,
        handle: asyncio.Task[ResultT],
        failed: Callable[[StageFailure], ResultT],
        elapsed_ms: Callable[[], float],
    ) -> None:
        self.handle = handle
        self.finished_ms: float | None = None
        self._failed = failed
        self._elapsed_ms = elapsed_ms
        handle.add_done_callback(self._ended)

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
            if is_cancelled_exception(error):
                raise asyncio.CancelledError from error
            return self._failed(_failure(error))

    def _ended(self, handle: asyncio.Task[ResultT]) -> None:
        self.finished_ms = self._elapsed_ms()
        _take_exception(handle)


class _TemporalStages:
    """The stages of durability `stage`: each durable on its own."""

    def __init__(self, request: TurnRequest) -> None:
        host = request.options.host_generation
        self.opened: OpenResult | None = None
        """What was opened already, before it was known which durability the turn has."""
        self._host = None if host is None else HostGenerator(request, host, self._settles)
        self._started_ns = workflow.time_ns()
        self._started_at = workflow.now()

    def elapsed_ms(self) -> float:
        return (workflow.time_ns() - self._started_ns) / 1e6

    def utc_now(self) -> datetime:
        return self._started_at + timedelta(milliseconds=self.elapsed_ms())

    def choose(self, durability: Durability, budget_ms: int | None) -> None:
        assert durability is Durability.STAGE, "a turn in `turn` is answered by one activity"

    # --- the stages ----------------------------------------------------------------------------------------

    async def open(self, stage: OpenInput) -> OpenResult:
        if self.opened is not None:
            return self.opened
        try:
            opened: OpenResult = await workflow.execute_local_activity(
                names.OPEN_TURN,
                stage,
                result_type=OpenResult,
                schedule_to_close_timeout=OPEN_LIMIT,
                retry_policy=RetryPolicy(maximum_attempts=3, non_retryable_error_types=NEVER_RETRIED),
            )
        except FailureError as error:
            if is_cancelled_exception(error):
                raise asyncio.CancelledError from error
            raise
        return opened

    def start_draft(self, stage: DraftInput) -> Running[DraftResult]:
        handle: asyncio.Task[DraftResult]
        if self._host is not None:
            handle = asyncio.create_task(self._host.draft(stage))
        else:
            handle = self._start(names.GENERATE_DRAFT, stage, stage.limit, DraftResult, attempts=3)
        return _RunningStage(handle, lambda failure: DraftResult(failure=failure), self.elapsed_ms)

    def start_plan(self, stage: PlanInput) -> Running[PlanResult]:
        handle = self._start(names.PLAN_GAPS, stage, stage.limit, PlanResult)
        return _RunningStage(handle, lambda failure: PlanResult(failure=failure), self.elapsed_ms)

    async def before_deadline(self, plan: Running[PlanResult], limit: Limit) -> bool:
        assert isinstance(plan, _RunningStage)
        return await self._settles(plan.handle, limit)

    async def _settles(self, handle: asyncio.Task[Any], limit: Limit) -> bool:
        """Race a stage against an activity that sleeps: a workflow timer may be a second late (design 3.1)."""
        deadline = self._start(names.HOLD_DEADLINE, limit, limit, type(None))
        deadline.add_done_callback(_take_exception)
        # A deadline that fails has fired: nobody is watching the clock any more.
        await workflow.wait([handle, deadline], return_when=asyncio.FIRST_COMPLETED)
        if handle.done():
            deadline.cancel()
        return handle.done()

    async def retrieve(self, stage: RetrieveInput) -> RetrieveResult:
        handle = self._start(names.RETRIEVE_CANDIDATES, stage, stage.limit, RetrieveResult, alone=True)
        return await _RunningStage(handle, lambda failure: RetrieveResult(failure=failure), self.elapsed_ms)

    async def admit(self, stage: AdmitInput) -> AdmitResult:
        handle = self._start(names.ADMIT_CANDIDATES, stage, stage.limit, AdmitResult)
        return await _RunningStage(handle, lambda failure: AdmitResult(failure=failure), self.elapsed_ms)

    async def regenerate(self, stage: RegenerateInput) -> RegenerateResult:
        handle: asyncio.Task[RegenerateResult]
        if self._host is not None:
            handle = asyncio.create_task(self._host.regenerate(stage))
        else:
            handle = self._start(names.REGENERATE, stage, stage.limit, RegenerateResult)
        return await _RunningStage(handle, lambda failure: RegenerateResult(failure=failure), self.elapsed_ms)

    async def record(self, record: TurnRecord, limit_ms: float) -> RecordResult:
        """Tried until it is on record or handed over: the activity says which."""
        recorded: RecordResult = await workflow.execute_local_activity(
            names.RECORD_TURN,
            RecordInput(record=record, limit_ms=limit_ms),
            result_type=RecordResult,
            start_to_close_timeout=RECORD_LIMIT,
        )
        return recorded

    def _start(
        self,
        name: str,
        stage: BaseModel,
        limit: Limit,
        result_type: type[Any],
        *,
        attempts: int = 2,
        alone: bool = False,
    ) -> asyncio.Task[Any]:
        """Start a stage; one that runs `alone`, with nothing beside it to wait for, as a local activity.

        Attempts of a regular stage are for a worker's death: a stage answers its own failures by value. A stage
        that was handed out again finds its deadline passed and says so.
        """
        until = timedelta(milliseconds=limit.limit_ms) + BACKSTOP
        if alone:
            return workflow.start_local_activity(
                name,
                stage,
                result_type=result_type,
                schedule_to_close_timeout=until,
                retry_policy=RetryPolicy(maximum_attempts=1),
                cancellation_type=workflow.ActivityCancellationType.TRY_CANCEL,
            )
        beating = name != names.HOLD_DEADLINE or limit.limit_ms > SHORT_DEADLINE_MS
        return asyncio.create_task(_regular(name, stage, until, result_type, attempts, beating))


async def _regular(
    name: str, stage: BaseModel, until: timedelta, result_type: type[Any], attempts: int, beating: bool
) -> Any:
    """A regular stage, started again when its worker is gone.

    Started here and not by the server's retry: news of the loss, like a result, waits about a second in the dead
    worker's sticky queue, and the timer of a retry would be a second more.
    """
    for attempt in range(1, attempts + 1):
        try:
            return await workflow.execute_activity(
                name,
                stage,
                result_type=result_type,
                start_to_close_timeout=until,
                heartbeat_timeout=HEARTBEAT_TIMEOUT if beating else None,
                retry_policy=RetryPolicy(maximum_attempts=1),
                cancellation_type=workflow.ActivityCancellationType.TRY_CANCEL,
            )
        except ActivityError as error:
            if attempt == attempts or not _worker_is_gone(error):
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")


def _worker_is_gone(error: ActivityError) -> bool:
    """It stopped beating, or its grace ended before the stage did."""
    cause = error.cause
    if isinstance(cause, TimeoutError):
        return cause.type is TimeoutType.HEARTBEAT
    return isinstance(cause, ApplicationError) and cause.type == "WorkerShutdown"


def _failure(error: FailureError) -> StageFailure:
    """Local stages raise the application's error, regular ones wrap it; a backstop that fired is a timeout."""
    cause = error.cause if isinstance(error, ActivityError) else error
    if isinstance(cause, TimeoutError):
        if cause.type is TimeoutType.SCHEDULE_TO_START:
            return StageFailure(kind=FailureKind.ERROR, error=names.HOST_NOT_SERVING)
        return StageFailure(kind=FailureKind.TIMEOUT, error="Backstop")
    name = cause.type if isinstance(cause, ApplicationError) and cause.type else type(cause).__name__
    return StageFailure(kind=FailureKind.ERROR, error=name[:200])


def _take_exception(handle: asyncio.Task[Any]) -> None:
    """A loser of a race is never awaited; its exception must not end up as "never retrieved" in the log."""
    if not handle.cancelled():
        handle.exception()
