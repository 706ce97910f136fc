"""Workflow executions that carry what is being forgotten: found, ended, deleted, and looked for again.

A principal's executions are found by how their ids begin. Visibility compares without regard to case on some stores,
so what it answers is compared once more here. Executions of ours under other ids are looked into, one by one.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message
from temporalio.api.common.v1 import WorkflowExecution as ExecutionName
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from retold.client.encryption import payloads_in
from retold.contracts import identity, names
from retold.contracts.decision import TurnRecord
from retold.contracts.forgetting import Forgetting
from retold.policy.forgetting import Probes
from retold.store import tombstones

TYPES = tuple(
    value for name, value in vars(names).items()
    if name.endswith("_WORKFLOW") and value not in (names.FORGET_WORKFLOW, names.REVIEW_WORKFLOW)
)  # fmt: skip
"""Workflows whose executions may carry text. Reviews are found by their ids; forgetting itself carries none."""

TURN_ENDS_WITHIN_S = 130.0
"""A turn that may already have read the record is waited for: the client bounds a turn to 120 s."""
OTHERS_END_WITHIN_S = 15.0
VISIBLE_AFTER_S = 1.0
"""Until then an execution may have started that cannot be listed yet. Waited for each time: what a worker's clock
makes of the moment it was asked for says nothing about that."""
GONE_WITHIN_S = 150.0
"""Temporal deletes when it has taken note of the execution's end: at once, or with stock settings after 30 s."""
LOOK_EVERY_S = 0.25
AT_ONCE = 8


class StillThereError(Exception):
    """Temporal has not deleted in time. Worth a retry."""


@dataclass(frozen=True)
class Found:
    executions: Sequence[WorkflowExecution]
    """Those that carry what is forgotten."""
    looked_at: int


