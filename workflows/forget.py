"""Forgetting with a receipt (design section 4): everything of it goes, is looked for by exact text, and only then done.

Its history holds names, times and counts. Each step may be repeated, so a worker may die in any of them; a receipt is
issued once. When text is still found after every attempt it fails, loudly, and whoever asks again takes over.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from retold.contracts import names
    from retold.contracts.forgetting import BeginForgetting, ForgetInput, ForgetReceipt, Forgetting, ReadBack
    from workflows.accepting import WRONGLY_CALLED, accepted

ATTEMPTS = 4
"""Rounds of erasing and reading back. What comes in late comes within the first."""
BETWEEN_ATTEMPTS = timedelta(seconds=5)

ResultT = TypeVar("ResultT")


@workflow.defn(name=names.FORGET_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class ForgetWorkflow:
    @workflow.run
    async def run(self, request: RawValue) -> ForgetReceipt:
        info = workflow.info()
        asked = BeginForgetting(
            request=accepted(ForgetInput, request), run_id=info.run_id, asked_at=info.start_time
        )  # fmt: skip
        forgetting = await _step(names.BEGIN_FORGETTING, [asked], Forgetting)
        looked = ReadBack(surfaces=())
        for attempt in range(ATTEMPTS):
            if attempt:
                await workflow.sleep(BETWEEN_ATTEMPTS)
            await _step(names.CLOSE_WORKFLOWS_OF_FORGOTTEN, [forgetting], type(None))
            await _step(names.ERASE_FORGOTTEN, [forgetting], type(None))
            await _step(names.DELETE_EXECUTIONS_OF_FORGOTTEN, [forgetting], type(None))
            looked = await _step(names.READ_BACK_FORGOTTEN, [forgetting], ReadBack)
            if not looked.left:
                return await _step(names.ISSUE_FORGET_RECEIPT, [forgetting, looked], ForgetReceipt)
        await _step(names.GIVE_UP_FORGETTING, [forgetting, looked], type(None))
        where = ", ".join(f"{surface.surface.value} ({surface.left})" for surface in looked.left)
        raise ApplicationError(
            f"text is still found in {where}: there is no receipt; look at what writes it, then ask again",
            type=names.FORGET_INCOMPLETE,
            non_retryable=True,
        )


async def _step(activity: str, arguments: list[Any], result_type: type[ResultT]) -> ResultT:
    """Retried until it works: forgetting that was begun is finished, however long the store or Temporal is away."""
    result: ResultT = await workflow.execute_activity(
        activity,
        args=arguments,
        result_type=result_type,
        start_to_close_timeout=timedelta(minutes=30),
        heartbeat_timeout=timedelta(seconds=10),
        retry_policy=RetryPolicy(
            initial_interval=timedelta(seconds=1),
            maximum_interval=timedelta(minutes=1),
            non_retryable_error_types=[names.OPERATION_REFUSED],
        ),
    )
    return result
