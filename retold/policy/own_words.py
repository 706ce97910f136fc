"""Which words of a user's turn are the user's own. The rest is somebody else's, though the user sent it.

Memory that was shown in an answer comes back in what users paste and quote. Taken for their own words, it would turn
into memory again, with their authority behind it. So what a turn repeats is blanked before anybody looks for a
statement in it: blocks of injected memory, and sentences that were said to the user first. Blanks keep every offset.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection

REPEATED_MIN_BYTES = 24
"""Of letters and digits in UTF-8: eight Chinese characters, twelve Cyrillic letters, twenty-four Latin ones. Shorter
sentences are anybody's: repeating one is not quoting."""

_BLOCK = re.compile(
    r"<\s*(memory|facts|profile)[\s-][^<>]{0,80}>.*?(?:<\s*/\s*\1[\s-][^<>]{0,80}>|\Z)", re.IGNORECASE | re.DOTALL
)
_SENTENCE = re.compile(r"[^\n.!?。！？।؟…]+[.!?。！？।؟…]*")


def own_words(text: str, said_to_them: Collection[str] = ()) -> str:
    """The turn, as long as it was, with everything blanked that is not the user's own.

    Args:
        said_to_them: what the assistant, a tool or memory had said before this turn, each as `plain` gives it.
    """
    text = _BLOCK.sub(lambda block: _blank(block[0]), text)
    return _SENTENCE.sub(lambda sentence: _unless_repeated(sentence[0], said_to_them), text) if said_to_them else text


def repeats(span: str, texts: Collection[str]) -> bool:
    """Whether the words say little else than one of these texts says, each as `plain` gives it."""
    said = plain(span)
    return _is_long(said) and any(said in text or (text in said and len(text) >= 0.8 * len(said)) for text in texts)


def plain(text: str) -> str:
    """Letters and digits only, in one case: punctuation, quotes and line breaks are what changes when one copies."""
    return "".join(char for char in unicodedata.normalize("NFKC", text).casefold() if char.isalnum())


def _unless_repeated(sentence: str, said_to_them: Collection[str]) -> str:
    said = plain(sentence)
    repeated = _is_long(said) and any(said in heard for heard in said_to_them)
    return _blank(sentence) if repeated else sentence


def _is_long(plain_text: str) -> bool:
    return len(plain_text.encode("utf-8", "surrogatepass")) >= REPEATED_MIN_BYTES


def _blank(text: str) -> str:
    return "".join("\n" if char == "\n" else " " for char in text)
