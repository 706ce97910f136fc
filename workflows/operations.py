"""Operations on a running stack. Each is one small workflow, so that it survives whoever asked for it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy

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

ResultT = TypeVar("ResultT")


@workflow.defn(name=names.IMPORT_WORKFLOW)
class ImportWorkflow:
    """Write the lines, then bring the index into line. A worker that dies in between loses nothing."""

    @workflow.run
    async def run(self, request: ImportInput) -> ImportReport:
        report = await _durably(names.IMPORT_LINES, request, ImportReport)
        await _durably(names.BRING_INDEX_INTO_LINE, None, int)
        return report


@workflow.defn(name=names.END_SESSION_WORKFLOW)
class EndSessionWorkflow:
    @workflow.run
    async def run(self, request: EndSessionInput) -> None:
        await _durably(names.END_SESSION, request, type(None))


@workflow.defn(name=names.DELETE_RECORD_WORKFLOW)
class DeleteRecordWorkflow:
    @workflow.run
    async def run(self, request: DeleteRecordInput) -> RecordRef:
        deleted = await _durably(names.DELETE_RECORD, request, RecordRef)
        await _durably(names.BRING_INDEX_INTO_LINE, None, int)
        return deleted


@workflow.defn(name=names.DEVELOPMENT_AMBIENT_WORKFLOW)
class DevelopmentAmbientWorkflow:
    @workflow.run
    async def run(self, request: DevelopmentAmbientInput) -> RecordRef:
        marked = await _durably(names.MARK_AMBIENT_FOR_DEVELOPMENT, request, RecordRef)
        await _durably(names.BRING_INDEX_INTO_LINE, None, int)
        return marked


@workflow.defn(name=names.INSPECT_WORKFLOW)
class InspectWorkflow:
    @workflow.run
    async def run(self, request: InspectInput) -> InspectResult:
        return await _once(names.INSPECT, request, InspectResult)


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
