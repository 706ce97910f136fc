"""What an operation has written or changed comes to its activation: evaluated, indexed, and reviewed where needed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from retold.contracts import names
    from retold.contracts.activation import ActivationInput, ActivationReport
    from retold.contracts.review import ReviewIds
    from retold.telemetry.names import ACTIVATION_SPAN, CAUSE, RECORDS, turn_span
    from workflows.accepting import WRONGLY_CALLED, accepted
    from workflows.durably import durably

BATCH = 10
"""Records of one activity: few enough that a worker's death repeats little, many enough that an import is no storm."""

FIRST_ATTEMPTS = 4
"""Then the others have their turn, before what could not be evaluated is tried for as long as it takes."""


@workflow.defn(name=names.ACTIVATION_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class ActivationWorkflow:
    """Evaluate the records in order. The same version of a record is settled once, whoever asks and however often."""

    @workflow.run
    async def run(self, request: RawValue) -> ActivationReport:
        due = accepted(ActivationInput, request)
        with turn_span(ACTIVATION_SPAN, {CAUSE: due.cause, RECORDS: len(due.record_ids)}):
            return await self._evaluated(due)

    async def _evaluated(self, due: ActivationInput) -> ActivationReport:
        reports: list[ActivationReport] = []
        left: list[ActivationInput] = []
        for batch in _batches(due):
            try:
                reports.append(await _evaluate(batch, attempts=FIRST_ATTEMPTS))
            except ActivityError as error:
                if is_cancelled_exception(error):
                    raise
                left.append(batch)
        for batch in left:
            reports.append(await _evaluate(batch, attempts=0))
        await durably(names.BRING_INDEX_INTO_LINE, None, int)
        reviews = tuple(review for report in reports for review in report.reviews)
        if reviews:
            # Only sooner than the sweep that starts what is open: a worker that dies before this loses no review.
            await durably(names.START_REVIEWS, ReviewIds(review_ids=reviews), int)
        decisions = tuple(decision for report in reports for decision in report.decisions)
        return ActivationReport(decisions=decisions, reviews=reviews)


def _batches(due: ActivationInput) -> Iterator[ActivationInput]:
    ids = tuple(dict.fromkeys(due.record_ids))
    for start in range(0, len(ids), BATCH):
        yield due.model_copy(update={"record_ids": ids[start : start + BATCH]})


async def _evaluate(batch: ActivationInput, *, attempts: int) -> ActivationReport:
    """Args:
    attempts: 0 is without end.
    """
    report: ActivationReport = await workflow.execute_activity(
        names.EVALUATE_ACTIVATION,
        batch,
        result_type=ActivationReport,
        start_to_close_timeout=timedelta(minutes=10),
        heartbeat_timeout=timedelta(seconds=5),
        retry_policy=RetryPolicy(
            initial_interval=timedelta(seconds=1), maximum_interval=timedelta(minutes=5), maximum_attempts=attempts
        ),
    )
    return report
