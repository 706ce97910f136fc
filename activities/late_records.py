"""Handing a turn's record to a workflow of its own: one call, once acknowledged as durable as the turn itself."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity
from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from retold.contracts import names
from retold.contracts.decision import TurnRecord
from retold.contracts.stages import StoredAnswer
from retold.policy.recording import answer_of

BEGINS_AFTER = timedelta(seconds=2)
"""As long as the breaker stays open: a store that was slow just now still is, and workers have turns to answer."""
TAKEN_WITHIN = timedelta(seconds=2)


@dataclass(frozen=True)
class LateRecordWorkflows:
    """Starts `RecordTurnWorkflow` on the task queue of the turn, from inside its activity.

    Started by the turn's workflow instead, as its child, it would cost the turn one more workflow task: the child's
    start must be awaited, or it never runs.
    """

    client: Client

    async def take(self, record: TurnRecord) -> StoredAnswer | None:
        """See `LateRecords.take`. Beside records without an answer any other is taken; the store knows which stays.

        Raises:
            RPCError: Temporal did not take it.
        """
        for number in itertools.count():
            workflow_id = _workflow_id(number)
            if await self._started(workflow_id, record):
                return None
            if (earlier := await self._answer_taken_before(workflow_id)) is not None:
                return earlier
        raise AssertionError("unreachable: some number is free")

    async def _started(self, workflow_id: str, record: TurnRecord) -> bool:
        try:
            await self.client.start_workflow(
                names.RECORD_TURN_WORKFLOW,
                record,
                id=workflow_id,
                task_queue=activity.info().task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                start_delay=BEGINS_AFTER,
                rpc_timeout=TAKEN_WITHIN,
            )
        except WorkflowAlreadyStartedError:
            return False
        return True

    async def _answer_taken_before(self, workflow_id: str) -> StoredAnswer | None:
        """The record a workflow was started with is the first thing in its history."""
        async for event in self.client.get_workflow_handle(workflow_id).fetch_history_events(page_size=1):
            given = event.workflow_execution_started_event_attributes.input.payloads
            (record,) = await self.client.data_converter.decode(given, [TurnRecord])
            return answer_of(record, recorded=False)
        return None


def _workflow_id(number: int) -> str:
    """Names the run of the turn, so that an attempt that is repeated meets what it handed over before."""
    first = f"record/{activity.info().workflow_run_id}"
    return first if number == 0 else f"{first}/{number}"
