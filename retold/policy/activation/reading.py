"""A turn as sentences, each in the language its words are known in, with what the word lists find in it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

from retold.policy.activation.own_words import BLANK, own_words
from retold.policy.activation.words import Found, Token, WordLists, reviewed, script_of, tokens_of, unreviewed

MIN_KNOWN = 0.3
"""Share of a sentence's letters that must stand in known words; below it, its language counts as not reviewed."""
_NEAR = 0.9
_SHORTLIST = 6
SENTENCES_MAX = 80
CLAUSES_MAX = 60

_STOP = re.compile(r"[.!?…]+[)\]\"'»”]*(?=\s|$|\ufffc)|[。！？｡؟։።।॥۔]+[」』”]*|\n+|(?<=\w);(?=\s)|[؛；]")
_ABBREVIATION = re.compile(
    r"(?:\b(?:dr|mr|mrs|ms|prof|st|sr|sra|dra|vs|e\.g|i\.e|etc|no|z\.b|d\.h|bzw|ca|p\.ex|p\.m|a\.m)|\b[A-Za-z])\.$",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[,;:()،؛、，：；—–]|\s-{1,2}\s")


@dataclass(frozen=True)
class Clause:
    start: int
    end: int
    found: tuple[Found, ...]
    words: int
    unknown: tuple[str, ...]
    """Words no list of the language knows; of scripts without spaces, stretches of characters."""

    def has(self, *lists: str) -> bool:
        return any(one.list in lists for one in self.found)


@dataclass(frozen=True)
class Sentence:
    """Places are code points of the turn's stored text."""

    start: int
    end: int
    text: str
    language: str | None
    """None: no reviewed language."""
    asks: bool
    """It ends with a question mark."""
    found: tuple[Found, ...]
    clauses: tuple[Clause, ...]
    tokens: tuple[Token, ...]
    ends_line: bool

    def has(self, *lists: str) -> bool:
        return any(one.list in lists for one in self.found)

    def keys(self, list_name: str) -> frozenset[str]:
        return frozenset(one.key for one in self.found if one.list == list_name)


@dataclass(frozen=True)
class Reading:
    """What the user says in one turn, in their own words."""

    own: str
    """The turn with brought-along text blanked out (see :mod:`retold.policy.activation.own_words`)."""
    sentences: tuple[Sentence, ...]

    def overlapping(self, start: int, end: int) -> tuple[Sentence, ...]:
        return tuple(each for each in self.sentences if each.start < end and start < each.end)

    def is_own(self, start: int, end: int) -> bool:
        """Whether the user said something there, and nothing brought along lies in it."""
        return self.own[start:end].strip() != "" and BLANK not in self.own[start:end]


@contextmanager
def read_once() -> Iterator[None]:
    """Inside the block a text is read once, however many rules ask for it; threads called from it share the readings.

    After the block nothing of what was read is in memory. A cache that outlives an evaluation would keep what users
    said after they had it forgotten. A block inside another adds nothing.
    """
    if _kept.get() is not None:
        yield
        return
    kept: _Kept = {}
    token = _kept.set(kept)
    try:
        yield
    finally:
        _kept.reset(token)
        kept.clear()  # a thread nobody waits for any more may still hold it


_Kept = dict[tuple[Callable[[str], Reading], str], Reading]
"""By how it was read, and the text."""

_kept: ContextVar[_Kept | None] = ContextVar("readings of one evaluation", default=None)


def read(text: str) -> Reading:
    """Read one turn. Bounded by the length of what `own_words` leaves."""
    return _once(_read, text)


def read_record(text: str) -> Reading:
    """Read the text of a record: all of it counts, quotation marks included."""
    return _once(_read_record, text)


def _once(how: Callable[[str], Reading], text: str) -> Reading:
    kept = _kept.get()
    if kept is None:
        return how(text)
    if (reading := kept.get((how, text))) is None:
        reading = kept.setdefault((how, text), how(text))
    return reading


def _read(text: str) -> Reading:
    own = own_words(text)
    sentences = tuple(_with_neighbours(list(_sentences(own))))
    cut = _brought_along(sentences, own)
    if cut is not None:
        own = own[:cut] + "".join(char if char == "\n" else BLANK for char in own[cut:])
        sentences = tuple(_with_neighbours(list(_sentences(own))))
    return Reading(own, sentences)


def _read_record(text: str) -> Reading:
    return Reading(text, tuple(_sentences(text)))


def _with_neighbours(sentences: list[Sentence]) -> list[Sentence]:
    """A sentence too strange to tell its language is still searched for doubts, in the language around it."""
    spoken = Counter(each.language for each in sentences if each.language is not None)
    if not spoken:
        return sentences
    language = spoken.most_common(1)[0][0]
    lists = reviewed()[language]
    return [
        replace(each, found=tuple(_moved(one, each.start) for one in lists.find(each.text, tokens_of(each.text))))
        if each.language is None and lists.script == script_of(each.text)
        else each
        for each in sentences
    ]


def _moved(one: Found, by: int) -> Found:
    return Found(one.list, one.key, one.start + by, one.end + by)


def _brought_along(sentences: Iterable[Sentence], own: str) -> int | None:
    """Where "translate this:" or a request about a text ends and the text itself begins."""
    for sentence in sentences:
        quotes = [one.end for one in sentence.found if one.list in ("quote", "hypothetical")]
        if not quotes:
            continue
        colon = re.compile("[:：]").search(own, min(quotes) - 1, sentence.end + 1)
        if colon is not None:
            return colon.end()
        if sentence.ends_line and own[sentence.end :].strip():
            return sentence.end
    return None


def _sentences(own: str) -> Iterator[Sentence]:
    for count, (start, end) in enumerate(_bounds(own)):
        if count == SENTENCES_MAX:
            return
        yield _sentence(own, start, end)


def _bounds(own: str) -> Iterator[tuple[int, int]]:
    """Start and end of each sentence with a letter in it, its closing mark included."""
    start = 0
    for stop in _STOP.finditer(own):
        if stop.group() == "." and _ABBREVIATION.search(own[max(0, stop.end() - 8) : stop.end()]):
            continue
        if any(char.isalpha() for char in own[start : stop.end()]):
            yield _trimmed(own, start, stop.end())
        start = stop.end()
    if any(char.isalpha() for char in own[start:]):
        yield _trimmed(own, start, len(own))


def _trimmed(own: str, start: int, end: int) -> tuple[int, int]:
    while start < end and (own[start].isspace() or own[start] == BLANK):
        start += 1
    while end > start and (own[end - 1].isspace() or own[end - 1] == BLANK):
        end -= 1
    return start, end


def _sentence(own: str, start: int, end: int) -> Sentence:
    text = own[start:end]
    here = _read_sentence(text)
    moved = tuple(_moved(one, start) for one in here.found)
    clauses = tuple(
        Clause(
            clause.start + start,
            clause.end + start,
            tuple(one for one in moved if clause.start + start <= one.start < clause.end + start),
            clause.words,
            clause.unknown,
        )
        for clause in here.clauses
    )
    tokens = tuple(Token(token.word, token.start + start, token.end + start) for token in here.tokens)
    rest = own[end:]
    ends_line = rest[: len(rest) - len(rest.lstrip(" \t\ufffc"))].strip(" \t\ufffc") == "" and rest.lstrip(
        " \t\ufffc"
    ).startswith("\n")
    return Sentence(start, end, text, here.language, here.asks, moved, clauses, tokens, ends_line)


def _read_sentence(text: str) -> Sentence:
    tokens = tokens_of(text)
    languages = languages_of(text, tokens)
    lists = reviewed()
    found: tuple[Found, ...] = ()
    if languages:
        found = tuple(lists[languages[0]].find(text, tokens))
        for near in languages[1:]:
            # A sentence that could be of either of two languages is held to the doubts of both.
            found += tuple(one for one in lists[near].find(text, tokens) if one.list in _DOUBTS)
    if languages[:1] == ("en",):
        found = tuple(one for one in found if one.list != "directive" or not _told_of_somebody(one, tokens))
    asks = bool(re.search(r"[?？؟;]\W*$", text)) and not (text.rstrip().endswith(";") and languages[:1] != ("el",))
    clauses = tuple(_clauses(text, tokens, found, lists[languages[0]] if languages else None))
    return Sentence(0, len(text), text, languages[0] if languages else None, asks, found, clauses, tokens, False)


def _told_of_somebody(one: Found, tokens: tuple[Token, ...]) -> bool:
    """ "I use", "we write": in English only the word before tells a statement from a request."""
    before = [token.word for token in tokens if token.end <= one.start][-1:]
    return before != [] and before[0] in ("i", "we", "they", "he", "she", "it", "who", "people")


_DOUBTS = frozenset({"condition", "temporary", "not_asked", "not", "takeback", "unsafe"})


def languages_of(text: str, tokens: tuple[Token, ...]) -> tuple[str, ...]:
    """The reviewed languages the text may be in, likeliest first; none when a language without lists fits better."""
    script = script_of(text)
    if script is None or not tokens:
        return ()
    lists = reviewed()
    candidates = [code for code, each in lists.items() if each.script == script]
    if len(candidates) > _SHORTLIST:
        hits = Counter(code for token in tokens for code in _spoken_in().get(token.word, ()) if code in candidates)
        candidates = [code for code, _ in hits.most_common(_SHORTLIST)]
    if lists and script in ("Han", "Kana", "Thai"):
        return tuple(code for code in candidates if _covered(lists[code], text, tokens) >= MIN_KNOWN)[:1]
    weights = [min(len(token.word), 8) for token in tokens]
    total = sum(weights)
    scores = {
        code: sum(weight for weight, known in zip(weights, lists[code].recognised(tokens), strict=True) if known)
        / total
        for code in candidates
    }
    best = max(scores.values(), default=0.0)
    words = [token.word for token in tokens]
    strange = max(
        (
            sum(weight for weight, word in zip(weights, words, strict=True) if word in held) / total
            for held_script, held in unreviewed().values()
            if held_script == script
        ),
        default=0.0,
    )
    if best < MIN_KNOWN or strange > best or (strange == best and strange >= _NEAR):
        return ()
    ranked = sorted((code for code, score in scores.items() if score >= best * _NEAR), key=lambda code: -scores[code])
    return tuple(ranked[:2])


@cache
def _spoken_in() -> dict[str, tuple[str, ...]]:
    """Word -> the languages whose lists hold exactly it."""
    index: dict[str, list[str]] = {}
    for code, lists in reviewed().items():
        for word in lists.exact_words:
            index.setdefault(word, []).append(code)
    return {word: tuple(codes) for word, codes in index.items()}


def _covered(lists: WordLists, text: str, tokens: tuple[Token, ...]) -> float:
    """Share of letters that lie in a known entry."""
    letters = {at for at, char in enumerate(text) if char.isalpha()}
    inside = {at for one in lists.find(text, tokens) for at in range(one.start, one.end)}
    return len(letters & inside) / max(1, len(letters))


def _clauses(
    text: str, tokens: tuple[Token, ...], found: tuple[Found, ...], lists: WordLists | None
) -> Iterator[Clause]:
    cuts = sorted(
        {0, len(text)}
        | {match.end() for match in _CLAUSE.finditer(text) if _separates(text, match)}
        | {one.start for one in found if one.list == "conj" and lists is not None and not lists.unspaced}
    )
    cuts = [*cuts[:CLAUSES_MAX], len(text)]  # what is left of a sentence of hundreds of commas is one clause
    known = lists.known(tokens) if lists is not None else [False] * len(tokens)
    for start, end in pairwise(cuts):
        inside = tuple(one for one in found if start <= one.start < end)
        here = [(token, is_known) for token, is_known in zip(tokens, known, strict=True) if start <= token.start < end]
        if not any(char.isalpha() for char in text[start:end]):
            continue
        covered = {at for one in inside for at in range(one.start, one.end)}
        if lists is not None and lists.unspaced:
            alone = [text[at] for at in range(start, end) if text[at].isalpha() and at not in covered]
            letters = sum(char.isalpha() for char in text[start:end])
            yield Clause(start, end, inside, max(1, letters // 2), tuple(alone[::2]))
            continue
        unknown = tuple(
            token.word
            for token, is_known in here
            if not is_known and not token.word.isdigit() and token.start not in covered
        )
        yield Clause(start, end, inside, len(here), unknown)


def _separates(text: str, match: re.Match[str]) -> bool:
    """A comma inside a number, or a colon inside a time, separates nothing."""
    around = text[max(0, match.start() - 1) : match.end() + 1]
    return not (len(around) == 3 and around[0].isdigit() and around[2].isdigit())
