"""Which part of a turn is the user speaking, and which part is text they brought along.

Quotations, code, chat exports, mails, markup and everything after "translate this:" stand in the user's turn, but
they are nobody's wish. They are blanked out, character by character, so that places in the text stay the same.
"""

from __future__ import annotations

import re

BLANK = "\ufffc"
READ_HEAD_CHARS = 3_000
READ_TAIL_CHARS = 1_000
"""Of a longer turn only the head and the tail are read as speech: nobody types 4,000 characters in passing."""

_QUOTES = (
    ("\u201c", "\u201d"), ("\u201e", "\u201c\u201d"), ("«", "»"), ("»", "«"), ("‹", "›"), ("「", "」"), ("『", "』"),
    ("《", "》"), ("【", "】"), ("\u201a", "\u2018"), ("\u2018", "\u2019"),
)  # fmt: skip
_QUOTED_MAX = 2_000
_FENCE = re.compile(r"(```|~~~|\"\"\"|''')")
_INLINE_CODE = re.compile(r"`[^`\n]{1,500}`")
_STRAIGHT = re.compile(r'"[^"\n]{1,1000}"')
_STRAIGHT_OPEN = re.compile(r'(?:(?<=\s)|^|(?<=[:(=]))"[^"\n]*', re.MULTILINE)
_SINGLE = re.compile(r"(?:(?<=[\s(:=\[,])|^)['‘´`][^'\n]{2,500}['’´](?=[\s.,;:!?)\]]|$)", re.MULTILINE)
_TAG = re.compile(r"<!--.{0,2000}?(?:-->|$)|<[a-zA-Z/][^<>\n]{0,300}>", re.DOTALL)
_BETWEEN_TAGS = re.compile(r"<([a-zA-Z][\w-]{0,30})[^<>\n]{0,300}>.{0,2000}?</\1>", re.DOTALL)
_BRACES = re.compile(r"\{[^{}\n]{0,500}[:=;][^{}\n]{0,500}\}|\[[^\[\]\n]{0,200}[\"'][^\[\]\n]{0,300}\]")
_ASSIGNMENT = re.compile(
    r"\b[A-Za-z_][\w.]{0,40}\s{0,3}(?:=|:=|=>)\s{0,3}[\"'\[{\ufffc(].*|\b(?:const|let|var)\s+\w+\s{0,3}=.*|\bdef\s+\w+\(.*"
)
_CALL = re.compile(r"\b[a-z_]\w{0,30}(?:\.[a-z_]\w{0,30}){1,4}\([^()\n]{0,300}\)")
_LINE = re.compile(r"[^\n]+")
_FOREIGN_LINE = re.compile(
    r"\s{0,8}(?:"
    r">|\||//|--\s|/\*|\*/|#(?!\d)|\$\s|[-+*]{3,}|={3,}|"
    r"[\[(]?\d{1,4}[-/.:]\d{1,2}(?:[-/.:]\d{1,4})?[^\]\n]{0,20}[\])]\s|"  # [10:02] or (2026-01-02 10:02)
    r"\d{1,2}:\d{2}(?::\d{2})?\s{0,2}[-–]?\s{0,2}\w[^:\n]{0,30}:|"  # 10:02 Ann:
    r"(?:user|assistant|system|human|ai|bot|gpt|llm|model|me|you|customer|agent)\s{0,2}[:>]"
    r")",
    re.IGNORECASE,
)
_MAIL_HEADER = re.compile(
    r"^\s{0,4}(?:from|to|cc|subject|date|sent|von|an|betreff|de|para|asunto|objet|oggetto|assunto|发件人|主题|件名|差出人|"
    r"от кого|тема|from\s+\S+\s+on)\s{0,2}[:：]",
    re.IGNORECASE | re.MULTILINE,
)
_INLINE_CHAT = re.compile(r"\[\d{1,2}:\d{2}[^\]\n]{0,12}\]\s{0,2}\w{1,20}:.*")
_INLINE_ROLE = re.compile(r"\b(?:user|assistant|system)\s{0,2}[:：].*", re.IGNORECASE)
_TRIPLE_DASHES = re.compile(r"-{3,}[^\n]{0,200}-{3,}.*", re.DOTALL)


def own_words(text: str) -> str:
    """The turn with everything that is not the user's own speech blanked out. Of the same length. Linear time."""
    chars = list(text)
    if len(text) > READ_HEAD_CHARS + READ_TAIL_CHARS:
        _blank(chars, READ_HEAD_CHARS, len(text) - READ_TAIL_CHARS)
    _blank_fences(chars, text)
    for pattern in (_INLINE_CODE, _BETWEEN_TAGS, _TAG, _TRIPLE_DASHES):
        _blank_pattern(chars, pattern)
    _blank_pairs(chars)
    for pattern in (_STRAIGHT, _STRAIGHT_OPEN, _SINGLE, _BRACES, _CALL, _ASSIGNMENT, _INLINE_CHAT, _INLINE_ROLE):
        _blank_pattern(chars, pattern)
    if (first := _first_brought_along(text)) is not None:
        _blank(chars, first, len(text))
    if header := _MAIL_HEADER.search(text):
        _blank(chars, header.start(), len(text))
    return "".join(chars)


def _first_brought_along(text: str) -> int | None:
    """Where the first line begins that nobody types as speech, or that follows one ending in a colon.

    From there on nothing counts: where a pasted text ends, nobody can tell.
    """
    announced = False
    for line in _LINE.finditer(text):
        if announced or _FOREIGN_LINE.match(line.group()):
            return line.start()
        announced = line.group().rstrip().endswith((":", "："))
    return None


def _blank(chars: list[str], start: int, end: int) -> None:
    for at in range(start, end):
        if chars[at] != "\n":
            chars[at] = BLANK


def _blank_pattern(chars: list[str], pattern: re.Pattern[str]) -> None:
    for match in pattern.finditer("".join(chars)):
        _blank(chars, match.start(), match.end())


def _blank_fences(chars: list[str], text: str) -> None:
    """Between two fences of a kind; after one that is never closed, to the end."""
    opened: tuple[str, int] | None = None
    for match in _FENCE.finditer(text):
        if opened is None:
            opened = match.group(), match.start()
        elif match.group() == opened[0]:
            _blank(chars, opened[1], match.end())
            opened = None
    if opened is not None:
        _blank(chars, opened[1], len(text))


def _blank_pairs(chars: list[str]) -> None:
    text = "".join(chars)
    for opening, closings in _QUOTES:
        at = text.find(opening)
        while at >= 0:
            ends = [end for closing in closings if (end := text.find(closing, at + 1, at + _QUOTED_MAX)) > 0]
            # An apostrophe is also a closing quote: "‘" opens only where a word begins, and closes where one ends.
            if opening == "\u2018" and at and text[at - 1].isalnum():
                ends = []
            end = min(ends, default=-1)
            if end > 0:
                _blank(chars, at, end + 1)
            elif opening in "\u201c„«「『":
                line_end = text.find("\n", at)
                end = len(text) - 1 if line_end < 0 else line_end
                _blank(chars, at, end)
            at = text.find(opening, max(end, at) + 1)
