"""Changes to records. Each is one small workflow: written once, followed by the index, then evaluated.

The time of the asking is the workflow's, so an activity that is run again (its worker died before it could answer)
finds what it has done, and changes nothing.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy

with workflow.unsafe.imports_passed_through():
    from retold.contracts import names
    from retold.contracts.lifecycle import (
        ContradictInput,
        CorrectInput,
        ExpireInput,
        LifecycleReport,
        ReadRecordsInput,
        RecordChange,
        RecordPage,
        RememberInput,
        RestoreInput,
        SupersedeInput,
    )
    from retold.contracts.operations import DeleteRecordInput
    from retold.contracts.record import RecordRef
    from workflows.accepting import WRONGLY_CALLED, accepted
    from workflows.durably import durably
    from workflows.evaluating import begin_evaluation


@workflow.defn(name=names.REMEMBER_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class RememberWorkflow:
    """Store one record or many; refused ones are in the answer, the others are stored."""

    @workflow.run
    async def run(self, request: RawValue) -> LifecycleReport:
        return await _changed(names.REMEMBER, accepted(RememberInput, request), cause="remembered")


@workflow.defn(name=names.SUPERSEDE_RECORD_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class SupersedeRecordWorkflow:
    @workflow.run
    async def run(self, request: RawValue) -> LifecycleReport:
        return await _changed(names.SUPERSEDE_RECORD, accepted(SupersedeInput, request), cause="superseded")


@workflow.defn(name=names.CONTRADICT_RECORDS_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class ContradictRecordsWorkflow:
    @workflow.run
    async def run(self, request: RawValue) -> LifecycleReport:
        return await _changed(names.CONTRADICT_RECORDS, accepted(ContradictInput, request), cause="contradicted")


@workflow.defn(name=names.CORRECT_RECORD_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class CorrectRecordWorkflow:
    @workflow.run
    async def run(self, request: RawValue) -> LifecycleReport:
        return await _changed(names.CORRECT_RECORD, accepted(CorrectInput, request), cause="corrected")


@workflow.defn(name=names.EXPIRE_RECORD_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class ExpireRecordWorkflow:
    @workflow.run
    async def run(self, request: RawValue) -> LifecycleReport:
        return await _changed(names.EXPIRE_RECORD, accepted(ExpireInput, request), cause="expired")


@workflow.defn(name=names.RESTORE_RECORD_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class RestoreRecordWorkflow:
    @workflow.run
    async def run(self, request: RawValue) -> LifecycleReport:
        return await _changed(names.RESTORE_RECORD, accepted(RestoreInput, request), cause="restored")


@workflow.defn(name=names.DELETE_RECORD_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class DeleteRecordWorkflow:
    @workflow.run
    async def run(self, request: RawValue) -> RecordRef:
        report = await _changed(names.DELETE_RECORD, accepted(DeleteRecordInput, request), cause="deleted")
        (outcome,) = report.outcomes
        assert outcome.ref is not None, "what is refused fails instead"
        return outcome.ref


@workflow.defn(name=names.READ_RECORDS_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class ReadRecordsWorkflow:
    """For somebody who is waiting: an error now is better than an answer in an hour."""

    @workflow.run
    async def run(self, request: RawValue) -> RecordPage:
        page: RecordPage = await workflow.execute_activity(
            names.READ_RECORDS,
            accepted(ReadRecordsInput, request),
            result_type=RecordPage,
            start_to_close_timeout=timedelta(seconds=20),
            retry_policy=RetryPolicy(maximum_attempts=2),
        )
        return page


async def _changed(
    activity: str, asked: RememberInput | ContradictInput | RecordChange | DeleteRecordInput, *, cause: str
) -> LifecycleReport:
    report = await durably(activity, (asked, workflow.now()), LifecycleReport)
    if report.changed:
        await durably(names.BRING_INDEX_INTO_LINE, None, int)
        await begin_evaluation(asked.principal, report.changed, actor=asked.actor, cause=cause)
    return report