class ForgottenExecutions:
    """The executions of one forgetting.

    Args:
        buried: what it has forgotten, by name, as the tombstones say.
    """

    def __init__(
        self, client: Client, forgetting: Forgetting, probes: Probes, buried: Mapping[str, frozenset[str]]
    ) -> None:
        self._client = client
        self._forgetting = forgetting
        self._probes = probes
        self._buried = buried
        self._prefixes = identity.principal_prefixes(forgetting.principal)
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def close_open(self) -> int:
        """End what runs and concerns it; how many. Turns are cancelled, or waited for if only a record is forgotten."""
        await asyncio.sleep(VISIBLE_AFTER_S)
        running = [
            each for each in await self._candidates("ExecutionStatus = 'Running'") if await self._is_to_end(each)
        ]
        for each in running:
            if _is_turn(each) and self._forgetting.what != tombstones.RECORD:
                await _unless_gone(self._handle(each).cancel())
        waiting, since = list(running), time.monotonic()
        while waiting and not self._patience_is_over(waiting, since):
            await asyncio.sleep(LOOK_EVERY_S)
            waiting = [each for each in waiting if await self._runs(each)]
        for each in waiting:
            await _unless_gone(self._handle(each).terminate("what it carries was forgotten"))
        return len(running)

    async def find(self) -> Found:
        """Executions that carry it, open or closed."""
        await asyncio.sleep(VISIBLE_AFTER_S)  # for what began after the last look and before the texts were gone
        candidates = await self._candidates()
        carrying = await asyncio.gather(*(self._carries(each) for each in candidates))
        return Found([each for each, yes in zip(candidates, carrying, strict=True) if yes], len(candidates))

    async def delete(self, executions: Sequence[WorkflowExecution]) -> None:
        """Delete these and wait until nobody knows them any more.

        Raises:
            StillThereError: some are still there after 150 s.
        """
        await asyncio.gather(*(self._delete(each) for each in executions))
        left, since = list(executions), time.monotonic()
        while left := [each for each in left if await self._is_known(each)]:
            if time.monotonic() - since > GONE_WITHIN_S:
                raise StillThereError(f"{len(left)} of {len(executions)} executions are not deleted yet")
            await asyncio.sleep(LOOK_EVERY_S)

    # --- which ----------------------------------------------------------------------------------------------------

    async def _candidates(self, also: str = "") -> list[WorkflowExecution]:
        found = {
            (each.id, each.run_id): each
            for query in self._queries()
            async for each in self._client.list_workflows(f"({query}) AND {also}" if also else query)
            if self._may_concern(each)
        }
        return list(found.values())

    def _queries(self) -> Iterator[str]:
        types = ", ".join(f"'{name}'" for name in TYPES)
        for some in _chunks(self._prefixes, 8):
            starts = " OR ".join(f"WorkflowId STARTS_WITH '{prefix}'" for prefix in some)
            yield f"({starts}) AND WorkflowType IN ({types})"
        strays = " AND ".join(f"WorkflowId NOT STARTS_WITH '{prefix}'" for prefix in _kinds())
        yield f"{strays} AND WorkflowType IN ({types})"
        for some in _chunks(sorted(self._buried.get(tombstones.REVIEW, ())), 50):
            ids = ", ".join(f"'{identity.review_workflow_id(review)}'" for review in some)
            yield f"WorkflowId IN ({ids})"

    def _may_concern(self, each: WorkflowExecution) -> bool:
        if _is_late_record(each):
            return self._is_owned(each) or _is_stray(each)  # of a turn that may be older than it
        before = each.start_time < self._forgetting.forgotten_at
        return before and (self._is_owned(each) or _is_stray(each) or each.workflow_type == names.REVIEW_WORKFLOW)

    async def _is_to_end(self, each: WorkflowExecution) -> bool:
        if self._forgetting.what == tombstones.RECORD and _is_turn(each):
            return self._is_owned(each)
        return await self._carries(each)

    async def _carries(self, each: WorkflowExecution) -> bool:
        if each.workflow_type == names.REVIEW_WORKFLOW:
            return True
        async with self._slots:
            if _is_late_record(each):
                record = await self._late_record(each)
                return record is not None and self._covers(record)
            if self._is_owned(each) and self._by_name(each):
                return True
            return await self._holds_text(each)

    def _by_name(self, each: WorkflowExecution) -> bool:
        match self._forgetting.what:
            case "principal":
                return True
            case "session":
                return each.id.startswith(
                    identity.session_prefix(self._forgetting.principal, self._forgetting.subject_id)
                )
            case _:
                turns = self._buried.get(tombstones.TURN, frozenset()) | self._buried.get(
                    tombstones.ANSWER, frozenset()
                )
                return identity.decision_id(each.id) in turns

    def _covers(self, record: TurnRecord) -> bool:
        decision, forgetting = record.decision, self._forgetting
        if decision.principal != forgetting.principal or decision.at >= forgetting.forgotten_at:
            return False
        match forgetting.what:
            case "principal":
                return True
            case "session":
                return decision.session_id == forgetting.subject_id
            case _:
                ids = self._buried.get(tombstones.RECORD, frozenset())
                said = (record.user_text, record.draft, record.final)
                return bool(self._probes.within(*said)) or any(ref.id in ids for ref in decision.applied)

    def _is_owned(self, each: WorkflowExecution) -> bool:
        return each.id.startswith(self._prefixes)

    async def _holds_text(self, each: WorkflowExecution) -> bool:
        """Whether its history holds one of the texts; of a stray one, also whether it is the principal's at all."""
        whole = self._forgetting.what == tombstones.PRINCIPAL
        first = True
        async for event in self._events(each):
            for said in await self._said(event):
                if self._probes.within_json(said) or (whole and first and _names(said, self._forgetting)):
                    return True
            first = False
        return False

    async def _late_record(self, each: WorkflowExecution) -> TurnRecord | None:
        async for event in self._events(each):
            given = event.workflow_execution_started_event_attributes.input.payloads
            (record,) = await self._client.data_converter.decode(given, [TurnRecord])
            return record if isinstance(record, TurnRecord) else None
        return None

    async def _events(self, each: WorkflowExecution) -> AsyncIterator[Any]:
        try:
            async for event in self._handle(each).fetch_history_events():
                yield event
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # deleted since it was listed
                raise

    async def _said(self, event: Message) -> list[bytes]:
        """The event as bytes, and what its payloads hold if they are encoded."""
        codec = self._client.data_converter.payload_codec
        if codec is None:
            return [event.SerializeToString(), *(payload.data for payload in payloads_in(event))]
        decoded = await codec.decode(list(payloads_in(event)))
        return [event.SerializeToString(), *(payload.data for payload in decoded)]

    # --- what is done with them -----------------------------------------------------------------------------------

    async def _delete(self, each: WorkflowExecution) -> None:
        async with self._slots:
            await _unless_gone(
                self._client.workflow_service.delete_workflow_execution(
                    DeleteWorkflowExecutionRequest(
                        namespace=self._client.namespace,
                        workflow_execution=ExecutionName(workflow_id=each.id, run_id=each.run_id),
                    )
                )
            )

    async def _runs(self, each: WorkflowExecution) -> bool:
        described = await _unless_gone(self._handle(each).describe())
        return described is not None and described.status is WorkflowExecutionStatus.RUNNING

    async def _is_known(self, each: WorkflowExecution) -> bool:
        async with self._slots:
            if await _unless_gone(self._handle(each).describe()) is not None:
                return True
            listed = self._client.list_workflows(f"WorkflowId = '{each.id}' AND RunId = '{each.run_id}'")
            return [found async for found in listed] != []

    def _patience_is_over(self, waiting: Sequence[WorkflowExecution], since: float) -> bool:
        for_turns = self._forgetting.what == tombstones.RECORD and any(_is_turn(each) for each in waiting)
        return time.monotonic() - since > (TURN_ENDS_WITHIN_S if for_turns else OTHERS_END_WITHIN_S)

    def _handle(self, each: WorkflowExecution) -> WorkflowHandle[Any, Any]:
        return self._client.get_workflow_handle(each.id, run_id=each.run_id)


def _kinds() -> tuple[str, ...]:
    """How the ids of executions begin whose principal can be told from them."""
    kinds = ("turn", *identity.OPERATION_KINDS)
    return tuple(f"{kind}{form}" for kind in kinds for form in ("/", "-sha256/"))


def _is_stray(each: WorkflowExecution) -> bool:
    return not each.id.startswith(_kinds())


def _is_turn(each: WorkflowExecution) -> bool:
    return each.workflow_type == names.TURN_WORKFLOW


def _is_late_record(each: WorkflowExecution) -> bool:
    return each.workflow_type == names.RECORD_TURN_WORKFLOW


def _names(said: bytes, forgetting: Forgetting) -> bool:
    """Whether a workflow's argument names the principal, however deep."""
    try:
        return _has_principal(json.loads(said), forgetting.principal.model_dump())
    except (ValueError, RecursionError):
        return False


def _has_principal(value: object, principal: Mapping[str, str]) -> bool:
    match value:
        case dict():
            named = {key: value.get(key) for key in principal} == principal
            return named or any(_has_principal(each, principal) for each in value.values())
        case list():
            return any(_has_principal(each, principal) for each in value)
        case _:
            return False


async def _unless_gone(call: Any) -> Any:
    """What the call answers; None if there is no such execution, or it has ended."""
    try:
        return await call
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return None


def _chunks(values: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (values[start : start + size] for start in range(0, len(values), size))
