"""Reciprocal rank fusion: one order out of several generators whose scores cannot be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from retold.retrieval.found import Found, ranked
from retold.retrieval.ports import Generator, Hit


def fuse(
    lists: Mapping[Generator, Sequence[Hit]],
    query_vector: NDArray[np.float32],
    *,
    k: int,
    weights: Mapping[Generator, float],
) -> list[Found]:
    """Sum `weight / (k + rank)` over the generators that found a record, rank counting from 1.

    Two versions of a record (an index being brought into line) are one finding, the later version. The cosine of
    a record that only words found is read off its sketch.
    """
    hits: dict[str, Hit] = {}
    scores: dict[str, float] = {}
    by: dict[str, set[Generator]] = {}
    cosines: dict[str, float] = {}
    lexical: dict[str, float] = {}
    for generator, found in lists.items():
        for rank, hit in enumerate(found, start=1):
            id = hit.ref.id
            if id not in hits or hit.ref.version > hits[id].ref.version:
                hits[id] = hit
            scores[id] = scores.get(id, 0.0) + weights[generator] / (k + rank)
            by.setdefault(id, set()).add(generator)
            if generator is Generator.LEXICAL:
                lexical[id] = hit.score
            else:
                cosines[id] = hit.score
    return ranked(
        Found(
            hit=hit,
            score=scores[id],
            cosine=cosines[id] if id in cosines else sketched_cosine(hit.sketch, query_vector),
            lexical=lexical.get(id),
            generators=frozenset(by[id]),
        )
        for id, hit in hits.items()
    )


def sketch(vector: NDArray[np.float32]) -> bytes:
    """A unit vector as one signed byte a dimension, scaled to its largest component."""
    largest = float(np.abs(vector).max(initial=0.0))
    if largest == 0.0:
        return bytes(vector.size)
    rounded: NDArray[np.int8] = np.rint(vector * (127.0 / largest)).astype(np.int8)
    return rounded.tobytes()


def sketched_cosine(sketched: bytes, vector: NDArray[np.float32]) -> float:
    """Cosine between a sketch and a vector, within about 0.005; 0 where they cannot be compared."""
    return _cosine(_unsketched(sketched), vector.astype(np.float32))


def sketches_cosine(one: bytes, other: bytes) -> float:
    """Cosine between two sketches, within about 0.005; 0 where they cannot be compared."""
    return _cosine(_unsketched(one), _unsketched(other))


def _unsketched(sketched: bytes) -> NDArray[np.float32]:
    return np.frombuffer(sketched, dtype=np.int8).astype(np.float32)


def _cosine(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    if one.size != other.size:
        return 0.0
    norms = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / norms if norms else 0.0
