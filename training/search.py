"""A small stand-in for the retriever: BM25 and cosine, fused, the right subject preferred. Eight candidates.

The judge must be trained on what retrieval brings, near misses first; the real pipeline needs an index on disk, which a
training run of minutes does not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from retold.contracts.record import MemoryRecord
from retold.retrieval.subject import spoken_of
from retold.retrieval.text import content_words, fold

CANDIDATES = 8
_K1, _B, _FUSION = 1.2, 0.75, 20
_OTHER_SUBJECT = 0.5


class Pool:
    """One principal's records with what both rankings need."""

    def __init__(self, records: Sequence[MemoryRecord], vectors: NDArray[np.float32]) -> None:
        self.records = list(records)
        self._vectors = vectors
        self._words = [Counter(content_words(record.text)) for record in records]
        self._mean = sum(sum(words.values()) for words in self._words) / max(len(records), 1)
        self._holders = Counter(word for words in self._words for word in words)

    def search(self, query: str, vector: NDArray[np.float32]) -> list[MemoryRecord]:
        wanted = spoken_of(query, {record.subject for record in self.records})
        scores = np.zeros(len(self.records))
        for ranking in (self._vectors @ vector, self._bm25(query)):
            for rank, at in enumerate(np.argsort(-ranking, kind="stable")[:60]):
                if ranking[at] > 0:
                    scores[at] += 1 / (_FUSION + rank + 1)
        if wanted:
            factors = [1.0 if fold(record.subject) in wanted else _OTHER_SUBJECT for record in self.records]
            scores *= np.array(factors)
        order = np.argsort(-scores, kind="stable")[:CANDIDATES]
        return [self.records[at] for at in order if scores[at] > 0]

    def _bm25(self, query: str) -> NDArray[np.float64]:
        scores = np.zeros(len(self.records))
        for word in set(content_words(query)):
            holders = self._holders.get(word, 0)
            if not holders:
                continue
            idf = math.log(1 + (len(self.records) - holders + 0.5) / (holders + 0.5))
            for at, words in enumerate(self._words):
                if count := words.get(word, 0):
                    length = sum(words.values()) / self._mean
                    scores[at] += idf * count * (_K1 + 1) / (count + _K1 * (1 - _B + _B * length))
        return scores
