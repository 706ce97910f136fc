"""What a search costs among 1,000, 10,000 and 100,000 records: the product's Retriever, index and store, embedded.

Records belong to 50 tenants, so each search is filtered to a fiftieth. Their texts are made up and their vectors are
real embeddings of a few hundred sentences, each moved a little at random: a hundred thousand real ones would take this
machine a quarter of an hour. The queries are embedded for real, within the time that is measured, one at a time; the
embedder keeps none of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.measures import quantile
from retold.contracts.record import RecordWrite
from retold.contracts.stages import Gap, GapCategory
from retold.contracts.turn import Principal
from retold.index.edge import EdgeIndex
from retold.index.points import point
from retold.index.port import IndexPoint
from retold.models.embedding.minilm import MiniLmEmbedder
from retold.policy.limits import utc_now
from retold.policy.ports import EmbedderIdentity, SearchRequest
from retold.retrieval.pipeline import Retriever
from retold.store.engine import open_engine
from retold.store.migrations import migrate
from retold.store.store import Store

SIZES = (1_000, 10_000, 100_000)
TENANTS = 50
BATCH = 1_000
MOVED = 0.6
"""Length of the random step each vector takes from its sentence's, which has length 1: neighbours, not copies."""
_SEED = 20_26

_WHO = (
    "Anna",
    "my brother",
    "the new team lead",
    "our neighbour",
    "Doctor Meyer",
    "my daughter",
    "Luis",
    "the landlord",
)
_DOES = ("prefers", "asked me about", "cannot stand", "recommended", "cancelled", "is looking for", "always brings")
_WHAT = (
    "vegetarian dishes without nuts", "early trains to Hamburg", "the quarterly planning meeting",
    "a flat with a balcony", "swimming on Tuesdays", "long phone calls in the evening", "open source databases",
)  # fmt: skip
QUERIES = (
    "what my brother does not like to eat",
    "which trains we take to Hamburg",
    "who recommended the flat with a balcony",
    "when I go swimming",
    "what the team lead thinks of the planning meeting",
    "Anna's taste in databases",
    "what Doctor Meyer advised",
    "who brings nuts to dinner",
    "calls in the evening with my daughter",
    "what the landlord cancelled",
)


@dataclass(frozen=True)
class SearchTimes:
    """Milliseconds of each search from query text to candidates, and the embedding's part of it."""

    walls_ms: Sequence[float]
    embedding_ms: Sequence[float]
    candidates: float

    @property
    def p50_ms(self) -> float:
        return quantile(self.walls_ms, 0.5)

    @property
    def p95_ms(self) -> float:
        return quantile(self.walls_ms, 0.95)


async def measure_retrieval(
    folder: Path, sizes: Sequence[int], searches: int, progress: Callable[[str], None]
) -> dict[int, SearchTimes]:
    """By number of records in the index and the store."""
    embedder = _TimedEmbedder(MiniLmEmbedder.load(recent_queries=0))
    engine = open_engine(f"sqlite+aiosqlite:///{folder / 'records.db'}")
    await migrate(engine)
    store, index = Store(engine), EdgeIndex(folder / "records")
    found: dict[int, SearchTimes] = {}
    try:
        await index.ensure(embedder.identity)
        sentences = [f"{who} {does} {what}." for who in _WHO for does in _DOES for what in _WHAT]
        progress(f"embedding {len(sentences)} sentences")
        filling = _Filling(store, index, sentences, await embedder.embed_passages(sentences))
        retriever = Retriever(index, embedder, store)
        for size in sizes:
            progress(f"indexing up to {size:,} records")
            await filling.up_to(size)
            progress(f"searching {size:,} records")
            await _searched(retriever, embedder, 10)
            found[size] = await _searched(retriever, embedder, searches)
    finally:
        await store.close()
        await index.aclose()
        await embedder.inner.aclose()
    return found


class _TimedEmbedder:
    def __init__(self, inner: MiniLmEmbedder) -> None:
        self.inner = inner
        self.last_ms = 0.0

    @property
    def identity(self) -> EmbedderIdentity:
        return self.inner.identity

    async def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        started = time.perf_counter()
        vectors = await self.inner.embed_queries(texts)
        self.last_ms = (time.perf_counter() - started) * 1000
        return vectors

    async def embed_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return await self.inner.embed_passages(texts)


class _Filling:
    """Writes records through the store's import, a tenant at a time, and indexes what the store made of them."""

    def __init__(self, store: Store, index: EdgeIndex, sentences: Sequence[str], embedded: NDArray[np.float32]) -> None:
        self._store, self._index = store, index
        self._sentences, self._embedded = sentences, embedded
        self._random = np.random.default_rng(_SEED)
        self._each = 0
        self._unindexed: list[IndexPoint] = []

    async def up_to(self, size: int) -> None:
        """Until every tenant has its share of `size` records."""
        share = size // TENANTS
        for tenant in range(TENANTS):
            await self._store_for(tenant, range(self._each, share))
            if len(self._unindexed) >= BATCH:
                await self._index_them()
        await self._index_them()
        self._each = share

    async def _store_for(self, tenant: int, numbers: range) -> None:
        principal, now = _principal(tenant), utc_now()
        chosen = self._random.integers(len(self._sentences), size=len(numbers))
        lines = [
            RecordWrite(
                id=f"k{number}",
                text=f"{self._sentences[sentence]} Note {number}.",
                event_at=now - timedelta(days=number % 700),
            )
            for number, sentence in zip(numbers, chosen, strict=True)
        ]
        await self._store.import_lines(principal, lines, actor="benchmark", at=now)
        pending = await self._store.pending_index(len(lines))
        stored = await self._store.records_by_id({entry.record_id for entry in pending})
        await self._store.index_done([entry.seq for entry in pending])
        sentence_of = {line.text: sentence for line, sentence in zip(lines, chosen, strict=True)}
        self._unindexed += [point(record, self._near(sentence_of[record.text])) for record in stored.values()]

    async def _index_them(self) -> None:
        for first in range(0, len(self._unindexed), BATCH):
            await self._index.upsert(self._unindexed[first : first + BATCH])
        self._unindexed.clear()

    def _near(self, sentence: int) -> NDArray[np.float32]:
        step = self._random.standard_normal(self._embedded.shape[1])
        moved = self._embedded[sentence] + MOVED * step / np.linalg.norm(step)
        return np.asarray(moved / np.linalg.norm(moved), dtype=np.float32)


async def _searched(retriever: Retriever, embedder: _TimedEmbedder, searches: int) -> SearchTimes:
    walls_ms: list[float] = []
    embedding_ms: list[float] = []
    candidates = 0
    for number in range(searches):
        query = QUERIES[number % len(QUERIES)]
        request = SearchRequest(
            decision_id=f"benchmark-{number}",
            principal=_principal(number % TENANTS),
            gaps=(Gap(category=GapCategory.PREFERENCE, query=query),),
            context=query,
            max_candidates=8,
            at=utc_now(),
        )
        started = time.perf_counter()
        response = await retriever.search(request)
        walls_ms.append((time.perf_counter() - started) * 1000)
        embedding_ms.append(embedder.last_ms)
        candidates += len(response.candidates)
    if not candidates:
        raise RuntimeError("no search found anything: nothing was measured")
    return SearchTimes(walls_ms, embedding_ms, candidates / searches)


def _principal(number: int) -> Principal:
    return Principal(tenant=f"tenant-{number}", user="user")
