"""How a workflow has something done that was asked for once: until it works, or until it is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from retold.contracts import names

ResultT = TypeVar("ResultT")

MISSED_AFTER = timedelta(seconds=5)
"""A worker not heard from for so long is dead, and another goes on. Every activity named here beats while it runs."""


async def durably(activity: str, arguments: Any, result_type: type[ResultT]) -> ResultT:
    """What the activity answers. Retried until it works, unless it was refused: a refusal will not become right.

    Args:
        arguments: the activity's one argument, a tuple of several, or None.
    """
    args = [] if arguments is None else [*arguments] if isinstance(arguments, tuple) else [arguments]
    result: ResultT = await workflow.execute_activity(
        activity,
        args=args,
        result_type=result_type,
        start_to_close_timeout=timedelta(minutes=2),
        heartbeat_timeout=MISSED_AFTER,
        retry_policy=RetryPolicy(
            initial_interval=timedelta(milliseconds=500),
            maximum_interval=timedelta(seconds=30),
            non_retryable_error_types=["PayloadsTooLarge", names.OPERATION_REFUSED],
        ),
    )
    return result
