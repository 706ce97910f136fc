"""`record_turn` inside the turn, and `record_turn_late` in the workflow that outlives it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio import activity

from activities.heartbeat import heartbeating
from retold.contracts import names
from retold.contracts.decision import TurnRecord
from retold.contracts.recording import RecordInput, RecordResult
from retold.policy.recording import LateRecords, TurnRecorder
from retold.telemetry.names import RECORD_SPAN, turn_span


@dataclass(frozen=True)
class RecordingActivities:
    recorder: TurnRecorder
    later: LateRecords

    def get_activities(self) -> Sequence[Callable[..., Any]]:
        return [self.record_turn, self.record_turn_late]

    @activity.defn(name=names.RECORD_TURN)
    async def record_turn(self, stage: RecordInput) -> RecordResult:
        with turn_span(RECORD_SPAN):
            return await self.recorder.record(stage.record, stage.limit_ms, self.later)

    @activity.defn(name=names.RECORD_TURN_LATE)
    async def record_turn_late(self, record: TurnRecord) -> None:
        with turn_span(RECORD_SPAN):
            async with heartbeating():
                await self.recorder.record_late(record)
