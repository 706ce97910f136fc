"""Replay of a recorded turn: the stored stage outcomes and times, fed to the very algorithm that decided.

This is what "replayable" means here (design section 3.6): `replay` runs `run_turn` once more, without any model,
store or clock, and must arrive at the stored disposition and reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from retold.contracts.decision import StageTiming, TurnDecision, TurnRecord
from retold.contracts.disposition import Outcome, outcome
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
    ProfileBlock,
    RegenerateInput,
    RegenerateResult,
    RetrieveInput,
    RetrieveResult,
    Stage,
)
from retold.contracts.turn import Durability, TurnOptions, TurnRequest
from retold.policy.driver import DraftFailedError, TurnStart
from retold.policy.utility_aware import run_turn

_ANY_TEXT = "(not stored in the decision)"
ResultT = TypeVar("ResultT")


class NotReplayableError(Exception):
    """The decision does not hold what its own outcome implies: it was altered, or written by a broken version."""


async def replay(decision: TurnDecision) -> Outcome:
    """The outcome the algorithm reaches from what the decision stored.

    Raises:
        NotReplayableError: the algorithm asked for a stage the decision has no outcome of.
    """
    stages = _StoredStages(decision)
    request = TurnRequest(
        principal=decision.principal,
        session_id=decision.session_id,
        turn_id=decision.turn_id,
        text=_ANY_TEXT,
        options=TurnOptions(latency_budget_ms=decision.requested_budget_ms, durability=decision.durability),
    )
    start = TurnStart(started_at=decision.at, late_by_ms=decision.late_by_ms, redelivered=decision.redelivered)
    try:
        await run_turn(request, start, stages)
    except (DraftFailedError, asyncio.CancelledError):
        if stages.replayed is None:
            raise
    assert stages.replayed is not None, "every turn is recorded"
    return outcome(stages.replayed.disposition, stages.replayed.reason)


class _Stored(Generic[ResultT]):
    """A stage that ended long ago."""

    def __init__(self, stages: _StoredStages, result: ResultT | None, timing: StageTiming | None) -> None:
        self._stages, self._result, self._timing = stages, result, timing

    def done(self) -> bool:
        return self._timing is not None and self._timing.ended_ms <= self._stages.now_ms

    @property
    def finished_ms(self) -> float | None:
        return self._timing.ended_ms if self._timing is not None else None

    def abandon(self) -> None:
        self._result = None

    def __await__(self) -> Generator[Any, Any, ResultT]:
        self._stages.advance(self._timing)
        if self._result is None:
            raise self._stages.missing()
        return self._result
        yield  # an awaitable that never suspends


class _StoredStages:
    def __init__(self, decision: TurnDecision) -> None:
        self._decision = decision
        self._timings = {timing.stage: timing for timing in decision.timings}
        self.now_ms = 0.0
        self.replayed: TurnDecision | None = None

    def elapsed_ms(self) -> float:
        return self.now_ms

    def utc_now(self) -> datetime:
        return self._decision.at + timedelta(milliseconds=self.now_ms)

    def choose(self, durability: Durability, budget_ms: int | None) -> None:
        """The stored durability was asked for; there is nothing to start."""

    def advance(self, timing: StageTiming | None) -> None:
        if timing is not None:
            self.now_ms = max(self.now_ms, timing.ended_ms)

    def missing(self) -> BaseException:
        """A stage without an outcome is where the host cancelled; anywhere else it is a hole."""
        if self._decision.outcomes.cancelled:
            return asyncio.CancelledError()
        return NotReplayableError(f"decision {self._decision.decision_id} lacks the outcome of a stage it went through")

    async def open(self, stage: OpenInput) -> OpenResult:
        decision = self._decision
        if Stage.OPEN not in self._timings:
            raise self.missing()
        self.advance(self._timings[Stage.OPEN])
        return OpenResult(
            config=decision.config,
            switches=decision.switches,
            profile=ProfileBlock(records=decision.profile_records),
            inventory=decision.inventory,
            failure=decision.outcomes.open_failure,
        )

    def start_draft(self, stage: DraftInput) -> _Stored[DraftResult]:
        timing, outcomes = self._timings.get(Stage.DRAFT), self._decision.outcomes
        if timing is None:
            return _Stored(self, None, None)
        failure = outcomes.draft_failure
        return _Stored(self, DraftResult(text=None if failure else _ANY_TEXT, failure=failure), timing)

    def start_plan(self, stage: PlanInput) -> _Stored[PlanResult]:
        return _Stored(self, self._decision.outcomes.plan, self._timings.get(Stage.PLAN))

    async def before_deadline(self, plan: object, limit: Limit) -> bool:
        self.advance(self._timings.get(Stage.PLAN))
        if self._decision.outcomes.plan is None and not self._decision.outcomes.plan_cut_off:
            raise self.missing()
        return not self._decision.outcomes.plan_cut_off

    async def retrieve(self, stage: RetrieveInput) -> RetrieveResult:
        return self._ended(Stage.RETRIEVE, self._decision.outcomes.retrieve)

    async def admit(self, stage: AdmitInput) -> AdmitResult:
        return self._ended(Stage.ADMIT, self._decision.outcomes.admit)

    async def regenerate(self, stage: RegenerateInput) -> RegenerateResult:
        result = self._ended(Stage.REGENERATE, self._decision.outcomes.regenerate)
        return result.model_copy(update={"text": _ANY_TEXT if result.applied else None})

    async def record(self, record: TurnRecord, limit_ms: float) -> RecordResult:
        self.replayed = record.decision
        return RecordResult(written=True)

    def _ended(self, stage: Stage, result: ResultT | None) -> ResultT:
        if result is None:
            raise self.missing()
        self.advance(self._timings[stage])
        return result
