"""Which words of a user's turn are the user's own. The rest is somebody else's, though the user sent it.

Memory that was shown in an answer comes back in what users paste and quote. Taken for their own words, it would turn
into memory again, with their authority behind it. So what a turn repeats is blanked before anybody looks for a
statement in it: blocks of injected memory, and sentences that were said to the user first. Blanks keep every offset.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

BLANK = "\ufffc"
"""Stands where somebody else's words were."""

REPEATED_MIN_BYTES = 24
"""Of letters and digits in UTF-8: eight Chinese characters, twelve Cyrillic letters, twenty-four Latin ones. Shorter
sentences are anybody's: repeating one is not quoting."""

_BLOCK = re.compile(
    r"<\s*(memory|facts|profile)[\s-][^<>]{0,80}>.*?(?:<\s*/\s*\1[\s-][^<>]{0,80}>|\Z)", re.IGNORECASE | re.DOTALL
)
_SENTENCE = re.compile(r"[^\n.!?。！？।؟…]+[.!?。！？।؟…]*")


@dataclass(frozen=True)
class Heard:
    """One text that was said to the user, as repetitions of it are looked for."""

    whole: str
    sentences: frozenset[str]
    """The long ones."""

    @classmethod
    def of(cls, text: str) -> Heard:
        sentences = (plain(sentence) for sentence in _SENTENCE.findall(text))
        return cls(plain(text), frozenset(sentence for sentence in sentences if _is_long(sentence)))


def own_words(text: str, heard: Sequence[Heard] = ()) -> str:
    """The turn, as long as it was, with everything blanked that is not the user's own.

    Args:
        heard: what the assistant, a tool or memory had said in the session before this turn.
    """
    text = _BLOCK.sub(lambda block: _blank(block[0]), text)
    if not heard:
        return text
    text = _SENTENCE.sub(lambda sentence: _unless_part(sentence[0], heard), text)
    return _without_quotations(text, {said for each in heard for said in each.sentences})


def says_something(own: str) -> bool:
    """Whether anything of a turn is the user's own."""
    return bool(own.replace(BLANK, "").strip())


def repeats(span: str, texts: Collection[str]) -> bool:
    """Whether the words say little else than one of these texts says, each as `plain` gives it."""
    said = plain(span)
    return _is_long(said) and any(said in text or (text in said and len(text) >= 0.8 * len(said)) for text in texts)


def plain(text: str) -> str:
    """Letters and digits only, in one case: punctuation, quotes and line breaks are what changes when one copies."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKD", text).casefold()))


def _letters(text: str) -> Iterator[tuple[int, str]]:
    """Each character's letters as `plain` has them, with its offset."""
    for offset, char in enumerate(text):
        letters = "".join(each for each in unicodedata.normalize("NFKD", char).casefold() if each.isalnum())
        if letters:
            yield offset, letters


def _unless_part(sentence: str, heard: Sequence[Heard]) -> str:
    """Blank, if the whole sentence was part of something they heard."""
    said = plain(sentence)
    return _blank(sentence) if _is_long(said) and any(said in each.whole for each in heard) else sentence


def _without_quotations(text: str, heard: Collection[str]) -> str:
    """Blank each sentence they heard where it stands inside one of their own."""
    said = plain(text)
    repeated = [sentence for sentence in heard if sentence in said]
    if not repeated:
        return text
    offsets = [offset for offset, letters in _letters(text) for _ in letters]
    for sentence in repeated:
        start = said.find(sentence)
        while start >= 0:
            begin, end = offsets[start], offsets[start + len(sentence) - 1] + 1
            text = text[:begin] + _blank(text[begin:end]) + text[end:]
            start = said.find(sentence, start + len(sentence))
    return text


def _is_long(plain_text: str) -> bool:
    return len(plain_text.encode("utf-8", "surrogatepass")) >= REPEATED_MIN_BYTES


def _blank(text: str) -> str:
    """As long, with a mark at either end: words on both sides of it do not belong together."""
    inner = "".join("\n" if char == "\n" else " " for char in text[1:-1])
    return BLANK + inner + BLANK if len(text) > 1 else BLANK * len(text)
