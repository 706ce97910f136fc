"""Findings as the generators would hand them over, for tests of single stages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np

from retold.contracts.record import MemoryRecord, RecordRef, RecordType
from retold.contracts.turn import Principal
from retold.retrieval.found import Found
from retold.retrieval.fusion import sketch
from retold.retrieval.ports import Generator, Hit

ANN = Principal(tenant="acme", user="ann")
NOW = datetime(2026, 6, 1, tzinfo=UTC)


def hit(id: str, score: float = 0.5, *, version: int = 1, vector: tuple[float, ...] = (1.0, 0.0), **fields: Any) -> Hit:
    return Hit(
        **{
            "ref": RecordRef(id=id, version=version),
            "principal": ANN,
            "score": score,
            "type": RecordType.SEMANTIC,
            "subject": "user",
            "told_at": NOW,
            "sketch": sketch(np.array(vector, dtype=np.float32)),
            **fields,
        }
    )


def found(
    id: str,
    text: str = "Something",
    *,
    score: float = 1.0,
    cosine: float = 0.5,
    lexical: float | None = None,
    generators: tuple[Generator, ...] = (Generator.DENSE,),
    **fields: Any,
) -> Found:
    made = hit(id, score, **fields)
    record = MemoryRecord(
        id=id,
        tenant=ANN.tenant,
        user=ANN.user,
        type=made.type,
        subject=made.subject,
        text=text,
        created_at=made.told_at,
    )
    return Found(made, score, cosine, lexical, frozenset(generators), record)
