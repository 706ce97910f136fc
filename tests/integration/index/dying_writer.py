"""A process that writes and indexes until it is killed, at whatever moment.

    python -m tests.integration.index.dying_writer DIRECTORY SEED

Every change that was committed is a line on stdout *before* the index has heard of it: what the next process must
find. Run by the kill tests, which send SIGKILL.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
from pathlib import Path

from retold.contracts.record import RecordId
from retold.index.edge_home import EdgeHome
from retold.models.embedding.hashing import HashingEmbedder
from retold.store.engine import open_engine
from retold.store.store import Store
from tests.integration.index.following import Worker, worker

OLD, NEW = HashingEmbedder(64, "old"), HashingEmbedder(96, "new")


async def write_for_ever(running: Worker, chance: random.Random, round: int) -> None:
    alive: list[RecordId] = []
    for number in itertools.count():
        kind = chance.randrange(4) if alive else 0
        if kind == 0:
            text = f"Fact {round} {number}"
            (id,) = await running.import_texts(text)
            alive.append(id)
            said(id, text)
        elif kind == 1:
            id = alive.pop(chance.randrange(len(alive)))
            await running.delete(id)
            said(id, "")
        else:
            id, text = chance.choice(alive), f"Fact {round} {number} changed"
            await running.change(id, text=text, content_hash=text)
            said(id, text)
        if chance.random() < 0.5:
            await running.indexer.drain(chance.choice([1, 3, 64]))


async def rebuild_for_ever(running: Worker) -> None:
    """Build the next generation, switch, say so, and go on writing: kills land in all of it."""
    await running.live.switch(await running.build())
    sys.stdout.write("switched\n")
    sys.stdout.flush()


def said(id: RecordId, text: str) -> None:
    sys.stdout.write(f"{id}\t{text}\n")
    sys.stdout.flush()


async def main(directory: Path, seed: int, rebuilding: bool) -> None:
    store = Store(open_engine(f"sqlite:///{directory / 'retold.db'}"))
    async with worker(store, EdgeHome(directory / "index"), [OLD, NEW]) as running:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(write_for_ever(running, random.Random(seed), seed))
            if rebuilding and running.live.embedder.identity == OLD.identity:
                tasks.create_task(rebuild_for_ever(running))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] == ["rebuild"]))
