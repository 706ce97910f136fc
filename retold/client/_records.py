"""A principal's records, as a host changes and reads them: `host.records`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import uuid4

from pydantic import BaseModel, ValidationError
from temporalio.client import Client

from retold.client._errors import OperationRefusedError, UnknownRecordError
from retold.client._operating import operated
from retold.contracts import names
from retold.contracts.identity import operation_workflow_id
from retold.contracts.lifecycle import (
    ContradictInput,
    CorrectInput,
    ExpireInput,
    LifecycleReport,
    ReadRecordsInput,
    RecordEvent,
    RecordOperation,
    RecordPage,
    RememberInput,
    RestoreInput,
    SupersedeInput,
    WriteOutcome,
)
from retold.contracts.operations import DeleteRecordInput
from retold.contracts.record import MemoryRecord, RecordId, RecordRef, RecordStatus, RecordWrite, Source
from retold.contracts.refusal import refusal_text
from retold.contracts.turn import Principal

DONE_WITHIN = timedelta(minutes=5)
READ_WITHIN = timedelta(seconds=45)

_WORKFLOWS: dict[type[RecordOperation], str] = {
    RememberInput: names.REMEMBER_WORKFLOW,
    SupersedeInput: names.SUPERSEDE_RECORD_WORKFLOW,
    ContradictInput: names.CONTRADICT_RECORDS_WORKFLOW,
    CorrectInput: names.CORRECT_RECORD_WORKFLOW,
    ExpireInput: names.EXPIRE_RECORD_WORKFLOW,
    RestoreInput: names.RESTORE_RECORD_WORKFLOW,
}

ResultT = TypeVar("ResultT")
ContractT = TypeVar("ContractT", bound=BaseModel)


class Records:
    """Changes are durable: once a call has returned, the change is stored, indexed, and due for its activation.

    The same call sent while it runs joins it; sent again later it changes nothing that it has changed already. Every
    method takes the `actor` and the `reason` the audit trail will name, and raises:

        OperationRefusedError: a field is out of bounds, or this cannot be done; the message says what to do instead.
        UnknownRecordError: the principal has no such record. Records are named by their id or by the host's own key.
        StaleRecordVersionError: the record has another version than `expected_version`.
        UnreachableError: Temporal is out of reach.
    """

    def __init__(self, client: Client, *, task_queue: str = names.LIFECYCLE_QUEUE) -> None:
        self._client = client
        self._task_queue = task_queue

    async def remember(
        self, principal: Principal, text: str, *, actor: str = "host", reason: str = "remembered", **fields: Any
    ) -> WriteOutcome:
        """Store one statement that the host vouches for.

        Args:
            fields: of :class:`RecordWrite`: `id` (the host's own key), `attribute`, `subject`, `scope`, `category`,
                `valid_from`, `valid_until`, `event_at`, ... `source` is `host` unless it is given.

        Returns:
            What became of it and of what it met. The same statement again is `unchanged`.
        """
        write = _checked(RecordWrite, text=text, **fields)
        report = await self.remember_many(principal, [write], actor=actor, reason=reason)
        (outcome,) = report.outcomes
        if outcome.disposition == "refused":
            raise OperationRefusedError(f"{outcome.field}: {outcome.message}")
        return outcome

    async def remember_many(
        self,
        principal: Principal,
        records: Sequence[RecordWrite],
        *,
        actor: str = "host",
        reason: str = "remembered",
    ) -> LifecycleReport:
        """Store up to 200 statements, in the order they were made. A refused one is in the answer, field and reason
        named, and does not keep the others from being stored. Their `source` is `host` unless it is given."""
        vouched_for = tuple(_vouched_for(record) for record in records)
        asked = _checked(RememberInput, principal=principal, records=vouched_for, actor=actor, reason=reason)
        return await self.change(asked)

    async def supersede(
        self,
        principal: Principal,
        record_id: str,
        by: RecordWrite,
        *,
        reason: str,
        actor: str = "host",
        expected_version: int | None = None,
    ) -> LifecycleReport:
        """`by` replaces the record. Both are about the same attribute of the same subject, in the same scope. Its
        `source` is `host` unless it is given."""
        asked = _checked(
            SupersedeInput,
            principal=principal,
            record_id=record_id,
            by=_vouched_for(by),
            actor=actor,
            reason=reason,
            expected_version=expected_version,
        )
        return await self.change(asked)

    async def contradict(
        self, principal: Principal, one: str, other: str, *, reason: str, actor: str = "host"
    ) -> LifecycleReport:
        """The two disagree: the stronger holds; where neither can be preferred neither is used until it is resolved."""
        asked = _checked(ContradictInput, principal=principal, record_ids=(one, other), actor=actor, reason=reason)
        return await self.change(asked)

    async def correct(
        self,
        principal: Principal,
        record_id: str,
        text: str,
        *,
        reason: str,
        actor: str = "host",
        expected_version: int | None = None,
        **fields: Any,
    ) -> LifecycleReport:
        """The record was wrong: the same record in new words. What is not given stays.

        Args:
            fields: `type`, `attribute`, `category`, `entities`, `valid_from`, `valid_until`.
        """
        asked = _checked(
            CorrectInput,
            principal=principal,
            record_id=record_id,
            text=text,
            actor=actor,
            reason=reason,
            expected_version=expected_version,
            **fields,
        )
        return await self.change(asked)

    async def expire(
        self,
        principal: Principal,
        record_id: str,
        *,
        reason: str,
        at: datetime | None = None,
        actor: str = "host",
        expected_version: int | None = None,
    ) -> LifecycleReport:
        """The record stops to hold at `at`, exclusive; None: now."""
        asked = _checked(
            ExpireInput,
            principal=principal,
            record_id=record_id,
            at=at,
            actor=actor,
            reason=reason,
            expected_version=expected_version,
        )
        return await self.change(asked)

    async def restore(
        self,
        principal: Principal,
        record_id: str,
        *,
        reason: str,
        actor: str = "host",
        expected_version: int | None = None,
    ) -> LifecycleReport:
        """Undo the expiry, supersession, rejection or deletion that befell the record last."""
        asked = _checked(
            RestoreInput,
            principal=principal,
            record_id=record_id,
            actor=actor,
            reason=reason,
            expected_version=expected_version,
        )
        return await self.change(asked)

    async def delete(
        self,
        principal: Principal,
        record_id: str,
        *,
        reason: str,
        actor: str = "host",
        expected_version: int | None = None,
    ) -> RecordRef:
        """The record is no memory any more. It can be restored; what is forgotten cannot."""
        asked = _checked(
            DeleteRecordInput,
            principal=principal,
            record_id=record_id,
            actor=actor,
            reason=reason,
            expected_version=expected_version,
        )
        return await self._change(names.DELETE_RECORD_WORKFLOW, asked, RecordRef)

    async def list(
        self,
        principal: Principal,
        *,
        statuses: Sequence[RecordStatus] | None = None,
        subject: str | None = None,
        attribute: str | None = None,
        after: RecordId | None = None,
        limit: int = 50,
    ) -> RecordPage:
        """Records of the principal, oldest first; of any status unless named. `after` is the last one of a page."""
        asked = _checked(
            ReadRecordsInput,
            principal=principal,
            statuses=None if statuses is None else tuple(statuses),
            subject=subject,
            attribute=attribute,
            after=after,
            limit=limit,
        )
        return await self._read(asked)

    async def show(self, principal: Principal, record_id: str) -> MemoryRecord:
        """One record, whatever its status."""
        page = await self._read(_checked(ReadRecordsInput, principal=principal, record_id=record_id))
        return _the_one(page)

    async def history(self, principal: Principal, record_id: str) -> tuple[RecordEvent, ...]:
        """What befell the record: who, when, from what to what. The latest 500 changes, oldest first."""
        asked = _checked(ReadRecordsInput, principal=principal, record_id=record_id, history=True)
        return (await self._read(asked)).history

    async def change(self, asked: RecordOperation) -> LifecycleReport:
        """Any of these changes, already checked: what the methods above put together."""
        return await self._change(_WORKFLOWS[type(asked)], asked, LifecycleReport)

    async def _change(
        self, workflow: str, asked: RecordOperation | DeleteRecordInput, result_type: type[ResultT]
    ) -> ResultT:
        digest = hashlib.sha256(f"{workflow}\n{asked.model_dump_json()}".encode()).hexdigest()
        return await self._run(workflow, asked, result_type, asked.principal, digest, DONE_WITHIN)

    async def _read(self, asked: ReadRecordsInput) -> RecordPage:
        return await self._run(
            names.READ_RECORDS_WORKFLOW, asked, RecordPage, asked.principal, str(uuid4()), READ_WITHIN
        )

    async def _run(
        self,
        workflow: str,
        asked: BaseModel,
        result_type: type[ResultT],
        principal: Principal,
        token: str,
        within: timedelta,
    ) -> ResultT:
        return await operated(
            self._client,
            workflow,
            asked,
            result_type,
            workflow_id=operation_workflow_id("records", principal, token),
            task_queue=self._task_queue,
            within=within,
        )


def _the_one(page: RecordPage) -> MemoryRecord:
    if not page.records:
        raise UnknownRecordError("no such record of this user")
    return page.records[0]


def _vouched_for(record: RecordWrite) -> RecordWrite:
    """What a host says here it vouches for; a copy of something older it has to call an import."""
    return record if "source" in record.model_fields_set else record.model_copy(update={"source": Source.HOST})


def _checked(contract: type[ContractT], **fields: Any) -> ContractT:
    try:
        return contract(**fields)
    except ValidationError as error:
        raise OperationRefusedError(refusal_text(error)) from error
