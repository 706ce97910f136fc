"""What only the embedded index has to get right: its folder, its lock, its thread."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from retold.index.edge import EdgeIndex
from retold.index.engine_thread import EngineThread
from retold.index.port import EmbedderMismatchError, IndexUnavailableError
from retold.models.embedding.hashing import HashingEmbedder
from tests.integration.index.records import ANN, all_generators, ids, put, record

TEA = "Ann drinks green tea every morning"

_WRITE_AND_DIE = """
import asyncio, os, signal, sys
from pathlib import Path
from retold.index.edge import EdgeIndex
from retold.models.embedding.hashing import HashingEmbedder
from tests.integration.index.records import put, record

async def main():
    embedder = HashingEmbedder()
    index = EdgeIndex(Path(sys.argv[1]))
    await index.ensure(embedder.identity)
    await put(index, embedder, *(record(f"Fact {number}") for number in range(50)))
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_records_survive_closing_and_opening(tmp_path: Path, embedder: HashingEmbedder) -> None:
    stored = record(TEA)
    for round in range(2):
        index = EdgeIndex(tmp_path / "index")
        await index.ensure(embedder.identity)
        if round == 0:
            await put(index, embedder, stored)
        assert ids((await index.search(await all_generators(embedder, TEA)))[1]) == [stored.id]
        await index.aclose()
        await index.aclose()


async def test_an_acknowledged_write_survives_the_death_of_the_process(
    tmp_path: Path, embedder: HashingEmbedder
) -> None:
    died = await asyncio.create_subprocess_exec(sys.executable, "-c", _WRITE_AND_DIE, str(tmp_path / "index"))
    assert await died.wait() == -9
    index = EdgeIndex(tmp_path / "index")
    await index.ensure(embedder.identity)
    assert await index.count(ANN) == 50
    await index.aclose()


async def test_a_second_opener_is_told_why_not(tmp_path: Path, embedder: HashingEmbedder) -> None:
    first, second = EdgeIndex(tmp_path / "index"), EdgeIndex(tmp_path / "index")
    await first.ensure(embedder.identity)
    with pytest.raises(IndexUnavailableError, match="open in another process"):
        await second.ensure(embedder.identity)
    await put(first, embedder, record(TEA))
    assert await first.count() == 1
    await second.aclose()
    await first.aclose()


async def test_the_embedder_of_a_closed_folder_is_remembered(tmp_path: Path, embedder: HashingEmbedder) -> None:
    index = EdgeIndex(tmp_path / "index")
    await index.ensure(embedder.identity)
    await index.aclose()

    another = EdgeIndex(tmp_path / "index")
    with pytest.raises(EmbedderMismatchError, match=r"revision 1 .* revision 2 "):
        await another.ensure(HashingEmbedder(revision="2").identity)
    await another.aclose()

    (tmp_path / "index" / "embedder.json").unlink()
    orphan = EdgeIndex(tmp_path / "index")
    with pytest.raises(EmbedderMismatchError, match="an unknown embedder"):
        await orphan.ensure(embedder.identity)
    await orphan.aclose()


async def test_it_refuses_before_ensure_and_after_close(tmp_path: Path, embedder: HashingEmbedder) -> None:
    index = EdgeIndex(tmp_path / "index")
    assert not await index.healthy()
    with pytest.raises(IndexUnavailableError, match="ensure"):
        await index.search(await all_generators(embedder, TEA))
    await index.aclose()
    with pytest.raises(IndexUnavailableError, match="closed"):
        await index.count()


async def test_the_engine_runs_off_the_loop_one_call_at_a_time(tmp_path: Path) -> None:
    thread = EngineThread("engine")
    running: list[str] = []

    def call() -> str:
        assert not running
        running.append("call")
        running.pop()
        return threading.current_thread().name

    names = set(await asyncio.gather(*(thread.run(call) for _ in range(50))))
    assert len(names) == 1
    assert threading.current_thread().name not in names
    await thread.aclose(lambda: None)


async def test_a_full_queue_refuses_at_once_and_recovers(tmp_path: Path) -> None:
    thread = EngineThread("engine", max_waiting=2)
    release = threading.Event()
    waiting = [asyncio.create_task(thread.run(release.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(IndexUnavailableError, match="overloaded: 2 calls wait"):
        await thread.run(lambda: None)
    release.set()
    await asyncio.gather(*waiting)
    await asyncio.sleep(0)
    assert await thread.run(lambda: "again") == "again"
    await thread.aclose(lambda: None)


def test_nothing_of_the_index_imports_the_server_client_for_the_embedded_engine() -> None:
    """A fresh machine runs embedded without paying for the remote client."""
    seen = subprocess.run(
        [sys.executable, "-c", "import retold.index.edge, sys; print('qdrant_client' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert seen.stdout.strip() == "False"
