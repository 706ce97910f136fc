"""The index on a Qdrant server, over REST.

Searches are tried once: the turn has a deadline and a baseline to fall back to. Writes are idempotent and off the
request path; of those, only a server that asks to be left alone for a moment (429) is asked again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

from qdrant_client import AsyncQdrantClient, models
from qdrant_client.http.exceptions import UnexpectedResponse

from retold.contracts.record import RecordId
from retold.contracts.turn import Principal
from retold.index.collection import MISSING_IN_SCHEMA_1, SCHEMA, Collection, described, expect, read_description
from retold.index.engine_thread import EngineThread
from retold.index.filters import (
    INDEXED,
    After,
    AnyOf,
    Condition,
    Filter,
    IndexKind,
    Is,
    IsOneOf,
    NotAfter,
    carrying,
    findable,
    owned_by,
)  # fmt: skip
from retold.index.points import RETURNED_KEYS, check_dimension, check_points, point_id, read_hit, read_stored
from retold.index.port import (
    SCAN_PAGE,
    DimensionMismatchError,
    IndexPoint,
    IndexUnavailableError,
    ScannedPoint,
    ScanPage,
    StoredPoint,
    UnfilterableError,
)  # fmt: skip
from retold.index.reading_back import ReadBack
from retold.index.server_errors import CLIENT_ERRORS, asked_to_wait_s, typed
from retold.index.sparse import Bm25Encoder
from retold.policy.ports import EmbedderIdentity
from retold.retrieval.ports import DenseQuery, EntityQuery, Hit, IndexQuery, LexicalQuery

T = TypeVar("T")

_DENSE, _LEXICAL = "dense", "lexical"

MAX_BATCH_POINTS = 128
UPGRADE_PAGE = 1_000
MAX_BATCH_BYTES = 4_000_000
"""Servers refuse bodies over 32 MB, and slow links time out long before that."""


class ServerIndex(ReadBack):
    """A :class:`~retold.index.port.RecordIndex` in one collection of a Qdrant server.

    Build it inside the event loop that uses it.

    Args:
        url: `https://host:6333`. Over plain http the API key travels unprotected.
        collection: created by :meth:`ensure` where it is missing.
        timeout_s: hard limit of every request, whole seconds; a search is also under its caller's deadline.
        write_attempts: how often a write is tried while the server answers 429.
        max_wait_s: longest wait between two attempts, whatever the server's `retry-after` says.
    """

    def __init__(
        self,
        url: str,
        collection: str,
        *,
        api_key: str | None = None,
        timeout_s: int = 5,
        write_attempts: int = 4,
        max_wait_s: float = 10.0,
    ) -> None:
        self._collection = collection
        self._write_attempts = write_attempts
        self._max_wait_s = max_wait_s
        # The compatibility check is a request and a thread at construction; readiness is asked through healthy().
        self._client = AsyncQdrantClient(url=url, api_key=api_key, timeout=timeout_s, check_compatibility=False)
        self._encoder = EngineThread(f"encode-{collection}")
        self._bm25 = Bm25Encoder()
        self._identity: EmbedderIdentity | None = None

    async def ensure(self, embedder: EmbedderIdentity) -> None:
        if not await self._ask(lambda: self._client.collection_exists(self._collection)):
            await self._create(embedder)
        info = await self._ask(lambda: self._client.get_collection(self._collection))
        stored = expect(read_description(info.config.metadata or {}), embedder, f"collection {self._collection}")
        _check_vectors(info, embedder, self._collection)
        await self._upgrade(stored)
        for key, kind in INDEXED.items():
            if key.value not in info.payload_schema:
                await self._write(
                    lambda key=key, kind=kind: self._client.create_payload_index(  # type: ignore[misc]
                        self._collection, key.value, field_schema=_INDEX_PARAMS[kind](), wait=True
                    )
                )
        self._identity = embedder

    async def _upgrade(self, stored: Collection) -> None:
        """Give the points of an earlier release the keys they lack; the new number last, so that a crash repeats.

        In pages, and only where a key is missing: other workers may be doing the same, and writing meanwhile.
        """
        if stored.schema_version == SCHEMA:
            return
        for key, value in MISSING_IN_SCHEMA_1.items():
            lacking = models.Filter(must=[models.IsEmptyCondition(is_empty=models.PayloadField(key=key))])
            while points := await self._lacking(lacking):
                await self._write(
                    lambda key=key, value=value, points=points: self._client.set_payload(  # type: ignore[misc]
                        self._collection, payload={key: value}, points=points, wait=True
                    )
                )
        await self._write(
            lambda: self._client.update_collection(
                self._collection, metadata=described(stored.embedder).model_dump(mode="json")
            )
        )

    async def _lacking(self, lacking: models.Filter) -> list[models.ExtendedPointId]:
        found, _ = await self._ask(
            lambda: self._client.scroll(
                self._collection, scroll_filter=lacking, limit=UPGRADE_PAGE, with_payload=False, with_vectors=False
            )
        )
        return [record.id for record in found]

    async def upsert(self, points: Sequence[IndexPoint]) -> None:
        check_points(points, self._dimension())
        batches = await self._encoder.run(lambda: list(_batches([self._point(each) for each in points])))
        for batch in batches:
            await self._write(
                lambda batch=batch: self._client.upsert(self._collection, points=batch, wait=True)  # type: ignore[misc]
            )

    async def delete(self, ids: Sequence[RecordId]) -> None:
        await self.delete_points([point_id(id) for id in ids])

    async def delete_points(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), MAX_BATCH_POINTS):
            gone: list[models.ExtendedPointId] = list(keys[start : start + MAX_BATCH_POINTS])
            await self._write(
                lambda gone=gone: self._client.delete(  # type: ignore[misc]
                    self._collection, points_selector=models.PointIdsList(points=gone), wait=True
                )
            )

    async def search(self, queries: Sequence[IndexQuery]) -> list[list[Hit]]:
        requests = [self._request(query) for query in queries]
        asked = [request for request in requests if request is not None]
        if not asked:
            return [[] for _ in queries]
        answered = await self._ask(lambda: self._client.query_batch_points(self._collection, requests=asked))
        if len(answered) != len(asked):
            raise IndexUnavailableError(f"asked {len(asked)} queries, the server answered {len(answered)}")
        answers = iter(answered)
        return [
            [] if request is None else _hits(next(answers).points, query)
            for query, request in zip(queries, requests, strict=True)
        ]

    async def count(self, principal: Principal | None = None) -> int:
        owned = _translated(owned_by(principal)) if principal is not None else None
        counted = await self._ask(lambda: self._client.count(self._collection, count_filter=owned, exact=True))
        return counted.count

    async def fetch(self, ids: Sequence[RecordId]) -> dict[RecordId, StoredPoint]:
        found: dict[RecordId, StoredPoint] = {}
        for start in range(0, len(ids), MAX_BATCH_POINTS):
            wanted: list[models.ExtendedPointId] = [point_id(id) for id in ids[start : start + MAX_BATCH_POINTS]]
            records = await self._ask(
                lambda wanted=wanted: self._client.retrieve(  # type: ignore[misc]
                    self._collection, wanted, with_payload=True, with_vectors=False
                )
            )
            stored = [read_stored(record.payload) for record in records]
            found.update((each.ref.id, each) for each in stored if each is not None)
        return found

    async def inspect(self, ids: Sequence[RecordId]) -> dict[RecordId, ScannedPoint]:
        keys = {point_id(id): id for id in ids}
        found: dict[RecordId, ScannedPoint] = {}
        for start in range(0, len(ids), MAX_BATCH_POINTS):
            wanted: list[models.ExtendedPointId] = [*list(keys)[start : start + MAX_BATCH_POINTS]]
            records = await self._ask(
                lambda wanted=wanted: self._client.retrieve(  # type: ignore[misc]
                    self._collection, wanted, with_payload=True, with_vectors=True
                )
            )
            found.update({keys[str(record.id)]: _scanned(record) for record in records})
        return found

    async def scan(self, after: str | None = None, principal: Principal | None = None) -> ScanPage:
        owned = _translated(owned_by(principal)) if principal is not None else None
        found, following = await self._ask(
            lambda: self._client.scroll(
                self._collection,
                scroll_filter=owned,
                offset=after,
                limit=SCAN_PAGE,
                with_payload=True,
                with_vectors=True,
            )
        )
        return ScanPage(tuple(_scanned(record) for record in found), None if following is None else str(following))

    async def delete_principal(self, principal: Principal) -> None:
        selector = models.FilterSelector(filter=_translated(owned_by(principal)))
        await self._write(lambda: self._client.delete(self._collection, points_selector=selector, wait=True))
        if left := await self.count(principal):
            raise IndexUnavailableError(f"{left} points are left after deleting a principal")

    async def healthy(self) -> bool:
        try:
            return await self._ask(lambda: self._client.collection_exists(self._collection))
        except IndexUnavailableError:
            return False

    async def aclose(self) -> None:
        await self._encoder.aclose(lambda: None)
        await self._client.close()

    async def _create(self, embedder: EmbedderIdentity) -> None:
        try:
            await self._client.create_collection(
                self._collection,
                vectors_config={
                    _DENSE: models.VectorParams(size=embedder.dimension, distance=models.Distance.COSINE)
                },
                sparse_vectors_config={_LEXICAL: models.SparseVectorParams(modifier=models.Modifier.IDF)},
                metadata=described(embedder).model_dump(mode="json"),
            )  # fmt: skip
        except UnexpectedResponse as error:
            # Another worker was faster. Whose collection it is now is checked like any other's.
            if error.status_code != 409 and b"already exists" not in (error.content or b""):
                raise typed(error) from error
        except CLIENT_ERRORS as error:
            raise typed(error) from error

    def _point(self, point: IndexPoint) -> models.PointStruct:
        terms = self._bm25.document(point.text)
        vectors: dict[str, models.Vector] = {_DENSE: point.dense.tolist()}
        if terms.indices:
            vectors[_LEXICAL] = models.SparseVector(indices=list(terms.indices), values=list(terms.values))
        return models.PointStruct(id=point_id(point.ref.id), vector=vectors, payload=dict(point.payload))

    def _request(self, query: IndexQuery) -> models.QueryRequest | None:
        """None for a query that has nothing to ask by: no word, no name."""
        where = findable(query.eligible)
        params = None
        nearest: list[float] | models.SparseVector
        match query:
            case DenseQuery():
                using, nearest = _DENSE, self._checked(query)
            case EntityQuery():
                if not query.names:
                    return None
                where = (*where, *carrying(query.names))
                using, nearest = _DENSE, self._checked(query)
            case LexicalQuery():
                terms = self._bm25.query(query.text)
                if not terms.indices:
                    return None
                using = _LEXICAL
                nearest = models.SparseVector(indices=list(terms.indices), values=list(terms.values))
                corpus = _translated(owned_by(query.eligible.principal))
                params = models.SearchParams(idf=models.IdfCorpusParams(corpus=corpus))
        return models.QueryRequest(
            query=nearest,
            using=using,
            filter=_translated(where),
            params=params,
            limit=query.limit,
            with_payload=list(RETURNED_KEYS),
            with_vector=False,
        )

    def _checked(self, query: DenseQuery | EntityQuery) -> list[float]:
        check_dimension(query.vector, self._dimension(), "query")
        return [float(value) for value in query.vector]

    def _dimension(self) -> int:
        if self._identity is None:
            raise IndexUnavailableError(f"collection {self._collection} is not open: call ensure() first")
        return self._identity.dimension

    async def _ask(self, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await call()
        except CLIENT_ERRORS as error:
            raise typed(error) from error

    async def _write(self, call: Callable[[], Awaitable[object]]) -> None:
        for attempt in range(1, self._write_attempts + 1):
            try:
                await call()
                return
            except CLIENT_ERRORS as error:
                wait_s = asked_to_wait_s(error)
                if wait_s is None or attempt == self._write_attempts:
                    raise typed(error) from error
                await asyncio.sleep(min(wait_s, self._max_wait_s))


_INDEX_PARAMS: dict[IndexKind, Callable[[], models.PayloadSchemaParams]] = {
    IndexKind.TENANT: lambda: models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
    IndexKind.KEYWORD: lambda: models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD),
    IndexKind.TIME: lambda: models.DatetimeIndexParams(type=models.DatetimeIndexType.DATETIME),
}


def _translated(conditions: Filter) -> models.Filter:
    return models.Filter(must=[_condition(each) for each in conditions])


def _condition(condition: Condition) -> models.FieldCondition | models.Filter:
    match condition:
        case Is(key, value):
            return models.FieldCondition(key=key.value, match=models.MatchValue(value=value))
        case IsOneOf(key, values):
            return models.FieldCondition(key=key.value, match=models.MatchAny(any=list(values)))
        case NotAfter(key, at):
            return models.FieldCondition(key=key.value, range=models.DatetimeRange(lte=at))
        case After(key, at):
            return models.FieldCondition(key=key.value, range=models.DatetimeRange(gt=at))
        case AnyOf(conditions):
            return models.Filter(should=[_condition(each) for each in conditions])
        case _:
            raise UnfilterableError(f"the server index cannot express {condition!r}")


def _hits(answer: Sequence[models.ScoredPoint], query: IndexQuery) -> list[Hit]:
    hits = [read_hit(point.payload, point.score, query.eligible.principal) for point in answer]
    return [hit for hit in hits if hit is not None and (hit.score > 0 or not isinstance(query, LexicalQuery))]


def _batches(points: Sequence[models.PointStruct]) -> Iterator[list[models.PointStruct]]:
    """Split by count and by the bytes of the body."""
    batch: list[models.PointStruct] = []
    size = 0
    for point in points:
        added = len(json.dumps(point.model_dump(mode="json")))
        if batch and (len(batch) == MAX_BATCH_POINTS or size + added > MAX_BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(point)
        size += added
    if batch:
        yield batch


def _scanned(record: models.Record) -> ScannedPoint:
    vectors = record.vector if isinstance(record.vector, dict) else {}
    lexical = vectors.get(_LEXICAL)
    terms = frozenset(lexical.indices) if isinstance(lexical, models.SparseVector) else None
    return ScannedPoint(str(record.id), dict(record.payload or {}), _DENSE in vectors, terms)


def _check_vectors(info: models.CollectionInfo, embedder: EmbedderIdentity, collection: str) -> None:
    """A collection that says it is ours may still have been made by hand, without one of the vectors."""
    vectors = info.config.params.vectors
    dense = vectors.get(_DENSE) if isinstance(vectors, dict) else None
    if dense is None or _LEXICAL not in (info.config.params.sparse_vectors or {}):
        raise IndexUnavailableError(
            f"collection {collection} lacks the vector '{_DENSE}' or '{_LEXICAL}': rebuild the index from the store"
        )
    if dense.size != embedder.dimension:
        raise DimensionMismatchError(
            f"collection {collection} holds {dense.size} dimensions, {embedder.model} gives {embedder.dimension}"
        )
