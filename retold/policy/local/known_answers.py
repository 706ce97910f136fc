"""Does what the host shows the model already answer the question, so that nothing stored is needed for it?

Told by words and kinds alone, and said only where it is plain: a few sentences in a row hold everything the question
is about and a thing of the kind it asks for. A question about the speaker is left to memory: what is shown to the model
is rarely about them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from retold.policy.local import lexicon as lx
from retold.policy.local.candidate_features import content_tokens, holds_kind, stem
from retold.retrieval.text import content_words

PASSAGE_SENTENCES = 3
_MAX_WORDS = 16
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？।])|\n+")


def passages(text: str) -> list[str]:
    """Every three sentences in a row. Words scattered over pages say nothing together."""
    sentences = [each for each in _SENTENCE_END.split(text) if each.strip()]
    starts = range(max(len(sentences) - PASSAGE_SENTENCES, 0) + 1)
    return [" ".join(sentences[start : start + PASSAGE_SENTENCES]) for start in starts]


def answers(question: str, shown: Sequence[str]) -> bool:
    """Whether one of the texts shown to the model plainly holds the answer. False where in doubt."""
    said = lx.spaced(question)
    if any(words.in_(said) for words in (lx.FIRST_PERSON, lx.MY, lx.ME, lx.WE)):
        return False
    topic = {stem(token) for token in content_tokens(question, _MAX_WORDS) if not lx.ATTRIBUTE_WORDS.in_(f" {token} ")}
    if len(topic) < 2:
        return False
    return any(
        topic <= set(content_words(passage)) and holds_kind(question, passage)
        for text in shown
        for passage in passages(text)
    )
