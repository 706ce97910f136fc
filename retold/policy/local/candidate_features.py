"""What can be told about a candidate beside the question: nearness, words, whom it is about, when, and its shape.

Pure numbers over texts and vectors; all candidates of a turn are read together, because being the best of eight is
itself a sign.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retold.contracts.record import MemoryRecord
from retold.policy.local import lexicon as lx
from retold.retrieval.text import content_words, fold, names, numbers, words

Vectors = NDArray[np.float32]

PRINCIPAL = "user"
MAX_QUESTION_WORDS = 16
MAX_RECORD_WORDS = 24

NAMES = (
    "cosine", "cosine_gap", "spoken_cosine", "meaning", "meaning_gap", "weakest_word", "shared", "shared_gap", "own",
    "other", "other_via_my", "named", "same_date", "other_date", "kind_fits", "kind_missing", "wish", "company",
    "topic", "topic_gap", "topic_weakest", "topic_shared", "name_missing",
)  # fmt: skip
"""One name a feature, in the order of the columns of :func:`candidate_inputs`."""

_I_MY = (
    (re.compile(r"\bI\s+am\b"), "{} is"),
    (re.compile(r"\bI\b(?!\.)"), "{}"),
    (re.compile(r"\b(?:my|mine)\b", re.IGNORECASE), "{}'s"),
    (re.compile(r"\bme\b", re.IGNORECASE), "{}"),
)
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_MONTH = re.compile(rf"\b({'|'.join(_MONTHS)})\b", re.IGNORECASE)
_YEAR = re.compile(r"\b((?:19|20)\d\d)\b")
_DAY = re.compile(
    rf"\b(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?:{'|'.join(_MONTHS)})\b|\b(?:{'|'.join(_MONTHS)}) (\d{{1,2}})\b",
    re.IGNORECASE,
)
_TIME_WORDS = re.compile(
    rf"\d|\b(?:{'|'.join(_MONTHS)}|monday|tuesday|wednesday|thursday|friday|saturday|sunday|yesterday|today|tomorrow|"
    r"week|weeks|weekend|month|months|year|years|morning|evening|night|spring|summer|autumn|fall|winter|since|ago)\b",
    re.IGNORECASE,
)
_PLACE_WORDS = re.compile(r"\b(?:in|at|on|near|from|to|under|behind|beside|outside|inside|through)\b", re.IGNORECASE)
_COUNT_WORDS = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|twelve|twice|once|several|couple|dozen|both)\b", re.I
)
_CALENDAR = frozenset({*_MONTHS, "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"})
_UNRELATED, _RELATED = 0.3, 0.7
"""Cosine of two single words below which they have nothing to do with each other, and above which they say the same."""
_LENGTH = re.compile(
    r"\d[\d.,]*\s?(?:m|cm|mm|km|ft|in)\b|\b(?:met(?:re|er)s?|centimet\w+|kilomet\w+|feet|foot|inch(?:es)?|miles?|yards?|"
    r"hours?|minutes?|days?|weeks?|months?|years?|pages?)\b",
    re.IGNORECASE,
)
_WISH = lx.Lexicon("""
    prefer, prefers, like, likes, love, loves, dislike, dislikes, hate, hates, avoid, avoids, want, wants,
    favourite, favorite, enjoy, enjoys, never, always, only, allergic, vegan, vegetarian, cannot, can t, don t,
    doesn t, rather, afraid, scared, need, needs, interested, passionate, comfortable, refuse, not, won t, fan,
    intolerant, opposed, aversion, bevorzugt, mag, hasst, préfère, aime, déteste, évite, prefiere, odia, evita,
    पसंद, नापसंद, 喜欢, 讨厌, 不吃, 过敏, 偏好
