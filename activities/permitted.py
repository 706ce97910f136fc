"""Permits for stages that are activities of their own (durability `stage`): the same bound as for whole turns.

Such a turn is on no worker between its stages, so it holds a permit while one of them runs. Planning begins its use
of memory and may find none free; what follows has begun, and counts without waiting.
"""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from retold.contracts import names
from retold.contracts.stages import PlanResult
from retold.policy.permits import MemoryPermits

WAITS_S = 0.25
"""For a permit: about what a draft takes, beside which the planner is asked."""
BEGUN = frozenset({names.ADMIT_CANDIDATES, names.REGENERATE})


class PermittedStages(Interceptor):
    def __init__(self, permits: MemoryPermits) -> None:
        self._permits = permits

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Permitted(next, self._permits)


class _Permitted(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, permits: MemoryPermits) -> None:
        super().__init__(next)
        self._permits = permits

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        match activity.info().activity_type:
            case names.PLAN_GAPS:
                return await self._planned(input)
            case begun if begun in BEGUN:
                with self._permits.used():
                    return await super().execute_activity(input)
            case _:
                return await super().execute_activity(input)

    async def _planned(self, input: ExecuteActivityInput) -> Any:
        waited = asyncio.ensure_future(asyncio.sleep(WAITS_S))
        try:
            if not await self._permits.taken(before=waited):
                return PlanResult(overloaded=True)
        finally:
            waited.cancel()
        try:
            return await super().execute_activity(input)
        finally:
            self._permits.give_back()
