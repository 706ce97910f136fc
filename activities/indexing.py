"""The index compared with the store, and built anew beside the one that answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.heartbeat import heartbeating
from activities.refusals import refused
from retold.contracts import names
from retold.contracts.indexing import Generation, RebuildInput, ReconcileStep, ReconcileStepResult
from retold.index.generations import LiveIndex, RebuildRefusedError
from retold.index.indexer import Indexer
from retold.index.port import IndexUnavailableError
from retold.index.reconciling import Reconciler
from retold.store.engine import StoreUnavailableError
from retold.store.index_ledger import IndexLedger


@dataclass(frozen=True)
class IndexingActivities:
    store: IndexLedger
    live: LiveIndex
    indexer: Indexer

    def get_activities(self) -> Sequence[Callable[..., Any]]:
        return [
            self.reconcile_index,
            self.begin_index_rebuild,
            self.switch_index,
            self.abandon_index_rebuild,
            self.list_index_generations,
        ]

    @activity.defn(name=names.RECONCILE_INDEX)
    async def reconcile_index(self, step: ReconcileStep) -> ReconcileStepResult:
        """Compare a bounded piece. Of a generation that is built, what is repaired goes straight into it."""
        async with heartbeating(), _said():
            if step.generation is None:
                await self.indexer.drain()
                target, through_outbox = self.live.answering, True
            else:
                target, through_outbox = await self.live.building(step.generation), False
            return await Reconciler(self.store, self.indexer, target, through_outbox=through_outbox).step(step)

    @activity.defn(name=names.BEGIN_INDEX_REBUILD)
    async def begin_index_rebuild(self, request: RebuildInput) -> Generation:
        async with heartbeating(), _said():
            return await self.live.begin_rebuild(same_embedder=request.same_embedder)

    @activity.defn(name=names.SWITCH_INDEX)
    async def switch_index(self, generation: str) -> Generation:
        """Have workers that start from now on answer from it, once the outbox has been followed into it."""
        async with heartbeating(), _said():
            await self.indexer.drain()
            await self.live.switch(generation)
            found = await self.live.generations()
        return next(each for each in found if each.name == generation)

    @activity.defn(name=names.ABANDON_INDEX_REBUILD)
    async def abandon_index_rebuild(self) -> str | None:
        async with heartbeating(), _said():
            return await self.live.abandon()

    @activity.defn(name=names.LIST_INDEX_GENERATIONS)
    async def list_index_generations(self) -> list[Generation]:
        async with heartbeating(), _said():
            return list(await self.live.generations())


@asynccontextmanager
async def _said() -> AsyncIterator[None]:
    """Whoever waits at a terminal reads what the index said. What is away is tried again, what is refused is not."""
    try:
        yield
    except RebuildRefusedError as error:
        raise refused(str(error)) from error
    except IndexUnavailableError as error:
        raise ApplicationError(f"the index does not answer: {error}", type=names.OPERATION_REFUSED) from error
    except StoreUnavailableError as error:
        raise ApplicationError(f"the store does not answer: {error}", type=names.OPERATION_REFUSED) from error
