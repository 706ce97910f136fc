"""Ports with a span around every call that leaves the process's own code (GenAI and database conventions).

The adapters stay free of it: the composition wraps them. No text of a turn, a record or an answer is recorded unless
a deployment asks for exactly that (`capture_text`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
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


CAPTURED = ("gen_ai.input.messages", "gen_ai.output.messages")
"""What a span holds of texts, only where `capture_text` is set; our collector takes both off all the same."""


@dataclass(frozen=True)
class TracedServingModel:
    """Args:
    provider: whose model it is; `local` for one in a wheel.
    capture_text: put prompts and answers on the spans.
    """

    model: ServingModel
    provider: str = "local"
    capture_text: bool = False

    @property
    def identity(self) -> str:
        return self.model.identity

    @property
    def style(self) -> PromptStyle:
        return self.model.style

    async def generate(self, messages: Sequence[Message]) -> Generation:
        with _chat(self, messages) as span:
            return _answered(span, await self.model.generate(messages), self.capture_text)


@dataclass(frozen=True)
class TracedCompletion:
    """Args: as for `TracedServingModel`."""

    completion: StructuredCompletion
    provider: str = "local"
    capture_text: bool = False

    @property
    def identity(self) -> str:
        return self.completion.identity

    async def complete(self, messages: Sequence[Message], schema: OutputSchema) -> Generation:
        with _chat(self, messages, output="json") as span:
            return _answered(span, await self.completion.complete(messages, schema), self.capture_text)


@dataclass(frozen=True)
class TracedEmbedder:
    embedder: Embedder
    provider: str = "local"

    @property
    def identity(self) -> EmbedderIdentity:
        return self.embedder.identity

    async def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        with self._span():
            return await self.embedder.embed_queries(texts)

    async def embed_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        with self._span():
            return await self.embedder.embed_passages(texts)

    def _span(self) -> AbstractContextManager[Span]:
        asked = _asked("embeddings", self.provider, self.identity.model)
        asked["gen_ai.embeddings.dimension.count"] = self.identity.dimension
        return client_span(f"embeddings {self.identity.model}", asked)


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


def _chat(
    model: TracedServingModel | TracedCompletion, messages: Sequence[Message], output: str = "text"
) -> AbstractContextManager[Span]:
    name = model.identity.removeprefix(f"{model.provider}/")
    asked = _asked("chat", model.provider, name)
    asked["gen_ai.output.type"] = output
    if model.capture_text:
        said = [{"role": each.role, "parts": [_text(each.content)]} for each in messages]
        asked["gen_ai.input.messages"] = json.dumps(said, ensure_ascii=False)
    return client_span(f"chat {name}", asked)


def _asked(operation: str, provider: str, model: str) -> dict[str, str | int]:
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
    }


def _answered(span: Span, answer: Generation, capture_text: bool) -> Generation:
    span.set_attributes(
        {
            "gen_ai.response.model": answer.model,
            "gen_ai.usage.input_tokens": answer.prompt_tokens,
            "gen_ai.usage.output_tokens": answer.completion_tokens,
        }
    )
    if answer.finish_reason is not None:
        span.set_attribute("gen_ai.response.finish_reasons", [answer.finish_reason])
    if capture_text:
        said = {"role": "assistant", "parts": [_text(answer.text)], "finish_reason": answer.finish_reason or "unknown"}
        span.set_attribute("gen_ai.output.messages", json.dumps([said], ensure_ascii=False))
    return answer


def _text(content: str) -> dict[str, str]:
    return {"type": "text", "content": content}
