"""Where the user said it: through paraphrase, and not where they only seem to have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from retold.contracts.activation import EvidenceMethod
from retold.policy.activation.evidence import find_evidence, span_of_same_words
from retold.policy.ports import EmbedderIdentity
from tests.unit.activation.cases import own_turn
from tests.unit.activation.test_rules import record


class Near:
    """Finds any two texts near, so that only what is checked afterwards can refuse a span."""

    identity = EmbedderIdentity(model="near", revision="1", runtime="test", dimension=2)

    def __init__(self) -> None:
        self.asked = 0

    async def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return await self.embed_passages(texts)

    async def embed_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked += 1
        return np.tile(np.array([1.0, 0.0], dtype=np.float32), (len(texts), 1))


@pytest.mark.parametrize(
    ("noted", "said", "span", "method"),
    [
        ("keep every reply short", "From now on keep every reply short, ok!", "keep every reply short", "exact"),
        ("KEEP EVERY REPLY SHORT!", "From now on keep every reply short.", "keep every reply short", "normalised"),
        ("Use “metric” units.", "please use Metric units always", "use Metric units", "normalised"),
        ("réponds toujours en français", "Reponds toujours en francais", None, "similar"),
        ("ＡＬＷＡＹＳ be brief", "always be brief", "always be brief", "normalised"),
        (
            "always answer in Greek",
            "al\u200bways ans\u200bwer in Greek",
            "al\u200bways ans\u200bwer in Greek",
            "normalised",
        ),
        ("始终用中文回答", "请始终用中文回答我。", "始终用中文回答", "exact"),
        ("Keep answers brief.", "Hi. From here on, all your replies short please.", None, "similar"),
        ("No emojis.", "Don't ever use emoji in your answers.", None, "similar"),
        ("Reply in French.", "Réponds-moi toujours en français.", None, "similar"),
        ("Dyslexia: short sentences.", "I'm dyslexic. Always use short sentences.", None, "similar"),
    ],
)
async def test_found_through_other_words(noted: str, said: str, span: str | None, method: str) -> None:
    turn = own_turn(said)
    evidence = await find_evidence(record(noted), [turn], None)
    assert evidence is not None
    assert evidence.method == EvidenceMethod(method)
    assert turn.text[evidence.start : evidence.end] == evidence.span, "code points of the stored turn"
    if span is not None:
        assert evidence.span == span


@pytest.mark.parametrize(
    ("noted", "said"),
    [
        ("Always answer in French.", "Never answer in French."),
        ("Always answer in French.", "Always answer in German."),
        ("Use bullet points.", "No bullet points in your answers, ever."),
        ("Answers should be long.", "Keep all your answers short."),
        ("Answer in French.", "When I'm in Paris, always answer in French."),
        ("Always be brief.", "Always be brief today."),
        ("Be brief.", "Do you always keep it brief?"),
        ("Always be brief.", 'The sign says "always be brief" above the door.'),
        ("Always be brief.", "```\nalways be brief\n```"),
        ("Reply in Thai.", "Translate this: reply in Thai from now on."),
        ("Use short answers and cite sources.", "Always give me short answers."),
        ("I like cilantro.", "I don't like cilantro."),
        ("I have 3 cats.", "I have 5 cats."),
        ("I live in Lyon with Marc.", "I live in Nice with Paul."),
        ("Prefers French films with short scenes.", "Always give me short answers in French."),
    ],
)
async def test_near_is_not_the_same(noted: str, said: str) -> None:
    """Even an embedder that finds everything near locates no evidence where sign, language or scope differ."""
    assert await find_evidence(record(noted), [own_turn(said)], Near()) is None


async def test_the_embedder_is_asked_only_when_words_do_not_find_it() -> None:
    near = Near()
    turns = [own_turn("Always answer me concisely.")]
    await find_evidence(record("Always answer me concisely."), turns, near)
    await find_evidence(record("Be concise."), turns, near)
    assert near.asked == 0
    located = await find_evidence(record("My residence is Porto."), [own_turn("I live in Porto now.")], near)
    assert near.asked == 1 and located is not None and located.method is EvidenceMethod.SIMILAR


async def test_the_latest_of_several_is_the_evidence() -> None:
    turns = [own_turn("Always be brief.", 0), own_turn("Again, always be brief.", 1)]
    evidence = await find_evidence(record("Always be brief."), turns, None)
    assert evidence is not None and evidence.turn_id == "t1"


async def test_nothing_was_said() -> None:
    assert await find_evidence(record("Always be brief."), [], Near()) is None
    assert await find_evidence(record("!!!"), [own_turn("Always be brief.")], None) is None


@given(st.text(max_size=60), st.text(min_size=1, max_size=20).filter(str.strip), st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_a_span_is_always_the_turns_own_text(before: str, said: str, after: str) -> None:
    text = f"{before} {said} {after}"
    span = span_of_same_words(text, said.upper())
    assert span is None or span in text
    assert span_of_same_words(text, said) == said
