"""Embeddings over an OpenAI-compatible endpoint. One try a call: whoever calls knows its own deadline."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np
import openai
from numpy.typing import NDArray
from openai import AsyncOpenAI

from retold.models.embedding.errors import (
    EmbedderRefusedError,
    EmbedderUnavailableError,
    MalformedEmbeddingError,
)  # fmt: skip
from retold.policy.ports import EmbedderIdentity

MAX_TEXTS_PER_CALL = 128
NO_KEY = "none"
"""Sent to an endpoint that asks for no key: the client library insists on one."""


class HostedEmbedder:
    """An embedding model behind an HTTP endpoint. Build it with :meth:`connect`, which asks for its dimension.

    Raises (every embed call):
        EmbedderUnavailableError: no answer in time, or the service failed.
        EmbedderRefusedError: credentials, quota or model refused.
        MalformedEmbeddingError: not one finite, non-zero vector of the known dimension a text.
    """

    def __init__(self, client: AsyncOpenAI, identity: EmbedderIdentity) -> None:
        self._client = client
        self._identity = identity

    @classmethod
    async def connect(
        cls, *, base_url: str, model: str, api_key: str, revision: str = "unversioned", timeout_s: float = 5.0
    ) -> HostedEmbedder:
        """Probe the endpoint once for the model's dimension.

        Args:
            api_key: empty where the endpoint asks for none.
            revision: whatever tells two weights of the same model name apart; the endpoint does not say.
            timeout_s: hard limit of every call, seconds.
        """
        client = AsyncOpenAI(base_url=base_url, api_key=api_key or NO_KEY, timeout=timeout_s, max_retries=0)
        try:
            probe = await _rows(client, model, ["probe"])
        except BaseException:
            await client.close()
            raise
        identity = EmbedderIdentity(model=model, revision=revision, runtime="openai-http", dimension=probe.shape[1])
        return cls(client, identity)

    @property
    def identity(self) -> EmbedderIdentity:
        return self._identity

    async def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return await self._embed(texts)

    async def embed_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return await self._embed(texts)

    async def aclose(self) -> None:
        await self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        parts = [np.zeros((0, self._identity.dimension), dtype=np.float32)]
        for start in range(0, len(texts), MAX_TEXTS_PER_CALL):
            rows = await _rows(self._client, self._identity.model, texts[start : start + MAX_TEXTS_PER_CALL])
            if rows.shape[1] != self._identity.dimension:
                raise MalformedEmbeddingError(
                    f"{self._identity.model} now gives {rows.shape[1]} dimensions, it gave {self._identity.dimension}"
                )
            parts.append(rows)
        return np.concatenate(parts)


async def _rows(client: AsyncOpenAI, model: str, texts: Sequence[str]) -> NDArray[np.float32]:
    try:
        answer = await client.embeddings.create(model=model, input=list(texts), encoding_format="float")
        by_index = {each.index: each.embedding for each in answer.data}
        rows = np.array([by_index[at] for at in range(len(texts))], dtype=np.float32)
    except openai.APIStatusError as error:
        permanent = error.status_code < 500 and error.status_code not in (408, 409, 429)
        kind = EmbedderRefusedError if permanent else EmbedderUnavailableError
        raise kind(f"{model}: the embedding service answered {error.status_code}") from error
    except (openai.APIConnectionError, openai.APITimeoutError) as error:
        raise EmbedderUnavailableError(f"{model}: the embedding service did not answer") from error
    except (openai.APIError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise MalformedEmbeddingError(f"{model}: the answer holds no vector for every text") from error
    norms = np.linalg.norm(rows, axis=1, keepdims=True) if rows.ndim == 2 else np.zeros((1, 1))
    if not np.isfinite(rows).all() or not (norms > 0).all():
        raise MalformedEmbeddingError(f"{model}: a vector is zero, not finite or not flat")
    return np.asarray(rows / norms, dtype=np.float32)
