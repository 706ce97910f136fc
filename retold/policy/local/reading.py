"""Reads a turn and its candidates into the vectors that the candidate features are computed from."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from retold.contracts.record import MemoryRecord
from retold.policy.local import candidate_features
from retold.policy.local.candidate_features import Question, Read
from retold.policy.ports import Embedder

_WORD_CACHE = 4_096
_NOWADAYS = re.compile(r"\b(?:these days|nowadays|at the moment|right now|at present|currently)\b", re.IGNORECASE)
"""Said of everything that holds now: no record repeats it, and none should be held to lack it."""


class CandidateReader:
    """Embeds the turn, every candidate and the words of both. The trainer reads with it too, so both see the same."""

    def __init__(self, embedder: Embedder, word_counts: Mapping[str, float]) -> None:
        self._embedder = embedder
        self._counts = word_counts
        self._words = _WordVectors(embedder)

    async def warm(self, words: Iterable[str]) -> None:
        """Embed words ahead of the turns that will hold them. About 1.3 CPU-ms a word."""
        await self._words.of(set(words))

    async def read(self, turn: str, candidates: Sequence[MemoryRecord]) -> tuple[Question, list[Read]]:
        """One question and its candidates."""
        return await self.question(turn, candidates), await self.candidates(candidates)

    async def question(self, text: str, candidates: Sequence[MemoryRecord]) -> Question:
        name = candidate_features.principal_name(candidates)
        asked, spoken = await self._embedder.embed_queries([text, candidate_features.spoken_by_another(text, name)])
        tokens = candidate_features.content_tokens(_NOWADAYS.sub(" ", text), candidate_features.MAX_QUESTION_WORDS)
        by_word = await self._words.of(set(tokens))
        return Question(
            asked=Read(text, asked, tokens, by_word(tokens)),
            spoken=spoken,
            subjects=candidate_features.subjects_of(text, candidates),
            rarity=candidate_features.rarity(tokens, self._counts),
        )

    async def candidates(self, candidates: Sequence[MemoryRecord]) -> list[Read]:
        vectors = await self._embedder.embed_passages([record.text for record in candidates])
        tokens = [
            candidate_features.content_tokens(record.text, candidate_features.MAX_RECORD_WORDS) for record in candidates
        ]
        by_word = await self._words.of({token for each in tokens for token in each})
        return [
            Read(record.text, vector, each, by_word(each))
            for record, vector, each in zip(candidates, vectors, tokens, strict=True)
        ]


class _WordVectors:
    """Vectors of single words, the last few thousand kept: the same names and things come up turn after turn."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._kept: OrderedDict[str, NDArray[np.float32]] = OrderedDict()

    async def of(self, tokens: set[str]) -> _Lookup:
        found = {token: self._kept[token] for token in tokens if token in self._kept}
        missing = sorted(tokens - found.keys())
        if missing:
            found.update(zip(missing, await self._embedder.embed_passages(missing), strict=True))
        for token, vector in found.items():
            self._kept[token] = vector
            self._kept.move_to_end(token)
        while len(self._kept) > _WORD_CACHE:
            self._kept.popitem(last=False)
        return _Lookup(found, self._embedder.identity.dimension)


class _Lookup:
    def __init__(self, vectors: dict[str, NDArray[np.float32]], dimension: int) -> None:
        self._vectors = vectors
        self._dimension = dimension

    def __call__(self, tokens: Sequence[str]) -> NDArray[np.float32]:
        if not tokens:
            return np.zeros((0, self._dimension), dtype=np.float32)
        return np.stack([self._vectors[token] for token in tokens])
