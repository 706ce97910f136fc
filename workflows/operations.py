"""Operations on a running stack. Each is one small workflow, so that it survives whoever asked for it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy

with workflow.unsafe.imports_passed_through():
    from retold.contracts import names
    from retold.contracts.importing import ImportReport
    from retold.contracts.operations import (
        DeleteRecordInput,
        DevelopmentAmbientInput,
        EndSessionInput,
        ImportInput,
        InspectInput,
        InspectResult,
    )
    from retold.contracts.record import RecordRef
    from workflows.accepting import WRONGLY_CALLED, accepted

ResultT = TypeVar("ResultT")


@workflow.defn(name=names.IMPORT_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class ImportWorkflow:
    """Write the lines, then bring the index into line. A worker that dies in between loses nothing."""

    @workflow.run
    async def run(self, request: RawValue) -> ImportReport:
        report = await _durably(names.IMPORT_LINES, accepted(ImportInput, request), ImportReport)
        await _durably(names.BRING_INDEX_INTO_LINE, None, int)
        return report


@workflow.defn(name=names.END_SESSION_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class EndSessionWorkflow:
    @workflow.run
    async def run(self, request: RawValue) -> None:
        await _durably(names.END_SESSION, accepted(EndSessionInput, request), type(None))


@workflow.defn(name=names.DELETE_RECORD_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class DeleteRecordWorkflow:
    @workflow.run
    async def run(self, request: RawValue) -> RecordRef:
        deleted = await _durably(names.DELETE_RECORD, accepted(DeleteRecordInput, request), RecordRef)
        await _durably(names.BRING_INDEX_INTO_LINE, None, int)
        return deleted


@workflow.defn(name=names.DEVELOPMENT_AMBIENT_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class DevelopmentAmbientWorkflow:
    @workflow.run
    async def run(self, request: RawValue) -> RecordRef:
        marked = await _durably(
            names.MARK_AMBIENT_FOR_DEVELOPMENT, accepted(DevelopmentAmbientInput, request), RecordRef
        )
        await _durably(names.BRING_INDEX_INTO_LINE, None, int)
        return marked


@workflow.defn(name=names.INSPECT_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class InspectWorkflow:
    @workflow.run
    async def run(self, request: RawValue) -> InspectResult:
        return await _once(names.INSPECT, accepted(InspectInput, request), InspectResult)


async def _durably(activity: str, argument: Any, result_type: type[ResultT]) -> ResultT:
    """Retried until it works, unless it was refused: a refusal will not become right by repetition."""
    result: ResultT = await workflow.execute_activity(
        activity,
        args=[] if argument is None else [argument],
        result_type=result_type,
        start_to_close_timeout=timedelta(minutes=2),
        retry_policy=RetryPolicy(
            initial_interval=timedelta(milliseconds=500),
            maximum_interval=timedelta(seconds=30),
            non_retryable_error_types=["PayloadsTooLarge", names.OPERATION_REFUSED],
        ),
    )
    return result


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
