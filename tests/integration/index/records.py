"""Records and queries as the index tests write them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from retold.contracts.record import MemoryRecord, RecordType
from retold.contracts.turn import Principal
from retold.index.points import passage, point
from retold.index.port import RecordIndex
from retold.policy.ports import Embedder
from retold.retrieval.ports import DenseQuery, Eligibility, EntityQuery, Hit, IndexQuery, LexicalQuery
from retold.retrieval.text import possible_names

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
ANN = Principal(tenant="acme", user="ann")

_ids = itertools.count()


def record(text: str, principal: Principal = ANN, **fields: Any) -> MemoryRecord:
    return MemoryRecord(
        **{
            "id": f"rec-{next(_ids)}",
            "tenant": principal.tenant,
            "user": principal.user,
            "type": RecordType.SEMANTIC,
            "subject": "user",
            "text": text,
            "created_at": datetime(2026, 1, 1, tzinfo=UTC),
            **fields,
        }
    )


async def put(index: RecordIndex, embedder: Embedder, *records: MemoryRecord) -> None:
    vectors = await embedder.embed_passages([passage(each) for each in records])
    await index.upsert([point(each, vector) for each, vector in zip(records, vectors, strict=True)])


def eligible(principal: Principal = ANN, *, at: datetime = NOW, scopes: tuple[str, ...] = ("personal",)) -> Eligibility:
    return Eligibility(principal=principal, scopes=scopes, at=at)


async def all_generators(
    embedder: Embedder, text: str, who: Eligibility | None = None, limit: int = 10
) -> list[IndexQuery]:
    (vector,) = await embedder.embed_queries([text])
    who = who or eligible()
    return [
        DenseQuery(eligible=who, limit=limit, vector=vector),
        LexicalQuery(eligible=who, limit=limit, text=text),
        EntityQuery(eligible=who, limit=limit, names=possible_names(text), vector=vector),
    ]


def ids(hits: Sequence[Hit]) -> list[str]:
    return [hit.ref.id for hit in hits]
