"""The real small embedder once for the run, and records as a judge is shown them."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

import numpy as np
import pytest
from numpy.typing import NDArray

from retold.contracts.record import MemoryRecord, RecordType
from retold.models.embedding.minilm import MiniLmEmbedder
from retold.policy.ports import EmbedderIdentity


@pytest.fixture(scope="session")
async def minilm() -> AsyncIterator[MiniLmEmbedder]:
    embedder = MiniLmEmbedder.load()
    yield embedder
    await embedder.aclose()


class NamedEmbedder:
    """Unit vectors drawn from a text's hash, under any name: for what must hold whatever the vectors say."""

    def __init__(self, model: str = "all-MiniLM-L6-v2", dimension: int = 384) -> None:
        self.identity = EmbedderIdentity(model=model, revision="test", runtime="test", dimension=dimension)

    async def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return await self.embed_passages(texts)

    async def embed_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = []
        for text in texts:
            seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
            row = np.random.default_rng(seed).standard_normal(self.identity.dimension)
            rows.append(row / np.linalg.norm(row))
        return np.array(rows, dtype=np.float32).reshape(len(texts), self.identity.dimension)


def record(
    id: str, text: str, *, subject: str = "user", attribute: str | None = None, day: int = 1, **more: object
) -> MemoryRecord:
    """A stored semantic record, told on that day of January 2026."""
    return MemoryRecord.model_validate(
        {
            "id": id, "tenant": "t", "user": "u", "type": RecordType.SEMANTIC, "subject": subject, "text": text,
            "attribute": attribute, "created_at": datetime(2026, 1, day, tzinfo=UTC), **more,
        }
    )  # fmt: skip
