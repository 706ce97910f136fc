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
    by: dict[str, list[Generator]] = {}
    cosines: dict[str, float] = {}
    lexical: dict[str, float] = {}
    for generator in Generator:  # always in this order: sums of floats depend on it
        weight = weights[generator]
        for rank, hit in enumerate(lists.get(generator, ()), start=1):
            id = hit.ref.id
            if id not in hits:
                hits[id], scores[id], by[id] = hit, 0.0, []
            elif hit.ref.version > hits[id].ref.version:
                hits[id] = hit
            scores[id] += weight / (k + rank)
            by[id].append(generator)
            if generator is Generator.LEXICAL:
                lexical[id] = hit.score
            else:
                cosines[id] = hit.score
    worded = [id for id in hits if id not in cosines]
    cosines.update(zip(worded, sketched_cosines([hits[id].sketch for id in worded], query_vector), strict=True))
    return ranked(Found(hit, scores[id], cosines[id], lexical.get(id), frozenset(by[id])) for id, hit in hits.items())


def sketch(vector: NDArray[np.float32]) -> bytes:
    """A unit vector as one signed byte a dimension, scaled to its largest component."""
    largest = float(np.abs(vector).max(initial=0.0))
    if largest == 0.0:
        return bytes(vector.size)
    rounded: NDArray[np.int8] = np.rint(vector * (127.0 / largest)).astype(np.int8)
    return rounded.tobytes()


def sketched_cosines(sketches: Sequence[bytes], vector: NDArray[np.float32]) -> list[float]:
    """Cosine between each sketch and a vector, within about 0.005; 0 where they cannot be compared."""
    comparable = [at for at, each in enumerate(sketches) if len(each) == vector.size]
    cosines = np.zeros(len(sketches), dtype=np.float32)
    if comparable and vector.size:
        joined = b"".join(sketches[at] for at in comparable)
        rows = np.frombuffer(joined, dtype=np.int8).reshape(len(comparable), -1).astype(np.float32)
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows)) * np.float32(np.linalg.norm(vector))
        cosines[comparable] = np.divide(rows @ vector, norms, out=np.zeros_like(norms), where=norms > 0)
    return cosines.tolist()


def unsketched(sketched: bytes) -> NDArray[np.float32]:
    """A sketch as a vector, up to its length."""
    return np.frombuffer(sketched, dtype=np.int8).astype(np.float32)
