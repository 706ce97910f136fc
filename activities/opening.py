"""`open_turn`: configuration, switches, the session's profile and the inventory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from retold.contracts import names
from retold.contracts.stages import OpenInput, OpenResult
from retold.policy.ports import SessionOwnedByAnotherError
from retold.policy.stages import OpenStage


@dataclass(frozen=True)
class OpeningActivities:
    stage: OpenStage

    def get_activities(self) -> Sequence[Callable[..., Any]]:
        return [self.open_turn]

    @activity.defn(name=names.OPEN_TURN)
    async def open_turn(self, stage: OpenInput) -> OpenResult:
        try:
            return await self.stage(stage)
        except SessionOwnedByAnotherError as error:
            raise ApplicationError(
                str(error),
                type=names.SESSION_OWNED_BY_ANOTHER,
                non_retryable=True,
                category=ApplicationErrorCategory.BENIGN,
            ) from error
