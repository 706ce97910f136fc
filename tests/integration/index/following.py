"""A store and the generations that follow it, as one worker has them, and the comparison of the two."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from retold.contracts.indexing import ReconcileReport, ReconcileStep
from retold.contracts.record import RecordId, RecordStatus, RecordWrite
from retold.contracts.turn import Principal
from retold.index.generations import IndexHome, LiveIndex
from retold.index.indexer import Indexer
from retold.index.reconciling import Reconciler
from retold.policy.ports import Embedder
from retold.retrieval.ports import DenseQuery, Eligibility
from retold.store import outbox
from retold.store.store import Store
from retold.store.tables import RecordRow
from tests.integration.index.records import ANN, ids


@dataclass
class Worker:
    store: Store
    live: LiveIndex
    indexer: Indexer

    async def import_texts(self, *texts: str, who: Principal = ANN) -> list[RecordId]:
        """Write records; the new ones' ids, in the order of the texts."""
        await self.store.import_lines(
            who, [RecordWrite(id=text, text=text) for text in texts], actor="test", at=datetime.now(UTC)
        )
        stored = {record.text: record.id for record in await self.store.records(who)}
        return [stored[text] for text in texts]

    async def change(self, record_id: RecordId, **columns: Any) -> None:
        """A new version of a record, committed with its outbox entry as every change of the store is."""

        def changed(session: Session) -> None:
            row = session.get_one(RecordRow, record_id, with_for_update=True)
            for name, value in {"version": row.version + 1, **columns}.items():
                setattr(row, name, value)
            outbox.append(session, [record_id], datetime.now(UTC))

        await self.store._transactions.write(changed)

    async def damage(self, record_id: RecordId, column: str, value: str) -> None:
        """Have the row hold what no version of Retold writes, and tell nobody."""
        damaged = text(f"UPDATE records SET {column} = :value WHERE id = :id")
        await self.store._transactions.write(
            lambda session: session.execute(damaged, {"value": value, "id": record_id}).close()
        )

    async def delete(self, record_id: RecordId) -> None:
        await self.change(record_id, status=RecordStatus.DELETED.value)

    async def found(self, text: str, who: Principal = ANN) -> list[RecordId]:
        """What the generation this worker answers from finds by meaning."""
        (vector,) = await self.live.embedder.embed_queries([text])
        eligible = Eligibility(principal=who, scopes=("personal",), at=datetime.now(UTC))
        (hits,) = await self.live.search([DenseQuery(eligible=eligible, limit=10_000, vector=vector)])
        return ids(hits)

    async def reconcile(self, *, repair: bool = False) -> ReconcileReport:
        return await reconciled(Reconciler(self.store, self.indexer, self.live.answering), ReconcileStep(repair=repair))

    async def build(self) -> str:
        """Begin a generation for the next embedder and fill it; its name."""
        begun = await self.live.begin_rebuild()
        target = await self.live.building(begun.name)
        reconciler = Reconciler(self.store, self.indexer, target, through_outbox=False)
        await reconciled(reconciler, ReconcileStep(repair=True, generation=begun.name))
        return begun.name


async def reconciled(reconciler: Reconciler, step: ReconcileStep) -> ReconcileReport:
    """All steps of a comparison, as the workflow makes them."""
    report, following = ReconcileReport(), step
    while True:
        result = await reconciler.step(following)
        report = report.plus(result.report)
        if result.following is None:
            return report
        following = result.following


@asynccontextmanager
async def worker(
    store: Store, home: IndexHome, embedders: Sequence[Embedder], *, holder: str | None = None
) -> AsyncIterator[Worker]:
    live = LiveIndex(home, embedders)
    try:
        await live.open()
        yield Worker(store, live, Indexer(store, live, holder=holder))
    finally:
        await live.aclose()
