"""The embedded index: Qdrant's own engine in this process, one folder, one process at a time.

Durability: the write-ahead log survives the death of the process; power loss is covered by a flush, which every
write makes before it returns (some 20 fsyncs, tens of milliseconds: writes are off the request path). The engine
holds Python's global lock for the length of a call, so searches are kept small and exact, and the optimizer, which
would stop the process for minutes, is never run: up to about 100,000 records this is the faster way anyway.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import qdrant_edge as qe

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
    utc_text,
)  # fmt: skip
from retold.index.points import RETURNED_KEYS, HitReader, check_dimension, check_points, point_id, read_stored
from retold.index.port import (
    SCAN_PAGE,
    EmbedderMismatchError,
    IndexPoint,
    IndexUnavailableError,
    ScannedPoint,
    ScanPage,
    StoredPoint,
    UnfilterableError,
)  # fmt: skip
from retold.index.reading_back import ReadBack
from retold.index.sparse import Bm25Encoder
from retold.policy.ports import EmbedderIdentity
from retold.retrieval.ports import DenseQuery, Eligibility, EntityQuery, Hit, IndexQuery, LexicalQuery

T = TypeVar("T")

_DENSE, _LEXICAL = "dense", "lexical"
_IDENTITY_FILE = "embedder.json"
_NEVER_KB = 10**9
_PAGE = 256


class EdgeIndex(ReadBack):
    """A :class:`~retold.index.port.RecordIndex` in a folder, for one process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._thread = EngineThread(f"index-{folder.name}")
        self._bm25 = Bm25Encoder()
        self._shard: qe.EdgeShard | None = None
        self._identity: EmbedderIdentity | None = None

    async def ensure(self, embedder: EmbedderIdentity) -> None:
        await self._run(lambda: self._open(embedder))

    async def upsert(self, points: Sequence[IndexPoint]) -> None:
        await self._run(lambda: self._upsert(points))

    async def delete(self, ids: Sequence[RecordId]) -> None:
        await self.delete_points([point_id(id) for id in ids])

    async def delete_points(self, keys: Sequence[str]) -> None:
        points: list[qe.PointId] = list(keys)
        if points:
            await self._run(lambda: self._write(qe.UpdateOperation.delete_points(points)))

    async def search(self, queries: Sequence[IndexQuery]) -> list[list[Hit]]:
        return await self._run(lambda: self._search(queries)) if queries else []

    async def count(self, principal: Principal | None = None) -> int:
        owned = _translated(owned_by(principal)) if principal is not None else None
        return await self._run(lambda: self._opened().count(qe.CountRequest(exact=True, filter=owned)))

    async def fetch(self, ids: Sequence[RecordId]) -> dict[RecordId, StoredPoint]:
        points: list[qe.PointId] = [point_id(id) for id in ids]
        found = await self._run(
            lambda: [
                record
                for at in range(0, len(points), _PAGE)
                for record in self._opened().retrieve(points[at : at + _PAGE], True, False)
            ]
        )
        stored = [read_stored(record.payload) for record in found]
        return {each.ref.id: each for each in stored if each is not None}

    async def inspect(self, ids: Sequence[RecordId]) -> dict[RecordId, ScannedPoint]:
        keys = {point_id(id): id for id in ids}
        wanted: list[qe.PointId] = list(keys)
        found = await self._run(
            lambda: [
                record
                for at in range(0, len(wanted), _PAGE)
                for record in self._opened().retrieve(wanted[at : at + _PAGE], True, True)
            ]
        )
        return {keys[str(record.id)]: _scanned(record) for record in found}

    async def scan(self, after: str | None = None, principal: Principal | None = None) -> ScanPage:
        owned = _translated(owned_by(principal)) if principal is not None else None
        asked = qe.ScrollRequest(offset=after, limit=SCAN_PAGE, filter=owned, with_payload=True, with_vector=True)
        found, following = await self._run(lambda: self._opened().scroll(asked))
        return ScanPage(tuple(_scanned(record) for record in found), None if following is None else str(following))

    async def delete_principal(self, principal: Principal) -> None:
        owned = _translated(owned_by(principal))
        await self._run(lambda: self._write(qe.UpdateOperation.delete_points_by_filter(owned)))
        if left := await self.count(principal):
            raise IndexUnavailableError(f"{left} points are left after deleting a principal")

    async def healthy(self) -> bool:
        try:
            await self.count()
        except IndexUnavailableError:
            return False
        return True

    async def aclose(self) -> None:
        await self._thread.aclose(self._close)

    # --- in the engine's thread --------------------------------------------------------------------------

    async def _run(self, call: Callable[[], T]) -> T:
        return await self._thread.run(lambda: _typed(call, self._folder))

    def _open(self, embedder: EmbedderIdentity) -> None:
        if self._shard is not None:
            if embedder != self._identity:
                raise EmbedderMismatchError(self._identity, embedder, str(self._folder))
            return
        data = self._folder / "shard"
        exists = data.is_dir() and any(data.iterdir())
        if exists:
            stored = expect(read_folder(self._folder), embedder, str(self._folder))
            self._shard = qe.EdgeShard.load(str(data))
        else:
            stored = described(embedder)
            self._create(data, stored)
            self._shard = qe.EdgeShard.load(str(data))
        self._identity = embedder
        self._upgrade(self._shard, stored)
        self._index_payload(self._shard)

    def _create(self, data: Path, collection: Collection) -> None:
        """The description first, then the shard, whole or not at all: a death in between leaves nothing to open."""
        making = data.with_name(f"{data.name}.making")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        _write_description(self._folder, collection)
        shard = qe.EdgeShard.create(str(making), _schema(collection.embedder.dimension))
        shard.flush()
        shard.close()
        if data.exists():
            data.rmdir()  # empty, or the index would exist
        making.rename(data)

    def _upgrade(self, shard: qe.EdgeShard, stored: Collection) -> None:
        """Give the points of an earlier release the keys they lack; the new number last, so that a crash repeats."""
        if stored.schema_version == SCHEMA:
            return
        for key, value in MISSING_IN_SCHEMA_1.items():
            lacking = qe.Filter(must=[qe.IsEmptyCondition(key)])
            shard.update(qe.UpdateOperation.set_payload_by_filter(lacking, {key: value}))
        shard.flush()
        _write_description(self._folder, described(stored.embedder))

    def _index_payload(self, shard: qe.EdgeShard) -> None:
        """Also on a folder an earlier release made: it may lack the index of a newer key."""
        present = shard.info().payload_schema
        for key, kind in INDEXED.items():
            if key.value not in present:
                shard.update(qe.UpdateOperation.create_field_index(key.value, _INDEX_PARAMS[kind]()))
        shard.flush()

    def _opened(self) -> qe.EdgeShard:
        if self._shard is None:
            raise IndexUnavailableError(f"the index in {self._folder} is not open: call ensure() first")
        return self._shard

    def _upsert(self, points: Sequence[IndexPoint]) -> None:
        shard_dimension = self._dimension()
        check_points(points, shard_dimension)
        if points:
            self._write(qe.UpdateOperation.upsert_points([self._point(each) for each in points]))

    def _point(self, point: IndexPoint) -> qe.Point:
        terms = self._bm25.document(point.text)
        vectors: dict[str, qe.NamedVector] = {_DENSE: point.dense.tolist()}
        if terms.indices:
            vectors[_LEXICAL] = qe.SparseVector(list(terms.indices), list(terms.values))
        return qe.Point(point_id(point.ref.id), vectors, dict(point.payload))

    def _write(self, operation: qe.UpdateOperation) -> None:
        shard = self._opened()
        shard.update(operation)
        shard.flush()

    def _search(self, queries: Sequence[IndexQuery]) -> list[list[Hit]]:
        """One batch for ids and scores, one read of the payload of each point that any of the queries found.

        Queries of a turn find much the same points, and fetching and reading payloads is half of a search.
        """
        shard, findables = self._opened(), _Findables()
        requests = [self._request(query, findables) for query in queries]
        asked = [request for request in requests if request is not None]
        answers = iter(shard.query_batch(qe.QueryBatchRequest(asked)) if asked else [])
        scored = [[] if request is None else [(each.id, each.score) for each in next(answers)] for request in requests]
        ids = list(dict.fromkeys(point for answer in scored for point, _ in answer))
        payloads = {each.id: each.payload for each in shard.retrieve(ids, list(RETURNED_KEYS), False)} if ids else {}
        reader = HitReader(payloads)
        return [_hits(answer, query, reader) for query, answer in zip(queries, scored, strict=True)]

    def _request(self, query: IndexQuery, findables: _Findables) -> qe.QueryRequest | None:
        """None for a query that has nothing to ask by: no word, no name."""
        where = findables.of(query.eligible)
        params = None
        match query:
            case DenseQuery():
                ask = self._nearest(query.vector.tolist(), query)
            case EntityQuery():
                if not query.names:
                    return None
                where = [*where, *(_condition(each) for each in carrying(query.names))]
                ask = self._nearest(query.vector.tolist(), query)
            case LexicalQuery():
                terms = self._bm25.query(query.text)
                if not terms.indices:
                    return None
                ask = qe.Query.Nearest(qe.SparseVector(list(terms.indices), list(terms.values)), using=_LEXICAL)
                params = qe.SearchParams(idf=qe.IdfParams(corpus=_translated(owned_by(query.eligible.principal))))
        return qe.QueryRequest(
            limit=query.limit, query=ask, filter=qe.Filter(must=[*where]), params=params, with_payload=False
        )

    def _nearest(self, vector: list[float], query: DenseQuery | EntityQuery) -> qe.Query:
        check_dimension(query.vector, self._dimension(), "query")
        return qe.Query.Nearest(vector, using=_DENSE)

    def _dimension(self) -> int:
        self._opened()
        assert self._identity is not None
        return self._identity.dimension

    def _close(self) -> None:
        if self._shard is not None:
            self._shard.flush()
            self._shard.close()
            self._shard = None


