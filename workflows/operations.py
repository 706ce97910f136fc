"""Operations on a running stack. Each is one small workflow, so that it survives whoever asked for it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy

with workflow.unsafe.imports_passed_through():
    from retold.contracts import names
    from retold.contracts.extraction import ExtractInput
    from retold.contracts.importing import ImportReport
    from retold.contracts.operations import (
        DevelopmentAmbientInput,
        EndSessionInput,
        ImportInput,
        InspectInput,
        InspectResult,
    )
    from retold.contracts.record import RecordRef
    from workflows.accepting import WRONGLY_CALLED, accepted
    from workflows.durably import durably
    from workflows.evaluating import begin_evaluation
    from workflows.extraction import begin_reading

ResultT = TypeVar("ResultT")


@workflow.defn(name=names.IMPORT_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class ImportWorkflow:
    """Write the lines, bring the index into line, have the records evaluated. A worker that dies loses nothing."""

    @workflow.run
    async def run(self, request: RawValue) -> ImportReport:
        asked = accepted(ImportInput, request)
        report = await durably(names.IMPORT_LINES, (asked, workflow.now()), ImportReport)
        await durably(names.BRING_INDEX_INTO_LINE, None, int)
        if report.activation_queue is not None:
            await begin_evaluation(
                asked.principal, report.changed, actor=asked.actor, cause="imported", queue=report.activation_queue
            )
        return report.model_copy(update={"changed": (), "activation_queue": None})  # nothing for whoever asked


@workflow.defn(name=names.END_SESSION_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class EndSessionWorkflow:
    """End the session, and have it read for what its user said, if nobody has."""

    @workflow.run
    async def run(self, request: RawValue) -> None:
        ended = accepted(EndSessionInput, request)
        if await durably(names.END_SESSION, ended, bool):
            await begin_reading(ExtractInput(principal=ended.principal, session_id=ended.session_id))


@workflow.defn(name=names.DEVELOPMENT_AMBIENT_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class DevelopmentAmbientWorkflow:
    @workflow.run
    async def run(self, request: RawValue) -> RecordRef:
        marked = await durably(
            names.MARK_AMBIENT_FOR_DEVELOPMENT, accepted(DevelopmentAmbientInput, request), RecordRef
        )
        await durably(names.BRING_INDEX_INTO_LINE, None, int)
        return marked


@workflow.defn(name=names.INSPECT_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class InspectWorkflow:
    @workflow.run
    async def run(self, request: RawValue) -> InspectResult:
        return await _once(names.INSPECT, accepted(InspectInput, request), InspectResult)


async def _once(activity: str, argument: Any, result_type: type[ResultT]) -> ResultT:
    """For somebody who is waiting at a terminal: an error now is better than an answer in an hour."""
    result: ResultT = await workflow.execute_activity(
        activity,
        argument,
        result_type=result_type,
        start_to_close_timeout=timedelta(seconds=20),
        retry_policy=RetryPolicy(maximum_attempts=2, non_retryable_error_types=[names.OPERATION_REFUSED]),
    )
    return result