""")


@dataclass(frozen=True)
class Read:
    """A text as the features need it: its sentence vector and the vectors of its content words."""

    text: str
    vector: Vectors
    tokens: tuple[str, ...]
    token_vectors: Vectors


@dataclass(frozen=True)
class Question:
    """The turn, read as asked and as if spoken by somebody else ("I" replaced by the principal's name)."""

    asked: Read
    spoken: Vectors
    subjects: frozenset[str]
    """Stored subjects the turn names, folded; the principal where it says I or my."""
    rarity: NDArray[np.float64]
    """Per content word of the question: how much it tells, from the authored corpus's word counts."""


def content_tokens(text: str, limit: int) -> tuple[str, ...]:
    """Distinct words that carry meaning, in order, unstemmed, at most `limit`."""
    kept = dict.fromkeys(word for word in words(text) if content_words(word))
    return tuple(list(kept)[:limit])


def principal_name(candidates: Sequence[MemoryRecord]) -> str:
    """How the records call the principal: the first word most of their own records begin with, else "the user"."""
    firsts = Counter(
        match.group(1)
        for record in candidates
        if record.subject == PRINCIPAL and (match := re.match(r"([A-ZÀ-Þ][\w-]+)(?:['’]s)?\s", record.text))
    )
    for word, count in firsts.most_common(3):
        if count >= 2 and fold(word) not in {
            "the",
            "i",
            "my",
            "user",
            "a",
            "an",
            "in",
            "on",
            "at",
            "we",
            "it",
            "they",
            "he",
            "she",
        }:
            return word
    return "the user"


def spoken_by_another(question: str, name: str) -> str:
    """The question with I, my and me replaced by the name, so that it reads like the records do."""
    for pattern, form in _I_MY:
        question = pattern.sub(form.format(name), question)
    return question


def subjects_of(question: str, candidates: Sequence[MemoryRecord]) -> frozenset[str]:
    """Whom the question speaks of: subjects of candidates by their first name, and the principal by I, my or name."""
    said = set(words(question.replace("'s", " ").replace("’s", " ")))
    prepared = lx.spaced(question)
    found = {
        fold(record.subject)
        for record in candidates
        if record.subject != PRINCIPAL and set(words(record.subject)[:1]) & said
    }
    first_person = any(words_.in_(prepared) for words_ in (lx.FIRST_PERSON, lx.MY, lx.ME))
    if first_person or fold(principal_name(candidates)) in said:
        found.add(PRINCIPAL)
    return frozenset(found)


def rarity(tokens: Sequence[str], counts: Mapping[str, float]) -> NDArray[np.float64]:
    total = counts.get("", 1.0)
    return np.array([math.log(total / counts.get(stem(token), 1.0)) for token in tokens], dtype=np.float64)


def stem(token: str) -> str:
    return (content_words(token) or [token])[0]


def candidate_inputs(question: Question, records: Sequence[MemoryRecord], read: Sequence[Read]) -> NDArray[np.float64]:
    """One row a candidate, one column a name of :data:`NAMES`."""
    asked = question.asked
    cosine = np.array([float(asked.vector @ each.vector) for each in read])
    spoken = np.array([float(question.spoken @ each.vector) for each in read])
    similar = np.stack([_word_similarity(asked, each) for each in read])
    weights = question.rarity / max(question.rarity.sum(), 1e-9)
    meaning = similar @ weights
    shared = (similar > 0.999) @ weights
    weakest = np.array([_weakest(row, question.rarity) for row in similar])
    topic, topic_weakest, topic_shared = _topic_cover(question, similar)
    missing = np.array([_name_missing(question, record) for record in records])
    whom = np.array([_whom(question, record) for record in records])
    when = np.array([_when(asked.text, record) for record in records])
    kind = np.array([_kind(asked.text, record.text) for record in records])
    wish = np.array([float(_WISH.in_(lx.spaced(record.text))) for record in records])
    company = _company(meaning, records)
    return np.column_stack([
        cosine, cosine - cosine.max(), spoken, meaning, meaning - meaning.max(), weakest, shared, shared - shared.max(),
        whom, when, kind, wish, company, topic, topic - topic.max(), topic_weakest, topic_shared, missing,
    ])  # fmt: skip


def _word_similarity(asked: Read, record: Read) -> NDArray[np.float64]:
    """Per word of the question, its nearest word in the record: 1 for the same stem, else the cosine."""
    if not asked.tokens:
        return np.zeros(0)
    if not record.tokens:
        return np.zeros(len(asked.tokens))
    nearest = (asked.token_vectors @ record.token_vectors.T).max(axis=1).astype(np.float64)
    stems = {stem(token) for token in record.tokens}
    same = np.array([stem(token) in stems for token in asked.tokens])
    return np.where(same, 1.0, np.minimum(nearest, 0.99))


def _weakest(similar: NDArray[np.float64], rarity_: NDArray[np.float64]) -> float:
    """How well the least covered of the telling words is covered: a near event differs in one of them."""
    telling = rarity_ >= np.median(rarity_) if len(rarity_) else np.zeros(0, dtype=bool)
    return float(similar[telling].min()) if telling.any() else 0.0


def _topic_cover(question: Question, similar: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Per candidate, how well the words that say what is asked about are covered: on average, least, and literally.

    "The number of my guest parking space" is about guest, parking and space; another record's number covers nothing.
    Words that most candidates share tell them less apart and count less. 1 where the question names no topic.
    """
    topical = np.array([not lx.ATTRIBUTE_WORDS.in_(f" {token} ") for token in question.asked.tokens], dtype=bool)
    if not topical.any():
        return np.ones(len(similar)), np.ones(len(similar)), np.ones(len(similar))
    covered = np.clip((similar[:, topical] - _UNRELATED) / (_RELATED - _UNRELATED), 0.0, 1.0)
    literal = similar[:, topical] > 0.999
    weights = question.rarity[topical] * (1.5 - literal.mean(axis=0))
    weights = weights / max(weights.sum(), 1e-9)
    telling = weights >= np.median(weights)
    return covered @ weights, covered[:, telling].min(axis=1), literal @ weights


def _name_missing(question: Question, record: MemoryRecord) -> float:
    """Share of the names in the question, people apart, that the record does not hold."""
    people = question.subjects | _CALENDAR
    asked = {name for name in names(question.asked.text) if name not in people}
    held = set(words(record.text.replace("'s", " ").replace("’s", " "))) | set(words(record.subject))
    return sum(not set(words(name)) & held for name in asked) / len(asked) if asked else 0.0


def _whom(question: Question, record: MemoryRecord) -> tuple[float, float, float, float]:
    """(about whom the question asks, about somebody else, somebody else but reached by "my ...", name in the text)."""
    if not question.subjects:
        return 0.0, 0.0, 0.0, 0.0
    about = fold(record.subject)
    prepared = lx.spaced(question.asked.text)
    in_text = bool((question.subjects - {PRINCIPAL}) & set(words(record.text.replace("'s", " "))))
    own = about in question.subjects or _is_that_relative(prepared, record)
    via_my = not own and lx.MY.in_(prepared)
    return float(own), float(not own and not via_my and not in_text), float(via_my and not in_text), float(in_text)


def _is_that_relative(asked: str, record: MemoryRecord) -> bool:
    """Asked about "my sister", a record about Ida that calls her the user's sister is about the right person."""
    if record.subject == PRINCIPAL or not lx.MY.in_(asked):
        return False
    said = lx.spaced(record.text)
    return any(f" {kin} " in asked and (f" user s {kin} " in said or f" my {kin} " in said) for kin in lx.RELATIVES)


def _when(question: str, record: MemoryRecord) -> tuple[float, float]:
    """(the question's month, year and day are the record's, they are not); both 0 where the question has none."""
    text = record.text.casefold()
    told = record.told_at
    hits = [
        month.casefold() in text or _MONTHS[told.month - 1] == month.casefold() for month in _MONTH.findall(question)
        if month != "may"
    ] + [year in text or str(told.year) == year for year in _YEAR.findall(question)]  # fmt: skip
    if not hits:
        return 0.0, 0.0
    days = [int(first or second) for first, second in _DAY.findall(question)]
    near = all(abs(told.day - day) <= 3 or str(day) in text for day in days)
    return float(all(hits)) * (1.0 if near else 0.5), float(not all(hits))


def _kind(question: str, text: str) -> tuple[float, float]:
    """(the record holds the kind of thing asked for, it does not): a time, a place, a person, a count."""
    asked = lx.spaced(question)
    for wanted, present in (
        (
            (" how long is ", " how wide ", " how tall ", " how high ", " how deep ", " length of ", " width of "),
            bool(_LENGTH.search(text)),
        ),
        ((" when ", " what time ", " wann ", " quand ", " cuándo ", " how long "), bool(_TIME_WORDS.search(text))),
        ((" where ", " wo ", " où ", " dónde "), bool(_PLACE_WORDS.search(text))),
        ((" who ", " whom ", " wer ", " qui ", " quién "), bool(names(text))),
        (
            (
                " how many ", " how much ", " how often ", " how old ", " number ", " plate ",
                " price ", " fee ", " cost ", " rent ", " size ", " limit ", " budget ", " code ", " wie viele ",
                " combien ",
            ),
            bool(_COUNT_WORDS.search(text)),
        ),
        ((" called ", " name of ", " s name "), bool(names(text) or numbers(text))),
    ):  # fmt: skip
        if any(each in asked for each in wanted):
            return float(present), float(not present)
    return 0.0, 0.0


def holds_kind(question: str, text: str) -> bool:
    """Whether the question asks for a known kind of thing and the text holds one of that kind."""
    return _kind(question, text)[0] > 0


def _company(meaning: NDArray[np.float64], records: Sequence[MemoryRecord]) -> NDArray[np.float64]:
    """Per candidate, the best word score among the others told at the same time: one conversation holds an answer."""
    told = [record.told_at for record in records]
    return np.array([
        max((meaning[other] for other in range(len(told)) if other != at and told[other] == told[at]), default=0.0)
        for at in range(len(told))
    ])  # fmt: skip
