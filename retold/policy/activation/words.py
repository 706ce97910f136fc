"""Words and the lists that give them meaning: what every rule of this package reads text with."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import NamedTuple

# Combining vowel signs of Indic scripts, Thai, Arabic and Hebrew marks are no \w for `re`, but parts of words.
_MARKS = (
    "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963\u0971-\u0dff"
    "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u200b-\u200d\u00ad"
)
# In Hebrew an apostrophe is part of a letter (geresh); elsewhere it ends a word.
_WORD = re.compile(f"[\\w{_MARKS}]+(?:(?<=[\u05d0-\u05ea])['’\u05f3\u05f4](?=[\u05d0-\u05ea])[\\w{_MARKS}]+)*")
_UNSEEN = re.compile("['’\u05f3\u05f4\u0307\u200b-\u200f\u00ad\u2060\ufeff\u0640\u0591-\u05c7\u064b-\u065f\u0670]")
_ARABIC = str.maketrans("ٱىيةؤئكگهۀہھے", "اییهویککههههی")
_SYMBOL = re.compile(r"[^\w\s*,'’.\-]")
UNSPACED_SCRIPTS = ("Han", "Kana", "Thai")


class Token(NamedTuple):
    """One word, folded, with its place in the text it comes from (code points)."""

    word: str
    start: int
    end: int


class Found(NamedTuple):
    """An entry of a list found in a text: `first` to `last` are positions in characters of the text."""

    list: str
    key: str
    """The axis, need or language code of an entry of a table; else empty."""
    start: int
    end: int


def fold(word: str) -> str:
    """One spelling for what a reader takes as the same word: width, case, invisible and optional marks."""
    return _UNSEEN.sub("", unicodedata.normalize("NFKC", word).casefold()).translate(_ARABIC)


def tokens_of(text: str) -> tuple[Token, ...]:
    return tuple(
        Token(folded, match.start(), match.end()) for match in _WORD.finditer(text) if (folded := fold(match.group()))
    )


def same_length_fold(text: str) -> str:
    """As :func:`fold`, character by character, so that places stay the same."""
    folded = (unicodedata.normalize("NFKC", char).casefold() for char in text)
    return "".join(new if len(new) == 1 else old for old, new in zip(text, folded, strict=True))


def without_marks(word: str) -> str:
    decomposed = unicodedata.normalize("NFD", word)
    return unicodedata.normalize("NFC", "".join(char for char in decomposed if not unicodedata.combining(char)))


class _Entry(NamedTuple):
    list: str
    key: str
    rest: tuple[tuple[str, str], ...]
    """The words after the first: kind (`is`, `starts`, `ends`) and word."""


class Vocabulary(NamedTuple):
    """Single words of lists: whole, by their beginning, by their end."""

    words: frozenset[str]
    starts: frozenset[str]
    ends: frozenset[str]

    def holds(self, word: str) -> bool:
        return (
            word in self.words
            or not self.starts.isdisjoint([word[:size] for size in range(2, len(word) + 1)])
            or not self.ends.isdisjoint([word[-size:] for size in range(2, min(len(word), 9))])
        )


@dataclass(frozen=True)
class WordLists:
    """The lists of one language, prepared for looking up."""

    code: str
    name: str
    script: str
    keep_marks: bool
    clitics: tuple[str, ...]
    entries: Mapping[tuple[str, str], tuple[str, ...]]
    """(list, key) -> its entries as written."""

    @property
    def unspaced(self) -> bool:
        return self.script in UNSPACED_SCRIPTS

    def find(self, text: str, tokens: tuple[Token, ...]) -> list[Found]:
        """Every entry in the text; one inside a longer one is left out (see :func:`_visible`)."""
        found = list(self._find_symbols(text))
        found.extend(self._find_anywhere(text) if self.unspaced else self._find_words(text, tokens))
        return _visible(found)

    def known(self, tokens: tuple[Token, ...]) -> list[bool]:
        """Which words occur in a list, alone or in a phrase, other than as what the user may be talking about."""
        return [self._knows(token.word, self._vocabulary) for token in tokens]

    def recognised(self, tokens: tuple[Token, ...]) -> list[bool]:
        """Which words occur in any list at all: what a language is told by."""
        return [self._knows(token.word, self._everything) for token in tokens]

    def _knows(self, word: str, vocabulary: Vocabulary) -> bool:
        return any(vocabulary.holds(variant) for variant in self._variants(word))

    def _variants(self, word: str) -> Iterable[str]:
        """The word, and without up to two prefixes that are written together with it (Arabic, Hebrew)."""
        return self._without_clitics(word) if self.clitics else (word,)

    def _without_clitics(self, word: str) -> Iterator[str]:
        yield word
        if self.clitics and len(word) > 3 and word.endswith("ا"):
            yield word[:-1]  # the Arabic accusative
        seen = {word}
        level = [word]
        for _ in range(2):
            level = [
                rest
                for each in level
                for prefix in self.clitics
                if each.startswith(prefix) and len(rest := each[len(prefix) :]) > 1 and rest not in seen
            ]
            seen.update(level)
            yield from level

    def _find_words(self, text: str, tokens: tuple[Token, ...]) -> Iterator[Found]:
        exact, starts, ends = self._by_first
        words = _in_rows(text, tokens)
        for at, token in enumerate(tokens):
            for variant in self._variants(token.word):
                yield from self._complete(exact.get(variant, ()), tokens, words, at)
                for size in range(2, len(variant) + 1):
                    if hit := starts.get(variant[:size]):
                        yield from self._complete(hit, tokens, words, at)
                for size in range(2, min(len(variant), 9)):
                    if hit := ends.get(variant[-size:]):
                        yield from self._complete(hit, tokens, words, at)

    def _complete(
        self, entries: Iterable[_Entry], tokens: tuple[Token, ...], words: list[tuple[str, int]], at: int
    ) -> Iterator[Found]:
        for entry in entries:
            last = at + len(entry.rest)
            if last < len(tokens) and words[last][1] == words[at][1] and self._follows(entry.rest, words, at + 1):
                yield Found(entry.list, entry.key, tokens[at].start, tokens[last].end)

    def _follows(self, rest: tuple[tuple[str, str], ...], words: list[tuple[str, int]], at: int) -> bool:
        """Whether the rest of an entry stands from `at` on. A loop: this is where the time of a reading goes."""
        for step, (kind, word) in enumerate(rest, at):
            said = words[step][0]
            if not _fits(kind, word, said) and not (
                self.clitics and any(_fits(kind, word, variant) for variant in self._variants(said))
            ):
                return False
        return True

    def _find_anywhere(self, text: str) -> Iterator[Found]:
        folded = same_length_fold(text)
        for (list_name, key), phrases in self._folded_phrases.items():
            for phrase in phrases:
                at = folded.find(phrase)
                while at >= 0:
                    yield Found(list_name, key, at, at + len(phrase))
                    at = folded.find(phrase, at + len(phrase))

    def _find_symbols(self, text: str) -> Iterator[Found]:
        lowered = text.casefold() if len(text.casefold()) == len(text) else text
        for list_name, symbol in self._symbols:
            at = lowered.find(symbol)
            if at >= 0:
                yield Found(list_name, "", at, at + len(symbol))

    @property
    def exact_words(self) -> frozenset[str]:
        """Words of the lists that need no ending or beginning."""
        return self._everything.words

    @cached_property
    def _symbols(self) -> tuple[tuple[str, str], ...]:
        return tuple(
            (list_name, phrase)
            for (list_name, _), phrases in self.entries.items()
            for phrase in phrases
            if _is_symbol(phrase)
        )

    @cached_property
    def _folded_phrases(self) -> dict[tuple[str, str], tuple[str, ...]]:
        return {
            where: tuple(dict.fromkeys(same_length_fold(phrase).strip("*") for phrase in phrases))
            for where, phrases in self.entries.items()
        }

    @cached_property
    def _by_first(self) -> tuple[dict[str, list[_Entry]], dict[str, list[_Entry]], dict[str, list[_Entry]]]:
        exact: dict[str, list[_Entry]] = {}
        starts: dict[str, list[_Entry]] = {}
        ends: dict[str, list[_Entry]] = {}
        into = {"is": exact, "starts": starts, "ends": ends}
        for (list_name, key), phrases in self.entries.items():
            for phrase in phrases:
                for words in self._spellings(list_name, phrase):
                    kind, first = words[0]
                    into[kind].setdefault(first, []).append(_Entry(list_name, key, words[1:]))
        return exact, starts, ends

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return self._words_of(without=("fact", "topic"))

    @cached_property
    def _everything(self) -> Vocabulary:
        return self._words_of(without=())

    def _words_of(self, *, without: tuple[str, ...]) -> Vocabulary:
        by_kind: dict[str, set[str]] = {"is": set(), "starts": set(), "ends": set()}
        for (list_name, _), phrases in self.entries.items():
            if list_name in without:
                continue
            for phrase in phrases:
                for words in self._spellings(list_name, phrase):
                    for kind, word in words:
                        by_kind[kind].add(word)
        return Vocabulary(*(frozenset(by_kind[kind]) for kind in ("is", "starts", "ends")))

    def _spellings(self, list_name: str, phrase: str) -> Iterator[tuple[tuple[str, str], ...]]:
        if _is_symbol(phrase):
            return
        words = tuple(_pattern(part) for part in _parts(phrase))
        if not words:
            return
        yield words
        if list_name == "habit":
            return  # "أستخدم" is "I use", and without its mark "use!"
        plain = tuple((kind, without_marks(word)) for kind, word in words)
        if plain != words and not self.keep_marks:
            yield plain


_BREAK = re.compile(r"[,;:!?()…—–\n،؛、，；：。！？]|\.\s")


def _in_rows(text: str, tokens: tuple[Token, ...]) -> list[tuple[str, int]]:
    """Each word with the number of its row: a phrase never reaches over a comma or a full stop."""
    rows = []
    row = 0
    for at, token in enumerate(tokens):
        if at and _BREAK.search(text, tokens[at - 1].end, token.start + 1):
            row += 1
        rows.append((token.word, row))
    return rows


def _fits(kind: str, word: str, said: str) -> bool:
    if kind == "is":
        return said == word
    return said.startswith(word) if kind == "starts" else said.endswith(word)


def _parts(phrase: str) -> list[str]:
    return [match.group() for match in re.finditer(f"\\*?[\\w{_MARKS}]+\\*?", phrase) if fold(match.group().strip("*"))]


def _pattern(part: str) -> tuple[str, str]:
    if part.endswith("*"):
        return "starts", fold(part.strip("*"))
    return ("ends", fold(part[1:])) if part.startswith("*") else ("is", fold(part))


def _is_symbol(phrase: str) -> bool:
    """An emoji, or a phrase whose punctuation is what makes it one (`/s`, `user:`)."""
    return not _parts(phrase) or any(char in phrase for char in "/:：_？?，、")


# A longer entry hides what lies inside it, but what makes a statement standing is only hidden where the longer
# entry means something else: "never mind", "not always", "every time I ...".
_HIDES_STANDING = frozenset({"takeback", "not_asked", "concessive", "temporary", "condition", "question"})
_STANDING = frozenset({"standing", "universal"})
_HIDES_NEGATION = frozenset({"style", "concessive", "exempt", "polite", "stop", "question", "condition", "reason"})
_NEVER_HIDES = frozenset({"quote", "me", "bare", "fact", "directive"})


def _visible(found: list[Found]) -> list[Found]:
    ordered = sorted(set(found), key=lambda one: (one.start, -one.end))
    starts = [one.start for one in ordered]
    kept = []
    for one in ordered:
        length = one.end - one.start
        upto = bisect_right(starts, one.start)
        hidden = any(
            other.start <= one.start and one.end <= other.end and other.end - other.start > length
            and other.list not in _NEVER_HIDES
            and (one.list not in _STANDING or other.list in _HIDES_STANDING)
            and (one.list != "not" or other.list in _HIDES_NEGATION)
            and (one.list != "directive" or other.list != "style")
            for other in ordered[max(0, upto - 80) : upto]
        )  # fmt: skip
        if not hidden:
            kept.append(one)
    return kept


@cache
def reviewed() -> Mapping[str, WordLists]:
    """Every language with a file, by code. Read once a process; malformed lists fail the process, not a decision."""
    files = sorted(
        (file for file in resources.files(__package__).joinpath("languages").iterdir() if file.name.endswith(".toml")),
        key=lambda file: file.name,
    )
    return {
        code: _lists(code, tomllib.loads(file.read_text(encoding="utf-8")))
        for file in files
        if (code := file.name.removesuffix(".toml")) != "unreviewed"
    }


@cache
def unreviewed() -> Mapping[str, tuple[str, frozenset[str]]]:
    """Languages that are recognised only so that they are not taken for a relative: code -> (script, its words)."""
    text = resources.files(__package__).joinpath("languages", "unreviewed.toml").read_text(encoding="utf-8")
    return {
        code: (held["script"], frozenset(fold(word) for word in held["words"].split()))
        for code, held in tomllib.loads(text).items()
    }


def _lists(code: str, held: Mapping[str, object]) -> WordLists:
    entries: dict[tuple[str, str], tuple[str, ...]] = {}
    for name, value in held.items():
        if isinstance(value, dict):
            for key, phrases in value.items():
                entries[name, key] = _split(phrases)
        elif isinstance(value, str) and name not in ("name", "script", "clitics"):
            entries[name, ""] = _split(value)
    return WordLists(
        code=code,
        name=str(held["name"]),
        script=str(held["script"]),
        keep_marks=bool(held.get("keep_marks", False)),
        clitics=tuple(fold(each) for each in _split(str(held.get("clitics", "")))),
        entries=entries,
    )


def _split(phrases: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(phrase for part in phrases.split(",") if (phrase := " ".join(part.split()))))


_SCRIPTS = (
    ("Kana", "\u3041-\u30ff"),
    ("Han", "\u3400-\u9fff\uf900-\ufaff"),
    ("Hangul", "\uac00-\ud7a3\u1100-\u11ff\u3130-\u318f"),
    ("Thai", "\u0e00-\u0e7f"),
    ("Greek", "\u0370-\u03ff\u1f00-\u1fff"),
    ("Cyrillic", "\u0400-\u04ff"),
    ("Hebrew", "\u0590-\u05ff"),
    ("Arabic", "\u0600-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufeff"),
    ("Devanagari", "\u0900-\u097f"),
    ("Bengali", "\u0980-\u09ff"),
    ("Tamil", "\u0b80-\u0bff"),
    ("Telugu", "\u0c00-\u0c7f"),
    ("Latin", "A-Za-z\u00aa-\u024f\u1e00-\u1eff"),
)
_BY_SCRIPT = [(name, re.compile(f"[{ranges}]")) for name, ranges in _SCRIPTS]


def script_of(text: str) -> str | None:
    """The script most letters of the text are in; Japanese is `Kana` as soon as it has any. None: no known script."""
    counts = {name: len(pattern.findall(text)) for name, pattern in _BY_SCRIPT}
    if counts["Kana"]:
        counts["Kana"] += counts.pop("Han")
    best = max(counts, key=lambda name: counts[name] * (2 if name in ("Han", "Kana") else 1))
    letters = sum(char.isalpha() for char in text)
    return best if counts[best] and sum(counts.values()) >= letters * 0.6 else None
