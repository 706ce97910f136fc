"""`admit_candidates`: the judge over all candidates together, against the draft."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio import activity

from activities.clocks import by_this_clock
from activities.heartbeat import heartbeating
from retold.contracts import names
from retold.contracts.stages import AdmitInput, AdmitResult
from retold.policy.stages import AdmitStage


@dataclass(frozen=True)
class AdmissionActivities:
    stage: AdmitStage

    def get_activities(self) -> Sequence[Callable[..., Any]]:
        return [self.admit_candidates]

    @activity.defn(name=names.ADMIT_CANDIDATES)
    async def admit_candidates(self, stage: AdmitInput) -> AdmitResult:
        async with heartbeating():
            return await self.stage(by_this_clock(stage))
