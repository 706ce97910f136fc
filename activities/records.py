"""Changes to records, as activities: each is one transaction of the store, and nothing beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio import activity

from activities.refusals import refusals
from retold.contracts import names
from retold.contracts.operations import DeleteRecordInput
from retold.contracts.record import RecordRef
from retold.policy.limits import utc_now
from retold.store.store import Store


@dataclass(frozen=True)
class RecordActivities:
    store: Store

    def get_activities(self) -> Sequence[Callable[..., Any]]:
        return [self.delete_record]

    @activity.defn(name=names.DELETE_RECORD)
    async def delete_record(self, request: DeleteRecordInput) -> RecordRef:
        with refusals():
            deleted = await self.store.delete_record(
                request.principal, request.record_id, actor=request.actor, reason=request.reason, at=utc_now()
            )
        return deleted.ref
