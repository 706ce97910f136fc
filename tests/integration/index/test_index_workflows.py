"""Reconciling and rebuilding as operations: in steps, through failures, with refusals that say what to do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Worker as TemporalWorker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from activities.indexing import IndexingActivities
from retold.client import OperationRefusedError, from_failure
from retold.contracts import names
from retold.contracts.indexing import (
    Difference,
    GenerationRole,
    IndexOverview,
    OverviewInput,
    RebuildInput,
    RebuildReport,
    ReconcileInput,
    ReconcilePhase,
    ReconcileProgress,
    ReconcileReport,
    ReconcileStep,
)
from retold.index import reconciling
from retold.index.edge_home import EdgeHome
from retold.index.points import point_id
from retold.index.port import IndexUnavailableError, ScannedPoint
from retold.models.embedding.hashing import HashingEmbedder
from retold.policy.ports import Embedder
from retold.store.store import Store
from tests.integration.index.following import Worker, worker
from worker import OPERATION_WORKFLOWS

OLD, NEW = HashingEmbedder(64, "old"), HashingEmbedder(96, "new")


class Operations:
    def __init__(self, client: Client, queue: str) -> None:
        self._client, self._queue = client, queue

    async def run(self, workflow: str, asked: Any, result: type[Any]) -> Any:
        try:
            return await self._client.execute_workflow(
                workflow, asked, result_type=result, id=f"index-{uuid4()}", task_queue=self._queue
            )
        except WorkflowFailureError as failure:
            raise from_failure(failure) from failure

    async def reconcile(self, **asked: Any) -> ReconcileReport:
        report = await self.run(names.RECONCILE_INDEX_WORKFLOW, ReconcileInput(**asked), ReconcileReport)
        assert isinstance(report, ReconcileReport)
        return report

    async def rebuild(self, **asked: Any) -> RebuildReport:
        report = await self.run(names.REBUILD_INDEX_WORKFLOW, RebuildInput(**asked), RebuildReport)
        assert isinstance(report, RebuildReport)
        return report

    async def overview(self, *, abandon: bool = False) -> IndexOverview:
        overview = await self.run(names.INDEX_OVERVIEW_WORKFLOW, OverviewInput(abandon=abandon), IndexOverview)
        assert isinstance(overview, IndexOverview)
        return overview


@asynccontextmanager
async def operating(
    client: Client, store: Store, folder: Path, embedders: Sequence[Embedder]
) -> AsyncIterator[tuple[Worker, Operations]]:
    queue = f"index-{uuid4()}"
    async with (
        worker(store, EdgeHome(folder / "index"), embedders) as running,
        TemporalWorker(
            client,
            task_queue=queue,
            workflows=OPERATION_WORKFLOWS,
            activities=IndexingActivities(store, running.live, running.indexer).get_activities(),
            workflow_runner=SandboxedWorkflowRunner(),
        ),
    ):
        yield running, Operations(client, queue)


async def test_differences_are_found_in_steps_through_failures_and_repaired(
    client: Client, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciling, "PAGE", 4)
    monkeypatch.setattr(reconciling, "PAGES_A_STEP", 1)
    async with operating(client, store, tmp_path, [OLD]) as (running, operations):
        ids = await running.import_texts(*(f"Fact number {n}" for n in range(10)))
        assert (await operations.reconcile()).equal, "what is pending is followed first"
        lost = sorted(ids)[::4]
        await running.live.delete_points([point_id(id) for id in lost])

        inspect, failures = running.live.answering.index.inspect, iter([1, 2])

        async def unsteady(asked: Sequence[str]) -> dict[str, ScannedPoint]:
            if next(failures, None):
                raise IndexUnavailableError("it is restarting")
            return await inspect(asked)

        monkeypatch.setattr(running.live.answering.index, "inspect", unsteady)
        found = await operations.reconcile()
        assert (found.differences, found.left) == ({Difference.MISSING: 3}, 3)
        assert (found.records, found.points) == (10, 7)
        assert {each.record_id for each in found.findings} == set(lost)
        assert (await operations.reconcile(repair=True)).left == 0

        resumed = ReconcileProgress(step=ReconcileStep(phase=ReconcilePhase.POINTS), report=found)
        goes_on = await operations.reconcile(resumed=resumed)
        assert (goes_on.records, goes_on.points, goes_on.found) == (10, 17, 3), "what an earlier run found is kept"


async def test_the_index_is_built_for_the_next_embedder_held_and_switched(
    client: Client, store: Store, tmp_path: Path
) -> None:
    async with operating(client, store, tmp_path, [OLD, NEW]) as (running, operations):
        ids = await running.import_texts("Ann drinks tea", "Ann has a cat")
        await running.indexer.drain()
        held = await operations.rebuild(hold=True)
        assert (held.switched, held.generation.role) == (False, GenerationRole.BUILDING)
        assert (held.built.differences, held.checked.found, held.checked.indexed) == ({Difference.MISSING: 2}, 0, 2)

        ids += await running.import_texts("Ann rides a bike")
        await running.indexer.drain()
        switched = await operations.rebuild()
        assert (switched.switched, switched.generation.role) == (True, GenerationRole.SERVING)
        assert switched.generation.name == held.generation.name
        assert switched.built.found == 0, "it had followed every change"
        assert set(await running.found("Ann")) == set(ids), "this worker answers on, with the embedder it has"
    async with operating(client, store, tmp_path, [OLD, NEW]) as (running, operations):
        assert running.live.embedder is NEW
        assert set(await running.found("Ann")) == set(ids)
        with pytest.raises(OperationRefusedError, match=r"already belongs to .*revision new.*RETOLD_NEXT_EMBEDDER__"):
            await operations.rebuild()


async def test_a_record_that_cannot_be_read_is_named_and_keeps_no_new_index_from_serving(
    client: Client, store: Store, tmp_path: Path
) -> None:
    async with operating(client, store, tmp_path, [OLD, NEW]) as (running, operations):
        tea, cat = await running.import_texts("Ann drinks tea", "Ann has a cat")
        await running.indexer.drain()
        await running.damage(cat, "status", "mislaid")
        compared = await operations.reconcile()
        assert compared.differences == {Difference.UNREADABLE_RECORD: 1}
        rebuilt = await operations.rebuild()
        assert (rebuilt.switched, rebuilt.checked.equal, rebuilt.checked.followable) == (True, False, 0)
        assert [(each.record_id, each.detail) for each in rebuilt.checked.findings] == [(cat, "status (enum)")]
    async with operating(client, store, tmp_path, [OLD, NEW]) as (running, operations):
        assert await running.found("Ann") == [tea]


async def test_what_is_being_built_can_be_abandoned(client: Client, store: Store, tmp_path: Path) -> None:
    async with operating(client, store, tmp_path, [OLD]) as (running, operations):
        await running.import_texts("Ann drinks tea")
        begun = (await operations.rebuild(hold=True, same_embedder=True)).generation.name
        roles = {each.name: each.role for each in (await operations.overview()).generations}
        assert roles == {running.live.generation: GenerationRole.SERVING, begun: GenerationRole.BUILDING}
        overview = await operations.overview(abandon=True)
        assert overview.abandoned == begun
        assert [each.name for each in overview.generations] == [running.live.generation]
        assert (await operations.overview(abandon=True)).abandoned is None
        with pytest.raises(OperationRefusedError, match="not being built"):
            await operations.reconcile(generation=begun)
