"""What an operation has changed comes to its activation, in a workflow of its own that outlives the operation."""

from __future__ import annotations

from collections.abc import Sequence

from temporalio import workflow
from temporalio.workflow import ParentClosePolicy

with workflow.unsafe.imports_passed_through():
    from retold.contracts import names
    from retold.contracts.activation import ACTIVATION_BATCH_MAX, ActivationInput
    from retold.contracts.identity import operation_workflow_id
    from retold.contracts.record import RecordId
    from retold.contracts.turn import Principal


async def begin_evaluation(
    principal: Principal, record_ids: Sequence[RecordId], *, actor: str, cause: str, queue: str | None = None
) -> None:
    """Returns when the evaluation has begun: closed in the same task as it is started, a child silently never runs.

    Args:
        queue: whose workers evaluate; None: those of the caller's own task queue.
    """
    for start in range(0, len(record_ids), ACTIVATION_BATCH_MAX):
        await workflow.start_child_workflow(
            names.ACTIVATION_WORKFLOW,
            ActivationInput(
                principal=principal,
                record_ids=tuple(record_ids[start : start + ACTIVATION_BATCH_MAX]),
                actor=actor,
                cause=cause,
            ),
            id=operation_workflow_id("activate", principal, f"{workflow.info().run_id}-{start}"),
            task_queue=queue,
            parent_close_policy=ParentClosePolicy.ABANDON,
        )
