"""Processes killed for real, at random moments between the store's commit and the index's flush."""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from retold.contracts.indexing import GenerationRole
from retold.contracts.record import RecordStatus
from retold.index.edge_home import EdgeHome
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
