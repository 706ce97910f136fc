"""What retrieval reads out of a text without a model: its words, names, numbers and negation, in any script."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

MAX_NAME_WORDS = 3

_NEGATION_WORDS = (
    "not no never none nobody nothing neither nor without cannot cant dont doesnt didnt wont wouldnt shouldnt couldnt "
    "isnt arent wasnt werent hasnt havent hadnt avoid avoids avoided avoiding stop stops stopped stopping quit quits "
    "refuse refuses refused dislike dislikes disliked hate hates hated "
    "nicht kein keine keinen nie niemals ohne ne pas jamais sans nunca jamás sin ninguno não nunca sem mai non senza "
    "niet geen nooit zonder нет не никогда без inte aldrig ikke aldri ei nie bez"
)
_NEGATIONS = frozenset(_NEGATION_WORDS.split())

_STOP_WORDS = (
    "a an and are as at be been being by did do does for from had has have he her him his how i if in is it its me my "
    "of on or our she so than that the their them then there they this to us was we were what when where which who "
    "whom whose why will with would you your"
)
_STOPWORDS = frozenset(_STOP_WORDS.split())

_FIRST_PERSON = re.compile(r"\b(?:i|i'm|i've|i'd|i'll|me|my|mine|myself)\b", re.IGNORECASE)

_PUNCTUATION = "\"'“”‘’()[]{}<>.,;:!?…。、！？"

# Scripts written without spaces between words: their runs are cut into overlapping pairs instead of words.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)


def fold(text: str) -> str:
    """One spelling for texts that read the same: NFKC, case folded, white space collapsed."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def words(text: str) -> list[str]:
    """Folded words in order, in any script; apostrophes inside a word are dropped.

    A run of a script without spaces becomes its overlapping pairs of characters, which find the same text again
    and every stretch of it. An emoji is a word.
    """
    found: list[str] = []
    for run in _runs(fold(text)):
        position = 0
        for unspaced in _UNSPACED.finditer(run):
            if unspaced.start() > position:
                found.append(run[position : unspaced.start()])
            found.extend(_pairs(unspaced.group()))
            position = unspaced.end()
        if position < len(run):
            found.append(run[position:])
    return found


def content_words(text: str) -> list[str]:
    """Words that carry a fact, in order, with the plainest English endings taken off."""
    return [_stem(word) for word in words(text) if word not in _STOPWORDS]


def numbers(text: str) -> tuple[str, ...]:
    """Everything with a digit in it, in order."""
    return tuple(word for word in words(text) if any(char.isdigit() for char in word))


def negations(text: str) -> tuple[str, ...]:
    """Words that turn a statement round, in order."""
    return tuple(word for word in words(text) if word in _NEGATIONS)


def names(text: str) -> tuple[str, ...]:
    """Capitalised words that do not merely start a sentence, in order. Order matters: who did what to whom."""
    found: list[str] = []
    starts_sentence = True
    for token in text.split():
        bare = _bare(token)
        if bare[:1].isupper() and not starts_sentence and not is_first_person(bare):
            found.append(fold(bare))
        starts_sentence = token.endswith((".", "!", "?", "…", "。", "！", "？"))
    return tuple(found)


def possible_names(text: str) -> tuple[str, ...]:
    """Every run of one to three words, folded: what an entity of a record can be compared with exactly."""
    bare = [word for token in fold(text).split() if (word := _bare(token))]
    runs = (
        " ".join(bare[start : start + length])
        for length in range(1, MAX_NAME_WORDS + 1)
        for start in range(len(bare) - length + 1)
    )
    return tuple(dict.fromkeys(run for run in runs if run not in _STOPWORDS))


def is_first_person(text: str) -> bool:
    """Whether an English query speaks of the one who asks."""
    return bool(_FIRST_PERSON.search(text.replace("’", "'")))


def _bare(token: str) -> str:
    """The token without the punctuation around it, nor the possessive."""
    return token.strip(_PUNCTUATION).removesuffix("'s").removesuffix("’s").strip(_PUNCTUATION)


def _runs(folded: str) -> list[str]:
    """Maximal stretches of letters, marks and digits; a symbol such as an emoji stands alone."""
    runs: list[str] = []
    current: list[str] = []
    for char in folded:
        kind = _kind(char)
        if kind == "word":
            current.append(char)
            continue
        if kind == "joint":
            continue
        if current:
            runs.append("".join(current))
            current = []
        if kind == "symbol":
            runs.append(char)
    if current:
        runs.append("".join(current))
    return runs


@lru_cache(maxsize=8192)
def _kind(char: str) -> str:
    if char in "'’":
        return "joint"
    category = unicodedata.category(char)
    if category[0] in "LMN":
        return "word"
    return "symbol" if category == "So" else "gap"


def _pairs(run: str) -> list[str]:
    return [run] if len(run) < 3 else [run[at : at + 2] for at in range(len(run) - 1)]


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word
