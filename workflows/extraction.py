"""A session is read, round by round, for what its user said about themselves; then it is indexed and evaluated."""

from __future__ import annotations

import contextlib
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.workflow import ParentClosePolicy

with workflow.unsafe.imports_passed_through():
    from retold.contracts import names
    from retold.contracts.activation import ACTIVATION_BATCH_MAX, ActivationInput, ActivationReport
    from retold.contracts.extraction import ExtractInput, ExtractReport, ExtractRound
    from retold.contracts.identity import operation_workflow_id
    from retold.telemetry.names import EXTRACTION_SPAN, turn_span
    from workflows.accepting import WRONGLY_CALLED, accepted
    from workflows.durably import durably

ROUNDS_MAX = 100
"""Of one run, 50 turns each. A session that is longer stays due, and the next run goes on where this one ended."""


@workflow.defn(name=names.EXTRACTION_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class ExtractionWorkflow:
    """Read until nothing is unread, or a round fails: then the session stays due from there."""

    @workflow.run
    async def run(self, request: RawValue) -> ExtractReport:
        wanted = accepted(ExtractInput, request)
        with turn_span(EXTRACTION_SPAN):
            return await self._all_read(wanted)

    async def _all_read(self, wanted: ExtractInput) -> ExtractReport:
        total = ExtractReport()
        for number in range(ROUNDS_MAX):
            read = await _read(wanted)
            total = total.followed_by(read.report)
            if read.changed:
                await durably(names.BRING_INDEX_INTO_LINE, None, int)
                await _evaluate(wanted, read, number)
            if not read.more:
                break
        return total


async def begin_reading(wanted: ExtractInput) -> None:
    """Have the session read by a child that outlives its parent."""
    with contextlib.suppress(WorkflowAlreadyStartedError):  # then it is being read
        await workflow.start_child_workflow(
            names.EXTRACTION_WORKFLOW,
            wanted,
            id=operation_workflow_id("extract", wanted.principal, wanted.session_id),
            result_type=ExtractReport,
            parent_close_policy=ParentClosePolicy.ABANDON,
        )


async def _read(wanted: ExtractInput) -> ExtractRound:
    read: ExtractRound = await workflow.execute_activity(
        names.READ_TRANSCRIPT,
        wanted,
        result_type=ExtractRound,
        start_to_close_timeout=timedelta(minutes=10),
        heartbeat_timeout=timedelta(seconds=5),
        retry_policy=RetryPolicy(
            initial_interval=timedelta(seconds=1),
            maximum_interval=timedelta(minutes=1),
            non_retryable_error_types=["PayloadsTooLarge"],
        ),
    )
    return read


async def _evaluate(wanted: ExtractInput, read: ExtractRound, number: int) -> None:
    """As a child of its own: it goes on though this run is given up."""
    for start in range(0, len(read.changed), ACTIVATION_BATCH_MAX):
        await workflow.execute_child_workflow(
            names.ACTIVATION_WORKFLOW,
            ActivationInput(
                principal=wanted.principal,
                record_ids=read.changed[start : start + ACTIVATION_BATCH_MAX],
                actor=wanted.actor,
                cause="extracted",
            ),
            id=operation_workflow_id("activate", wanted.principal, f"{workflow.info().run_id}-{number}-{start}"),
            task_queue=read.activation_queue,
            result_type=ActivationReport,
            parent_close_policy=ParentClosePolicy.ABANDON,
        )
