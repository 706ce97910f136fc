"""`read_transcript`: one round of extraction. Texts are read, judged and stored here, and appear in no history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio import activity

from activities.heartbeat import heartbeating
from retold.contracts import names
from retold.contracts.extraction import ExtractInput, ExtractRound
from retold.policy.extraction import ExtractionService
from retold.telemetry.names import READING_SPAN, turn_span


@dataclass(frozen=True)
class ExtractionActivities:
    """Args:
    activation_queue: where what was written is evaluated.
    """

    service: ExtractionService
    activation_queue: str = names.LIFECYCLE_QUEUE

    def get_activities(self) -> Sequence[Callable[..., Any]]:
        return [self.read_transcript]

    @activity.defn(name=names.READ_TRANSCRIPT)
    async def read_transcript(self, request: ExtractInput) -> ExtractRound:
        with turn_span(READING_SPAN):
            async with heartbeating():
                read = await self.service.read(request.principal, request.session_id, actor=request.actor)
        return ExtractRound(
            report=read.report, changed=read.changed, more=read.more, activation_queue=self.activation_queue
        )
