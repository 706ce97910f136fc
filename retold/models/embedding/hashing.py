"""A deterministic embedder without a model: texts that share words are near. For tests and dry runs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from retold.policy.ports import EmbedderIdentity
from retold.retrieval.text import content_words, fold


class HashingEmbedder:
    """Each content word adds a direction of its own; a text without words is a direction by itself."""

    def __init__(self, dimension: int = 256, revision: str = "1") -> None:
        self._identity = EmbedderIdentity(model="hashing", revision=revision, runtime="python", dimension=dimension)

    @property
    def identity(self) -> EmbedderIdentity:
        return self._identity

    async def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._embed(texts)

    async def embed_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._embed(texts)

    async def aclose(self) -> None:
        """Holds nothing."""

    def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = np.zeros((len(texts), self._identity.dimension), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in content_words(text) or [f"\x00{fold(text)}"]:
                row += _direction(word, row.size)
            row /= np.linalg.norm(row)
        return rows


def _direction(word: str, dimension: int) -> NDArray[np.float32]:
    """A unit vector that depends on the word alone; those of different words are nearly at right angles."""
    seed = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big")
    vector = np.random.default_rng(seed).standard_normal(dimension).astype(np.float32)
    return vector / np.float32(np.linalg.norm(vector))
