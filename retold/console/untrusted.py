"""Showing what strangers wrote: escaped, with every character that hides or reorders text spelled out.

A reviewer decides on what they see. So what a record or a turn holds and does not show is shown: directional
overrides, invisible characters, controls. Text is looked at by code point, as evidence is counted.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from markupsafe import Markup, escape

from retold.contracts.review import ReviewItem

_HIDING = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")
_BLANK_LETTERS = "\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
"""Letters and marks that look like nothing at all."""
_JOINERS = "\u200c\u200d"
"""Persian, Hindi and composed emoji need them; between Latin letters they only hide something."""
_SELECTORS = range(0xE0100, 0xE01F0)
"""Variation selectors no font answers to, which carry hidden bytes."""


def visible(text: str) -> Markup:
    """The text, safe inside an element or a quoted attribute's element; line breaks and tabs stay as they are."""
    return Markup("").join(_shown(char, text, index) for index, char in enumerate(text))


def spelled_out(text: str) -> str:
    """The same as plain text, for titles and labels."""
    return "".join(_code(char) if _hides(char, text, index) else char for index, char in enumerate(text))


@dataclass(frozen=True)
class Words:
    """A turn around its evidence. `found` is empty when the stored turn no longer says what was quoted."""

    before: Markup
    found: Markup
    after: Markup


def words(item: ReviewItem) -> Words | None:
    """The user's turn with the evidence apart; None: there is no turn to show."""
    text, evidence = item.turn_text, item.review.evidence
    if text is None:
        return None
    if evidence is None or text[evidence.start : evidence.end] != evidence.span:
        return Words(before=visible(text), found=Markup(""), after=Markup(""))
    return Words(
        before=visible(text[: evidence.start]),
        found=visible(evidence.span),
        after=visible(text[evidence.end :]),
    )


@dataclass(frozen=True)
class ProfileLine:
    kind: Literal["same", "added", "removed"]
    text: Markup


def profile_change(before: str, after: str) -> list[ProfileLine]:
    """The next session's instructions line by line, with this record against without it."""
    old, new = _instructions(before), _instructions(after)
    lines: list[ProfileLine] = []
    for step, a, b, c, d in SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
        if step == "equal":
            lines += [ProfileLine("same", visible(line)) for line in old[a:b]]
        else:
            lines += [ProfileLine("removed", visible(line)) for line in old[a:b]]
            lines += [ProfileLine("added", visible(line)) for line in new[c:d]]
    return lines


def _instructions(profile: str) -> list[str]:
    """Without the two lines around them, which are there for models."""
    return [line for line in profile.split("\n") if line and not line.startswith(("<profile ", "</profile "))]


def _shown(char: str, text: str, index: int) -> Markup:
    if not _hides(char, text, index):
        return escape(char)
    name = unicodedata.name(char, "control character")
    return Markup('<span class="hidden-char" title="{}">{}</span>').format(name, _code(char))


def _hides(char: str, text: str, index: int) -> bool:
    if char in "\n\t" or (" " <= char <= "~"):
        return False
    if char in _JOINERS:
        return not (_joins(text[index - 1 : index]) and _joins(text[index + 1 : index + 2]))
    return unicodedata.category(char) in _HIDING or char in _BLANK_LETTERS or ord(char) in _SELECTORS


def _joins(neighbour: str) -> bool:
    """A joiner belongs between letters of scripts that join, and between the parts of an emoji."""
    return neighbour > "\u0590" and not _hides(neighbour, neighbour, 0)


def _code(char: str) -> str:
    return f"U+{ord(char):04X}"
