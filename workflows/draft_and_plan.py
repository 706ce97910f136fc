"""Draft and plan of a turn in durability `turn`: two stages for the algorithm, one local activity for Temporal.

The activity is started when the draft is awaited; by then the algorithm has said whether it wants a plan. Its result
holds when each of the two ended, so that the clock can show the algorithm the moment the draft was there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from retold.contracts.stages import (
        DraftAndPlanInput,
        DraftAndPlanResult,
        DraftInput,
        DraftResult,
        PlanInput,
        PlanResult,
    )


class DraftAndPlan:
    """The pair while it runs. `clock_ms` is the time to show, until the plan's end is looked at."""

    def __init__(
        self,
        draft: DraftInput,
        budget_ms: int | None,
        started_ms: float,
        run: Callable[[DraftAndPlanInput], Awaitable[DraftAndPlanResult]],
    ) -> None:
        self._draft = draft
        self._budget_ms = budget_ms
        self._started_ms = started_ms
        self._run = run
        self._plan: PlanInput | None = None
        self._result: DraftAndPlanResult | None = None
        self.clock_ms: float | None = None

    def with_plan(self, plan: PlanInput) -> PairedPlan:
        self._plan = plan
        return PairedPlan(self)

    def draft(self) -> PairedDraft:
        return PairedDraft(self)

    async def drafted(self) -> DraftResult:
        asked = DraftAndPlanInput(draft=self._draft, plan=self._plan, budget_ms=self._budget_ms)
        self._result = await self._run(asked)
        self.clock_ms = self._started_ms + self._result.drafted_after_ms
        return self._result.draft

    @property
    def result(self) -> DraftAndPlanResult:
        assert self._result is not None, "the draft is awaited before anything is asked about the plan"
        return self._result

    @property
    def planned_ms(self) -> float:
        return self._started_ms + self.result.planned_after_ms

    def plan_looked_at(self) -> None:
        self.clock_ms = None


class PairedDraft:
    def __init__(self, pair: DraftAndPlan) -> None:
        self._pair = pair

    def done(self) -> bool:
        return self._pair.clock_ms is not None

    @property
    def finished_ms(self) -> float | None:
        return self._pair.clock_ms

    def abandon(self) -> None:
        """It ends with its pair."""

    def __await__(self) -> Generator[Any, None, DraftResult]:
        return self._pair.drafted().__await__()


class PairedPlan:
    """The plan of a pair: when anybody asks about it, its fate is known."""

    def __init__(self, pair: DraftAndPlan) -> None:
        self._pair = pair

    def done(self) -> bool:
        """Whether the plan was there when the draft was."""
        result = self._pair.result
        return result.plan is not None and result.planned_after_ms <= result.drafted_after_ms

    @property
    def finished_ms(self) -> float | None:
        return self._pair.planned_ms

    def abandon(self) -> None:
        self._pair.plan_looked_at()

    def before_deadline(self) -> bool:
        self._pair.plan_looked_at()
        return not self._pair.result.plan_cut_off

    def __await__(self) -> Generator[Any, None, PlanResult]:
        return self._planned().__await__()

    async def _planned(self) -> PlanResult:
        if not self.done():
            self._pair.plan_looked_at()
        planned = self._pair.result.plan
        assert planned is not None, "a plan that was cut off is not awaited"
        return planned
