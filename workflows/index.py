"""The index proved equal to the store, and built anew without a gap. Both go on where they were after any death."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy

with workflow.unsafe.imports_passed_through():
    from retold.contracts import names
    from retold.contracts.indexing import (
        Generation,
        IndexOverview,
        OverviewInput,
        RebuildInput,
        RebuildReport,
        ReconcileInput,
        ReconcileProgress,
        ReconcileReport,
        ReconcileStepResult,
    )
    from workflows.accepting import WRONGLY_CALLED, accepted, refusal

ResultT = TypeVar("ResultT")

ATTENDED = 6
"""Attempts while somebody waits at a terminal, half a minute in all. Building goes on until it is done."""

CHECKS_MAX = 5
"""How often a new generation is compared until nothing differs any more."""


@workflow.defn(name=names.RECONCILE_INDEX_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class ReconcileIndexWorkflow:
    """Compare in bounded pieces: a worker that dies costs the piece it was at, and memory never holds more than one."""

    @workflow.run
    async def run(self, request: RawValue) -> ReconcileReport:
        progress = accepted(ReconcileInput, request).progress()
        while True:
            attempts = ATTENDED if progress.step.generation is None else 0
            result = await _durably(names.RECONCILE_INDEX, progress.step, ReconcileStepResult, attempts=attempts)
            report = progress.report.plus(result.report)
            workflow.set_current_details(
                f"{report.records} records and {report.points} points compared, {report.left} differ"
            )
            if result.following is None:
                return report
            progress = ReconcileProgress(step=result.following, report=report)
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(ReconcileInput(resumed=progress))


@workflow.defn(name=names.REBUILD_INDEX_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class RebuildIndexWorkflow:
    """Build a generation beside the one that answers, compare until it is equal, then switch in one step.

    Changes are followed into both from the moment the new one exists. Whatever dies, the old one answers until the
    switch; the new one is gone on with by this workflow, or by the next one that is started.
    """

    @workflow.run
    async def run(self, request: RawValue) -> RebuildReport:
        wanted = accepted(RebuildInput, request)
        begun = await _durably(names.BEGIN_INDEX_REBUILD, wanted, Generation)
        built = await self._brought_into_line(begun.name, "build")
        for number in range(CHECKS_MAX):
            checked = await self._brought_into_line(begun.name, f"check-{number + 1}")
            if checked.followable == 0:  # what cannot be read is in neither index, and the report names it
                break
        else:
            raise refusal(
                f"{begun.name} does not come into line: {checked.followable} differences after {CHECKS_MAX} "
                f"comparisons ({', '.join(checked.differences)}); the old index answers on, and "
                "`retold doctor` may say why"
            )
        if wanted.hold:
            return RebuildReport(generation=begun, built=built, checked=checked, switched=False)
        serving = await _durably(names.SWITCH_INDEX, begun.name, Generation)
        return RebuildReport(generation=serving, built=built, checked=checked, switched=True)

    async def _brought_into_line(self, generation: str, part: str) -> ReconcileReport:
        workflow.set_current_details(f"{part} {generation}")
        report: ReconcileReport = await workflow.execute_child_workflow(
            names.RECONCILE_INDEX_WORKFLOW,
            ReconcileInput(repair=True, generation=generation),
            result_type=ReconcileReport,
            id=f"{workflow.info().workflow_id}/{generation}/{part}",
        )
        return report


@workflow.defn(name=names.INDEX_OVERVIEW_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class IndexOverviewWorkflow:
    """Which generations there are; one that is being built is abandoned first if that is asked for."""

    @workflow.run
    async def run(self, request: RawValue) -> IndexOverview:
        abandoned: str | None = None
        if accepted(OverviewInput, request).abandon:
            abandoned = await _durably(names.ABANDON_INDEX_REBUILD, None, str, attempts=ATTENDED)
        generations = await _durably(names.LIST_INDEX_GENERATIONS, None, list[Generation], attempts=ATTENDED)
        return IndexOverview(generations=tuple(generations), abandoned=abandoned)


async def _durably(activity: str, argument: Any, result_type: type[ResultT], *, attempts: int = 0) -> ResultT:
    """Retried until store, index and embedder are back (0), or so often; a worker's death is noticed by heartbeats."""
    result: ResultT = await workflow.execute_activity(
        activity,
        args=[] if argument is None else [argument],
        result_type=result_type,
        start_to_close_timeout=timedelta(minutes=30),
        heartbeat_timeout=timedelta(seconds=15),
        retry_policy=RetryPolicy(
            initial_interval=timedelta(seconds=1),
            maximum_interval=timedelta(seconds=30),
            maximum_attempts=attempts,
            non_retryable_error_types=["PayloadsTooLarge"],
        ),
    )
    return result
