"""Changes to records. Each is one small workflow: written once, followed by the index, then evaluated."""

from __future__ import annotations

from temporalio import workflow
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from retold.contracts import names
    from retold.contracts.operations import DeleteRecordInput
    from retold.contracts.record import RecordRef
    from workflows.accepting import WRONGLY_CALLED, accepted
    from workflows.durably import durably


@workflow.defn(name=names.DELETE_RECORD_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class DeleteRecordWorkflow:
    @workflow.run
    async def run(self, request: RawValue) -> RecordRef:
        deleted = await durably(names.DELETE_RECORD, accepted(DeleteRecordInput, request), RecordRef)
        await durably(names.BRING_INDEX_INTO_LINE, None, int)
        return deleted
