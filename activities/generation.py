"""`generate_draft` and `regenerate`: the serving model, without and with the admitted records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio import activity

from activities.clocks import by_this_clock
from activities.heartbeat import heartbeating
from retold.contracts import names
from retold.contracts.host_generation import AdmittedMemory
from retold.contracts.stages import DraftInput, DraftResult, RegenerateInput, RegenerateResult
from retold.policy.stages import GenerateStages


@dataclass(frozen=True)
class GenerationActivities:
    stages: GenerateStages

    def get_activities(self) -> Sequence[Callable[..., Any]]:
        return [self.generate_draft, self.regenerate, self.load_admitted]

    @activity.defn(name=names.GENERATE_DRAFT)
    async def generate_draft(self, stage: DraftInput) -> DraftResult:
        async with heartbeating():
            return await self.stages.draft(stage)

    @activity.defn(name=names.REGENERATE)
    async def regenerate(self, stage: RegenerateInput) -> RegenerateResult:
        async with heartbeating():
            return await self.stages.regenerate(by_this_clock(stage))

    @activity.defn(name=names.LOAD_ADMITTED)
    async def load_admitted(self, stage: RegenerateInput) -> AdmittedMemory:
        async with heartbeating():
            return await self.stages.load_admitted(by_this_clock(stage))
