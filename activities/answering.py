"""`answer_turn`: a whole turn in one local activity, for durability `turn`.

Such a turn is repeated as a whole when its worker dies, so nothing is lost by it, and an activity a stage would cost
history events, passes through the workflow and payloads that nobody reads. The algorithm, the stages' bodies, their
limits and their spans are those of every driver.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio import activity

from retold.contracts import names
from retold.contracts.answering import AnswerInput, AnswerResult
from retold.contracts.decision import TurnRecord
from retold.contracts.recording import RecordResult
from retold.contracts.stages import DraftInput, DraftResult, OpenInput, OpenResult, PlanInput, PlanResult
from retold.contracts.turn import Durability
from retold.policy.driver import turn_failure
from retold.policy.in_process import InProcessStages, RunningTask
from retold.policy.permits import MemoryPermits
from retold.policy.recording import LateRecords, TurnRecorder
from retold.policy.stages import TurnStageBodies
from retold.policy.utility_aware import run_turn
from retold.telemetry.names import RECORD_SPAN, turn_span


@dataclass(frozen=True)
class AnsweringActivities:
    bodies: TurnStageBodies
    recorder: TurnRecorder
    later: LateRecords
    permits: MemoryPermits

    def get_activities(self) -> Sequence[Callable[..., Any]]:
        return [self.answer_turn]

    @activity.defn(name=names.ANSWER_TURN)
    async def answer_turn(self, asked: AnswerInput) -> AnswerResult:
        """Whatever becomes of the turn, by value. Of a turn that belongs in `stage`, only what was opened."""
        answering = asyncio.ensure_future(self._answer(asked))
        try:
            return await asyncio.shield(answering)
        except asyncio.CancelledError:
            if _worker_is_going():
                raise  # the turn is handed out again; what this attempt still records is found by the next
            answering.cancel()
            return await answering

    async def _answer(self, asked: AnswerInput) -> AnswerResult:
        stages = _OnOneWorker(self.bodies, self._record, permits=self.permits)
        try:
            result = await run_turn(asked.request, asked.start, stages)
        except _BelongsInStage as only:
            return AnswerResult(opened=only.opened)
        except asyncio.CancelledError:
            return AnswerResult(given_up=True)
        except Exception as error:  # noqa: BLE001 - a mistake of ours too: the host waits for something to be said
            failure = turn_failure(error)
            if failure.type == names.MISTAKE:
                activity.logger.exception("the turn's algorithm failed")
            return AnswerResult(failure=failure)
        finally:
            stages.leave()
        return AnswerResult(result=result)

    async def _record(self, record: TurnRecord, limit_ms: float) -> RecordResult:
        with turn_span(RECORD_SPAN):
            return await self.recorder.record(record, limit_ms, self.later)


class _BelongsInStage(Exception):
    """The configuration says that this turn's stages are to be durable one by one."""

    def __init__(self, opened: OpenResult) -> None:
        super().__init__()
        self.opened = opened


@dataclass(kw_only=True)
class _OnOneWorker(InProcessStages):
    """The stages in this process, unless the turn does not belong in one; memory as far as there are permits."""

    permits: MemoryPermits
    opened: OpenResult | None = None
    draft: RunningTask[DraftResult] | None = None
    plan: RunningTask[PlanResult] | None = None
    has_permit: bool = False

    async def open(self, stage: OpenInput) -> OpenResult:
        self.opened = await super().open(stage)
        return self.opened

    def choose(self, durability: Durability, budget_ms: int | None) -> None:
        if durability is Durability.STAGE:
            assert self.opened is not None, "the durability is chosen by what was opened"
            raise _BelongsInStage(self.opened)

    def start_draft(self, stage: DraftInput) -> RunningTask[DraftResult]:
        self.draft = super().start_draft(stage)
        return self.draft

    def start_plan(self, stage: PlanInput) -> RunningTask[PlanResult]:
        self.plan = RunningTask(self._planned(stage), self.elapsed_ms)
        return self.plan

    async def _planned(self, stage: PlanInput) -> PlanResult:
        assert self.draft is not None, "a plan is for the gaps of a draft"
        self.has_permit = await self.permits.taken(before=self.draft.task)
        return await self.bodies.plan(stage) if self.has_permit else PlanResult(overloaded=True)

    def leave(self) -> None:
        """However the turn ended: the plan it may have left behind neither keeps a permit nor gets one."""
        if self.plan is not None and not self.plan.done():
            self.plan.abandon()
        if self.has_permit:
            self.has_permit = False
            self.permits.give_back()


def _worker_is_going() -> bool:
    details = activity.cancellation_details()
    return details is not None and details.worker_shutdown and not details.cancel_requested
