"""Changes to records, as activities: each is one transaction of the store, and nothing beside it.

`at` is when it was asked. It is the same for every attempt, and that is how a second attempt knows the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from temporalio import activity

from activities.heartbeat import while_beating
from activities.refusals import refusals
from retold.contracts import names
from retold.contracts.lifecycle import (
    ContradictInput,
    CorrectInput,
    ExpireInput,
    LifecycleReport,
    ReadRecordsInput,
    RecordPage,
    RememberInput,
    RestoreInput,
    SupersedeInput,
)
from retold.contracts.operations import DeleteRecordInput
from retold.store.store import Store


@dataclass(frozen=True)
class RecordActivities:
    store: Store

    def get_activities(self) -> Sequence[Callable[..., Any]]:
        return [
            self.remember,
            self.supersede_record,
            self.contradict_records,
            self.correct_record,
            self.expire_record,
            self.restore_record,
            self.delete_record,
            self.read_records,
        ]

    @activity.defn(name=names.REMEMBER)
    @while_beating
    async def remember(self, asked: RememberInput, at: datetime) -> LifecycleReport:
        with refusals():
            return await self.store.lifecycle.remember(
                asked.principal, asked.records, actor=asked.actor, at=at, reason=asked.reason
            )

    @activity.defn(name=names.SUPERSEDE_RECORD)
    @while_beating
    async def supersede_record(self, asked: SupersedeInput, at: datetime) -> LifecycleReport:
        with refusals():
            return await self.store.lifecycle.supersede(asked, at=at)

    @activity.defn(name=names.CONTRADICT_RECORDS)
    @while_beating
    async def contradict_records(self, asked: ContradictInput, at: datetime) -> LifecycleReport:
        with refusals():
            return await self.store.lifecycle.contradict(asked, at=at)

    @activity.defn(name=names.CORRECT_RECORD)
    @while_beating
    async def correct_record(self, asked: CorrectInput, at: datetime) -> LifecycleReport:
        with refusals():
            return await self.store.lifecycle.correct(asked, at=at)

    @activity.defn(name=names.EXPIRE_RECORD)
    @while_beating
    async def expire_record(self, asked: ExpireInput, at: datetime) -> LifecycleReport:
        with refusals():
            return await self.store.lifecycle.expire(asked, at=at)

    @activity.defn(name=names.RESTORE_RECORD)
    @while_beating
    async def restore_record(self, asked: RestoreInput, at: datetime) -> LifecycleReport:
        with refusals():
            return await self.store.lifecycle.restore(asked, at=at)

    @activity.defn(name=names.DELETE_RECORD)
    @while_beating
    async def delete_record(self, asked: DeleteRecordInput, at: datetime) -> LifecycleReport:
        with refusals():
            return await self.store.lifecycle.delete(
                asked.principal,
                asked.record_id,
                actor=asked.actor,
                reason=asked.reason,
                at=at,
                expected_version=asked.expected_version,
            )

    @activity.defn(name=names.READ_RECORDS)
    async def read_records(self, asked: ReadRecordsInput) -> RecordPage:
        with refusals():
            return await self.store.lifecycle.read(asked)
