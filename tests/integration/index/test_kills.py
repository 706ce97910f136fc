"""Processes killed for real, at random moments between the store's commit and the index's flush."""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle

from retold.contracts import names
from retold.contracts.indexing import Difference, GenerationRole, ReconcileInput, ReconcileReport
from retold.contracts.record import RecordStatus
from retold.index.edge_home import EdgeHome
from retold.index.points import point_id
from retold.store.engine import open_engine
from retold.store.store import Store
from tests.integration.index.dying_writer import NEW, OLD
from tests.integration.index.following import Worker, worker
from tests.integration.index.records import ANN

ROUNDS, KILLS_A_CHECK = 20, 4
ROUNDS_OF_REBUILDING = 8


async def killed(directory: Path, round: int, *more: str) -> list[str]:
    """What the process said before it was killed, some tens of milliseconds after it began to write."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.index.dying_writer", str(directory), str(round), *more, stdout=PIPE
    )  # fmt: skip
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    await asyncio.sleep(random.Random(round).uniform(0.02, 0.5))
    return await _kill(process)


async def _kill(process: Process) -> list[str]:
    assert process.stdout is not None
    process.kill()
    said = (await process.stdout.read()).decode()
    assert await process.wait() == -9
    return said.split("\n")[:-1]  # the last is empty, or a line that was being written


def hold_against(committed: dict[str, str], said: list[str]) -> None:
    for line in said:
        id, _, text = line.partition("\t")
        committed[id] = text


async def check_nothing_lost_or_doubled(running: Worker, committed: dict[str, str], kills: int) -> None:
    """What was committed is in the store; after one drain the index has exactly what stands, and the two are equal."""
    records = await running.store.records(ANN)
    stored = {each.id: "" if each.status is RecordStatus.DELETED else each.text for each in records}
    unsaid = {id for id in stored.keys() | committed.keys() if stored.get(id) != committed.get(id)}
    assert len(unsaid) <= kills, "each killed process may have committed one change that it could not say any more"
    assert committed.keys() <= stored.keys(), "a committed record is gone"
    committed.update(stored)

    await running.indexer.drain()
    standing = {id for id, text in stored.items() if text}
    points = [each.ref.id for each in await running.live.answering.index.points_of(ANN)]
    assert sorted(points) == sorted(standing)
    assert set(await running.found("Fact")) == standing
    report = await running.reconcile()
    assert report.found == 0, report.findings
    assert await running.store.pending_index_count() == 0


@pytest.fixture
def directory(tmp_path: Path, migrated_file: Path) -> Path:
    shutil.copy(migrated_file, tmp_path / "retold.db")
    return tmp_path


@pytest.mark.timeout(300)
async def test_twenty_kills_between_commit_and_flush_lose_and_double_nothing(directory: Path) -> None:
    committed: dict[str, str] = {}
    between = 0
    for round in range(ROUNDS):
        hold_against(committed, await killed(directory, round))
        store = Store(open_engine(f"sqlite:///{directory / 'retold.db'}"))
        between += await store.pending_index_count() > 0
        if round % KILLS_A_CHECK == KILLS_A_CHECK - 1:  # the other deaths, the next process has to cope with
            async with worker(store, EdgeHome(directory / "index"), [OLD, NEW]) as running:
                await check_nothing_lost_or_doubled(running, committed, KILLS_A_CHECK)
        await store.close()
    assert len(committed) > ROUNDS
    assert between >= ROUNDS / 4, "the kills came between commit and flush often enough to mean something"


@pytest.mark.timeout(300)
async def test_kills_while_the_index_is_built_anew_leave_the_old_or_the_new_one_whole(directory: Path) -> None:
    committed: dict[str, str] = {}
    switched = False
    for round in range(ROUNDS_OF_REBUILDING):
        said = await killed(directory, 100 + round, "rebuild")
        switched = switched or "switched" in said
        hold_against(committed, [line for line in said if line != "switched"])
        store = Store(open_engine(f"sqlite:///{directory / 'retold.db'}"))
        async with worker(store, EdgeHome(directory / "index"), [OLD, NEW]) as running:
            if switched:
                assert running.live.embedder is NEW, "what was switched stays switched"
            switched = running.live.embedder is NEW
            await check_nothing_lost_or_doubled(running, committed, 1)
        await store.close()

    store = Store(open_engine(f"sqlite:///{directory / 'retold.db'}"))
    async with worker(store, EdgeHome(directory / "index"), [OLD, NEW]) as running:
        if not switched:
            await running.live.switch(await running.build())
    async with worker(store, EdgeHome(directory / "index"), [OLD, NEW]) as running:
        assert running.live.embedder is NEW
        assert running.live.generation == (await running.live.generations())[0].name
        assert (await running.live.generations())[0].role is GenerationRole.SERVING
        await check_nothing_lost_or_doubled(running, committed, 0)
    await store.close()


@pytest.mark.timeout(180)
async def test_a_comparison_goes_on_where_a_killed_worker_left_it(directory: Path, client: Client) -> None:
    """Every record and point is counted once, although the worker that counted the first ones was killed."""
    store = Store(open_engine(f"sqlite:///{directory / 'retold.db'}"))
    async with worker(store, EdgeHome(directory / "index"), [OLD]) as running:
        ids = await running.import_texts(*(f"Fact number {n}" for n in range(60)))
        await running.indexer.drain()
        await running.live.delete_points([point_id(ids[0]), point_id(ids[59])])
    await store.close()

    queue = f"dying-{uuid4()}"
    first = await _operator(directory, client, queue)
    comparing = await client.start_workflow(
        names.RECONCILE_INDEX_WORKFLOW,
        ReconcileInput(),
        id=f"index-{uuid4()}",
        task_queue=queue,
        result_type=ReconcileReport,
    )
    while (steps := await _steps_completed(comparing)) < 2:
        await asyncio.sleep(0.1)
    await _kill(first)
    second = await _operator(directory, client, queue)
    report = await comparing.result()
    await _kill(second)

    assert (report.records, report.indexed, report.points) == (60, 60, 58)
    assert report.differences == {Difference.MISSING: 2}
    scheduled = [each async for each in comparing.fetch_history_events() if each.event_type == STEP_SCHEDULED]
    assert len(scheduled) == 8 + 1, f"60 records in steps of 8 and one of points; {steps} were done before the kill"


STEP_SCHEDULED = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED


async def _operator(directory: Path, client: Client, queue: str) -> Process:
    address = client.service_client.config.target_host
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.index.dying_operator", str(directory), address, queue, stdout=PIPE
    )  # fmt: skip
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    return process


async def _steps_completed(handle: WorkflowHandle[Any, Any]) -> int:
    kinds = [each.event_type async for each in handle.fetch_history_events()]
    return kinds.count(EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
