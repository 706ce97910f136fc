"""`retrieve_candidates`: the gap queries against the index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio import activity

from activities.clocks import by_this_clock
from activities.heartbeat import heartbeating
from retold.contracts import names
from retold.contracts.stages import RetrieveInput, RetrieveResult
from retold.policy.stages import RetrieveStage


@dataclass(frozen=True)
class RetrievalActivities:
    stage: RetrieveStage

    def get_activities(self) -> Sequence[Callable[..., Any]]:
        return [self.retrieve_candidates]

    @activity.defn(name=names.RETRIEVE_CANDIDATES)
    async def retrieve_candidates(self, stage: RetrieveInput) -> RetrieveResult:
        async with heartbeating():
            return await self.stage(by_this_clock(stage))
