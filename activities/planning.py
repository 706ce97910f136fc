"""`plan_gaps`, and `hold_deadline`, the activity that sleeps beside it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio import activity

from activities.clocks import by_this_clock, limit_by_this_clock
from activities.heartbeat import heartbeating
from retold.contracts import names
from retold.contracts.stages import Limit, PlanInput, PlanResult
from retold.policy.limits import left_ms
from retold.policy.stages import PlanStage


@dataclass(frozen=True)
class PlanningActivities:
    stage: PlanStage

    def get_activities(self) -> Sequence[Callable[..., Any]]:
        return [self.plan_gaps, self.hold_deadline]

    @activity.defn(name=names.PLAN_GAPS)
    async def plan_gaps(self, stage: PlanInput) -> PlanResult:
        async with heartbeating():
            return await self.stage(by_this_clock(stage))

    @activity.defn(name=names.HOLD_DEADLINE)
    async def hold_deadline(self, limit: Limit) -> None:
        """Return when the limit has passed: a sleep here is milliseconds late, a server-side timer up to a second."""
        async with heartbeating() if activity.info().heartbeat_timeout else contextlib.nullcontext():
            await asyncio.sleep(max(0.0, left_ms(limit_by_this_clock(limit))) / 1000)