class _Findables:
    """The conditions of each eligibility, translated once: all queries of a turn share theirs."""

    def __init__(self) -> None:
        self._translated: dict[int, tuple[Eligibility, list[qe.FieldCondition | qe.Filter]]] = {}

    def of(self, eligible: Eligibility) -> list[qe.FieldCondition | qe.Filter]:
        """Kept by identity, together with its key: the same object asks for the same filter."""
        if id(eligible) not in self._translated:
            self._translated[id(eligible)] = (eligible, [_condition(each) for each in findable(eligible)])
        return self._translated[id(eligible)][1]


def _schema(dimension: int) -> qe.EdgeConfig:
    return qe.EdgeConfig(
        vectors={_DENSE: qe.EdgeVectorParams(size=dimension, distance=qe.Distance.Cosine)},
        sparse_vectors={_LEXICAL: qe.EdgeSparseVectorParams(modifier=qe.Modifier.Idf)},
        optimizers=qe.EdgeOptimizersConfig(indexing_threshold=_NEVER_KB),
        wal_enabled=True,
    )


_INDEX_PARAMS: dict[IndexKind, Callable[[], qe.PayloadSchemaParams]] = {
    IndexKind.TENANT: lambda: qe.KeywordIndexParams(is_tenant=True),
    IndexKind.KEYWORD: qe.KeywordIndexParams,
    IndexKind.TIME: qe.DatetimeIndexParams,
}


