"""Texts as BM25 term weights, the same for every engine: cut into words here, weighted by the engine's own encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qdrant_edge import Bm25, Bm25Config, TokenizerType

from retold.retrieval.text import words

TYPICAL_RECORD_WORDS = 24.0


@dataclass(frozen=True, slots=True)
class SparseTerms:
    """Distinct term ids and their weights. Empty when a text has no word worth finding it by."""

    indices: Sequence[int]
    values: Sequence[float]


class Bm25Encoder:
    """English stop words and stems, every other script by its words or pairs of characters (see `words`).

    The engine multiplies the document weights by the inverse document frequency in the tenant's own corpus.
    """

    def __init__(self) -> None:
        self._model = Bm25(Bm25Config(tokenizer=TokenizerType.Whitespace, avg_len=TYPICAL_RECORD_WORDS))

    def document(self, text: str) -> SparseTerms:
        return _distinct(self._model.embed_document(" ".join(words(text))))

    def query(self, text: str) -> SparseTerms:
        return _distinct(self._model.embed_query(" ".join(words(text))))


def _distinct(vector: object) -> SparseTerms:
    """Engines refuse or silently store repeated ids; two words that hash alike become the heavier of them."""
    weights: dict[int, float] = {}
    for index, value in zip(vector.indices, vector.values, strict=True):  # type: ignore[attr-defined]
        weights[index] = max(value, weights.get(index, 0.0))
    return SparseTerms(list(weights), list(weights.values()))
