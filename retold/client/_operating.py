"""One operation, run to its end: started or joined, and what goes wrong with it as a type of ours."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar

from temporalio.client import Client, WorkflowFailureError
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.service import RPCError

from retold.client._errors import from_failure, out_of_reach

ResultT = TypeVar("ResultT")


async def operated(
    client: Client,
    workflow: str,
    asked: Any,
    result_type: type[ResultT],
    *,
    workflow_id: str,
    task_queue: str,
    within: timedelta | None = None,
) -> ResultT:
    """What the operation answers. The same id joins one that still runs, and repeats one that ended.

    Args:
        within: its execution timeout; None: once begun it is finished, whoever still waits for it.

    Raises:
        RetoldError: it was refused or failed; the subclass says how.
        UnreachableError: Temporal is out of reach.
    """
    try:
        result: ResultT = await client.execute_workflow(
            workflow,
            asked,
            id=workflow_id,
            task_queue=task_queue,
            result_type=result_type,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            execution_timeout=within,
        )
    except WorkflowFailureError as failure:
        raise from_failure(failure) from failure
    except (RPCError, RuntimeError) as error:
        raise out_of_reach(error) from error
    return result
