"""Ports with a span around every call that leaves the process's own code (GenAI and database conventions).

The adapters stay free of it: the composition wraps them. No text of a turn, a record or an answer is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retold.policy.ports import Embedder, EmbedderIdentity, Generation, Message, PromptStyle, ServingModel
from retold.policy.reference.port import OutputSchema, StructuredCompletion
from retold.retrieval.ports import Hit, IndexQuery, RecordSearch
from retold.telemetry.names import client_span

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from opentelemetry.trace import Span


@dataclass(frozen=True)
class TracedServingModel:
    model: ServingModel

    @property
    def identity(self) -> str:
        return self.model.identity

    @property
    def style(self) -> PromptStyle:
        return self.model.style

    async def generate(self, messages: Sequence[Message]) -> Generation:
        with client_span(f"chat {self.identity}", _asked("chat", self.identity)) as span:
            return _answered(span, await self.model.generate(messages))


@dataclass(frozen=True)
class TracedCompletion:
    completion: StructuredCompletion

    @property
    def identity(self) -> str:
        return self.completion.identity

    async def complete(self, messages: Sequence[Message], schema: OutputSchema) -> Generation:
        with client_span(f"chat {self.identity}", _asked("chat", self.identity)) as span:
            return _answered(span, await self.completion.complete(messages, schema))


@dataclass(frozen=True)
class TracedEmbedder:
    embedder: Embedder

    @property
    def identity(self) -> EmbedderIdentity:
        return self.embedder.identity

    async def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        model = self.identity.model
        with client_span(f"embeddings {model}", _asked("embeddings", model)):
            return await self.embedder.embed_queries(texts)

    async def embed_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        model = self.identity.model
        with client_span(f"embeddings {model}", _asked("embeddings", model)):
            return await self.embedder.embed_passages(texts)


@dataclass(frozen=True)
class TracedSearch:
    """The turn's side of an index: one span a batch of queries."""

    index: RecordSearch
    collection: str

    async def search(self, queries: Sequence[IndexQuery]) -> list[list[Hit]]:
        attributes: dict[str, str | int] = {
            "db.system.name": "qdrant",
            "db.operation.name": "query_batch",
            "db.operation.batch.size": len(queries),
            "db.collection.name": self.collection,
        }
        with client_span(f"query_batch {self.collection}", attributes) as span:
            hits = await self.index.search(queries)
            span.set_attribute("db.response.returned_rows", sum(len(each) for each in hits))
            return hits


def _asked(operation: str, model: str) -> dict[str, str | int]:
    return {"gen_ai.operation.name": operation, "gen_ai.request.model": model}


def _answered(span: Span, answer: Generation) -> Generation:
    span.set_attributes(
        {
            "gen_ai.response.model": answer.model,
            "gen_ai.usage.input_tokens": answer.prompt_tokens,
            "gen_ai.usage.output_tokens": answer.completion_tokens,
        }
    )
    return answer
