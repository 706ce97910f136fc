"""`draft_and_plan`: both stages and the race between them in one local activity, for durability `turn`.

Such a turn is repeated as a whole when its worker dies, so nothing is lost by it, and two history events and three
passes through the workflow are saved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio import activity

from retold.contracts import names
from retold.contracts.stages import DraftAndPlanInput, DraftAndPlanResult
from retold.policy.stages import GenerateStages, PlanStage, draft_and_plan


@dataclass(frozen=True)
class DraftAndPlanActivities:
    generate: GenerateStages
    plan: PlanStage

    def get_activities(self) -> Sequence[Callable[..., Any]]:
        return [self.draft_and_plan]

    @activity.defn(name=names.DRAFT_AND_PLAN)
    async def draft_and_plan(self, stage: DraftAndPlanInput) -> DraftAndPlanResult:
        return await draft_and_plan(self.generate, self.plan, stage)