def _translated(conditions: Filter) -> qe.Filter:
    return qe.Filter(must=[_condition(each) for each in conditions])


def _condition(condition: Condition) -> qe.FieldCondition | qe.Filter:
    match condition:
        case Is(key, value):
            return qe.FieldCondition(key.value, match=qe.MatchValue(value))
        case IsOneOf(key, values):
            return qe.FieldCondition(key.value, match=qe.MatchAny(list(values)))
        case NotAfter(key, at):
            return qe.FieldCondition(key.value, range=qe.RangeDateTime(lte=utc_text(at)))
        case After(key, at):
            return qe.FieldCondition(key.value, range=qe.RangeDateTime(gt=utc_text(at)))
        case AnyOf(conditions):
            return qe.Filter(should=[_condition(each) for each in conditions])
        case _:
            raise UnfilterableError(f"the embedded index cannot express {condition!r}")


def _hits(answer: Sequence[tuple[qe.PointId, float]], query: IndexQuery, reader: HitReader[qe.PointId]) -> list[Hit]:
    if isinstance(query, LexicalQuery):
        answer = [(point, score) for point, score in answer if score > 0]
    return reader.hits(answer, query.eligible.principal)


def _scanned(record: qe.Record) -> ScannedPoint:
    vectors = record.vector if isinstance(record.vector, dict) else {}
    lexical = vectors.get(_LEXICAL)
    terms = frozenset(lexical.indices) if isinstance(lexical, qe.SparseVector) else None
    return ScannedPoint(str(record.id), dict(record.payload or {}), _DENSE in vectors, terms)


def read_folder(folder: Path) -> Collection | None:
    """What the index in this folder says about itself; None if it does not."""
    try:
        return read_description(json.loads((folder / _IDENTITY_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def _write_description(folder: Path, collection: Collection) -> None:
    draft = folder / f"{_IDENTITY_FILE}.tmp"
    draft.write_text(collection.model_dump_json(), encoding="utf-8")
    draft.replace(folder / _IDENTITY_FILE)


def _typed(call: Callable[[], T], folder: Path) -> T:
    """The engine raises bare `Exception` with a message; callers get the port's errors."""
    try:
        return call()
    except (ValueError, EmbedderMismatchError, IndexUnavailableError):
        raise
    except Exception as error:
        if "WouldBlock" in str(error):
            raise IndexUnavailableError(
                f"the index in {folder} is open in another process: the embedded index belongs to one process; "
                "stop the other one, or use a Qdrant server"
            ) from error
        raise IndexUnavailableError(f"the embedded index in {folder} failed: {error}") from error
