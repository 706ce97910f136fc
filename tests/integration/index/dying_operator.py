"""A process that compares store and index for whoever asks on a task queue, slowly, until it is killed.

python -m tests.integration.index.dying_operator DIRECTORY TEMPORAL_ADDRESS TASK_QUEUE
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from temporalio.client import Client
from temporalio.worker import Worker as TemporalWorker

from activities.indexing import IndexingActivities
from retold.client import plugins
from retold.client.tracing import install_tracing
from retold.index import reconciling
from retold.index.edge_home import EdgeHome
from retold.index.port import ScannedPoint
from retold.store.engine import open_engine
from retold.store.store import Store
from tests.integration.index.dying_writer import OLD
from tests.integration.index.following import worker
from worker import OPERATION_WORKFLOWS

PAGE, PAGES_A_STEP, PAGE_S = 4, 2, 0.1


async def main(directory: Path, address: str, queue: str) -> None:
    reconciling.PAGE, reconciling.PAGES_A_STEP = PAGE, PAGES_A_STEP
    store = Store(open_engine(f"sqlite:///{directory / 'retold.db'}"))
    with install_tracing("dying-operator"):
        async with worker(store, EdgeHome(directory / "index"), [OLD]) as running:
            inspect = running.live.answering.index.inspect

            async def slowly(ids: Sequence[str]) -> dict[str, ScannedPoint]:
                await asyncio.sleep(PAGE_S)
                return await inspect(ids)

            running.live.answering.index.inspect = slowly  # type: ignore[method-assign]
            client = await Client.connect(address, plugins=plugins())
            async with TemporalWorker(
                client,
                task_queue=queue,
                workflows=OPERATION_WORKFLOWS,
                activities=IndexingActivities(store, running.live, running.indexer).get_activities(),
            ):
                sys.stdout.write("ready\n")
                sys.stdout.flush()
                await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
