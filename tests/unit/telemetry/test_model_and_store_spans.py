"""Calls that leave the process, as the GenAI and database conventions name them; texts only where asked for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from retold.models.embedding.hashing import HashingEmbedder
from retold.policy.ports import Generation, MalformedReplyError, Message
from retold.policy.reference.port import OutputSchema
from retold.store.engine import Transactions, open_engine
from retold.telemetry.names import turn_span
from retold.telemetry.traced import CAPTURED, TracedCompletion, TracedEmbedder, TracedServingModel
from tests.scripted import PlainPrompt

SAID = "my card is 4111 1111"
ANSWERED = "then keep it secret"


@dataclass
class Model:
    """A provider's model: answers, raises, or never comes back."""

    fails: Exception | None = None
    hangs: bool = False
    identity: str = "openai/m-1"
    style: PlainPrompt = field(default_factory=PlainPrompt)

    async def generate(self, messages: Sequence[Message]) -> Generation:
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails is not None:
            raise self.fails
        return Generation(
            text=ANSWERED, model="openai/m-1-2026", prompt_tokens=9, completion_tokens=4, finish_reason="stop"
        )

    async def complete(self, messages: Sequence[Message], schema: OutputSchema) -> Generation:
        return await self.generate(messages)


@pytest.fixture(autouse=True)
def fresh(spans: InMemorySpanExporter) -> None:
    spans.clear()


def only(spans: InMemorySpanExporter) -> ReadableSpan:
    (span,) = spans.get_finished_spans()
    return span


def shown(span: ReadableSpan) -> str:
    """All that leaves with it."""
    everything: str = span.to_json()
    return everything


ASKED = (Message(role="system", content="be brief"), Message(role="user", content=SAID))


async def test_a_model_call_has_what_the_conventions_ask_for_and_no_text(spans: InMemorySpanExporter) -> None:
    await TracedServingModel(Model(), "openai").generate(ASKED)
    span = only(spans)
    assert (span.name, span.kind) == ("chat m-1", SpanKind.CLIENT)
    assert span.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m-1",
        "gen_ai.output.type": "text",
        "gen_ai.response.model": "openai/m-1-2026",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 9,
        "gen_ai.usage.output_tokens": 4,
    }
    assert SAID not in shown(span) and ANSWERED not in shown(span)


async def test_texts_are_there_only_when_asked_for_and_as_the_conventions_write_them(
    spans: InMemorySpanExporter,
) -> None:
    await TracedCompletion(Model(), "openai", capture_text=True).complete(
        ASKED, OutputSchema(name="verdicts", description="", json_schema={})
    )
    attributes = only(spans).attributes or {}
    said, answered = (json.loads(str(attributes[name])) for name in CAPTURED)
    assert [(each["role"], each["parts"][0]["content"]) for each in said] == [("system", "be brief"), ("user", SAID)]
    assert answered == [
        {"role": "assistant", "parts": [{"type": "text", "content": ANSWERED}], "finish_reason": "stop"}
    ]
    assert attributes["gen_ai.output.type"] == "json"


async def test_an_error_is_named_by_its_type_and_never_by_what_it_says(spans: InMemorySpanExporter) -> None:
    with pytest.raises(MalformedReplyError):
        await TracedServingModel(Model(fails=MalformedReplyError(f"not JSON: {SAID}")), "openai").generate(ASKED)
    span = only(spans)
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "MalformedReplyError")
    assert (span.attributes or {})["error.type"] == "MalformedReplyError"
    assert SAID not in shown(span)


async def test_a_call_nobody_waits_for_any_more_says_so(spans: InMemorySpanExporter) -> None:
    call = asyncio.ensure_future(TracedServingModel(Model(hangs=True), "openai").generate(ASKED))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert [event.name for event in only(spans).events] == ["abandoned"]


async def test_embeddings_and_transactions(spans: InMemorySpanExporter, tmp_path: Path) -> None:
    await TracedEmbedder(HashingEmbedder()).embed_queries([SAID])
    embedded = only(spans)
    assert (embedded.attributes or {})["gen_ai.operation.name"] == "embeddings"
    assert (embedded.attributes or {})["gen_ai.provider.name"] == "local"
    spans.clear()
    transactions = Transactions(open_engine(f"sqlite:///{tmp_path / 'of-somebody.db'}"))
    await transactions.read(lambda session: None)
    assert not spans.get_finished_spans(), "a look that no turn or operation took is no trace of its own"
    with turn_span("turn"):
        await transactions.read(lambda session: None)
    await transactions.close()
    read, _ = spans.get_finished_spans()
    assert read.attributes == {"db.system.name": "sqlite", "db.operation.name": "read"}
    assert "of-somebody" not in shown(read) and SAID not in shown(embedded)
