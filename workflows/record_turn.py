"""Writes a turn's record that its turn could not: the store was slow or away. Retried until it is back."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from retold.contracts import names
    from retold.contracts.decision import TurnRecord


@workflow.defn(name=names.RECORD_TURN_WORKFLOW)
class RecordTurnWorkflow:
    @workflow.run
    async def run(self, record: TurnRecord) -> str:
        """The decision's id, once its row is written. Nothing accepted is ever lost, so attempts are unlimited."""
        await workflow.execute_activity(
            names.RECORD_TURN_LATE,
            record,
            start_to_close_timeout=timedelta(seconds=30),
            # A worker that dies while it waits for the store is noticed long before those 30 s.
            heartbeat_timeout=timedelta(seconds=2),
            retry_policy=RetryPolicy(
                initial_interval=timedelta(seconds=1),
                maximum_interval=timedelta(seconds=30),
                non_retryable_error_types=["PayloadsTooLarge"],
            ),
        )
        return record.decision.decision_id
