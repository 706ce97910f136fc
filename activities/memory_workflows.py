"""Starts what is due without anybody having asked: sessions to be read, and records whose time has come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy

from retold.contracts import names
from retold.contracts.activation import ActivationInput
from retold.contracts.extraction import ExtractInput
from retold.contracts.identity import operation_workflow_id
from retold.contracts.record import RecordId
from retold.contracts.turn import Principal

ACTOR = "retold"


@dataclass(frozen=True)
class MemoryWorkflows:
    """Every start is idempotent: what runs already is not started twice, and what ended may run again.

    Each raises RPCError when Temporal is out of reach.
    """

    client: Client
    extraction_queue: str
    activation_queue: str

    async def read(self, principal: Principal, session_id: str) -> None:
        """Have what the principal said in the session read."""
        await self.client.start_workflow(
            names.EXTRACTION_WORKFLOW,
            ExtractInput(principal=principal, session_id=session_id, actor=ACTOR),
            id=operation_workflow_id("extract", principal, session_id),
            task_queue=self.extraction_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        )

    async def evaluate(self, principal: Principal, record_ids: Sequence[RecordId]) -> None:
        """Have records evaluated whose time has come."""
        await self.client.start_workflow(
            names.ACTIVATION_WORKFLOW,
            ActivationInput(principal=principal, record_ids=tuple(record_ids), actor=ACTOR, cause="its time has come"),
            id=operation_workflow_id("activate", principal, "by the clock"),
            task_queue=self.activation_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        )
