"""Finds where the principal said what a record holds, in the stored turns, without trusting who wrote the record.

Word for word first, then the same words written differently, then a sentence that means the same. However a span was
found, it only counts if the user's sentence around it agrees with the record: same sign, same language, same object,
no narrower scope. Near is not the same: "never answer in French" is very near to "always answer in French".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from retold.contracts.activation import SPAN_MAX_CHARS, EvidenceMethod, VerifiedEvidence
from retold.contracts.extraction import OwnTurn
from retold.contracts.record import MemoryRecord
from retold.policy.activation.claims import Claims, claims_of
from retold.policy.activation.instruction import read_instruction
from retold.policy.activation.reading import Reading, Sentence, read, read_once, read_record
from retold.policy.activation.words import UNSPACED_SCRIPTS, fold, script_of, tokens_of
from retold.policy.ports import Embedder

TURNS_SEARCHED = 200
"""The latest own turns that are searched; a statement older than that needs to be said again."""
MIN_SIMILARITY = 0.62
"""Cosine from which a sentence may stand for a fact that is worded otherwise. It only locates; see `_agrees`."""


async def find_evidence(
    record: MemoryRecord, turns: Sequence[OwnTurn], embedder: Embedder | None
) -> VerifiedEvidence | None:
    """The span of the principal's own turns that says what the record says; the latest one, if several do.

    Args:
        turns: the principal's own turns and nothing else, in the order they were said.
        embedder: locates a paraphrase where words alone do not; None: words alone.

    Returns:
        None: nobody said it, or only quoted it, asked it, or said it under a condition the record leaves out.
    """
    with read_once():
        recent = turns[-TURNS_SEARCHED:]
        wanted = _Wanted(record)
        for turn in reversed(recent):
            reading = read(turn.text)
            if (spot := _same_words(turn.text, reading.own, record.text)) is not None and wanted.agrees(reading, spot):
                verbatim = record.text.strip().rstrip(".!。") in turn.text
                method = EvidenceMethod.EXACT if verbatim else EvidenceMethod.NORMALISED
                return _evidence(turn, spot, method)
        return await _similar(wanted, recent, embedder)


def span_of_same_words(text: str, said: str) -> str | None:
    """The words of a turn that equal `said` but for case, width, marks and punctuation; None: they are not there."""
    if said in text:
        return said
    spot = _same_words(text, text, said)
    return None if spot is None else text[spot.start : spot.end]


class _Spot(NamedTuple):
    start: int
    end: int


class _Candidate(NamedTuple):
    turn: OwnTurn
    spot: _Spot
    sentence: Sentence


class _Wanted:
    """What a record says, as the user's sentence must say it too."""

    def __init__(self, record: MemoryRecord) -> None:
        self.text = record.text
        self.sentences = read_record(record.text).sentences
        self.claims: Claims = claims_of(self.sentences)
        self.for_a_while = record.valid_until is not None or any(
            sentence.has("temporary", "condition", "task") for sentence in self.sentences
        )
        self.denies = any(sentence.has("not") for sentence in self.sentences)
        self.unknown = {word for sentence in self.sentences for clause in sentence.clauses for word in clause.unknown}
        self.details = _details(record.text, self.unknown)

    def agrees(self, reading: Reading, spot: _Spot) -> bool:
        """Whether the user's sentences at the spot are a plain claim with the record's sign, object and scope."""
        around = reading.overlapping(*spot)
        if not around or not reading.is_own(*spot) or any(sentence.asks for sentence in around):
            return False
        narrower = any(sentence.has("temporary", "condition", "task") for sentence in around)
        if narrower and not self.for_a_while:
            return False
        said = claims_of(around)
        if self.claims.empty:
            return self.denies == any(sentence.has("not") for sentence in around)
        return said.supports(self.claims)

    def same_details(self, sentence: Sentence) -> bool:
        """Numbers and names of the record are the sentence's own."""
        said = {token.word for token in sentence.tokens}
        return self.details <= said

    def adds_nothing(self, sentence: Sentence) -> bool:
        """Every word of the record that no list knows was said, in some form."""
        said = [token.word for token in sentence.tokens]
        return all(any(word[:4] == other[:4] for other in said) for word in self.unknown)


async def _similar(wanted: _Wanted, turns: Sequence[OwnTurn], embedder: Embedder | None) -> VerifiedEvidence | None:
    candidates = [
        candidate
        for candidate in _sentences(turns)
        if wanted.same_details(candidate.sentence) and wanted.agrees(read(candidate.turn.text), candidate.spot)
    ]
    if not candidates:
        return None
    if not wanted.claims.empty:
        # Of an instruction object, sign and scope are known, and words that no list knows must have been said.
        # That is more than nearness could prove, so no embedder is asked.
        plain = [each for each in candidates if wanted.adds_nothing(each.sentence)]
        chosen = next((each for each in plain if _is_plain(each)), plain[0] if plain else None)
        return None if chosen is None else _evidence(chosen.turn, chosen.spot, EvidenceMethod.SIMILAR)
    if embedder is None:
        return None
    vectors = await embedder.embed_passages([wanted.text, *(each.sentence.text for each in candidates)])
    scores = [float(each) for each in vectors[1:] @ vectors[0]]
    best = max(range(len(scores)), key=lambda at: scores[at])
    if scores[best] < MIN_SIMILARITY:
        return None
    nearest = candidates[best]
    return _evidence(nearest.turn, nearest.spot, EvidenceMethod.SIMILAR, min(1.0, max(0.0, scores[best])))


def _is_plain(candidate: _Candidate) -> bool:
    return read_instruction(read(candidate.turn.text), candidate.sentence).plain


def _sentences(turns: Sequence[OwnTurn]) -> Iterator[_Candidate]:
    """The user's own sentences, latest turn first; one that names a need takes the sentence after it along."""
    for turn in reversed(turns):
        reading = read(turn.text)
        for at, sentence in enumerate(reading.sentences):
            start = sentence.start
            before = reading.sentences[at - 1] if at else None
            if (
                before is not None
                and before.has("access")
                and sentence.has("standing", "universal")
                and not before.asks
            ):
                start = before.start
            spot = _Spot(start, sentence.end)
            if spot.end - spot.start <= SPAN_MAX_CHARS and reading.is_own(*spot):
                yield _Candidate(turn, spot, sentence)


def _same_words(text: str, own: str, said: str) -> _Spot | None:
    """Where the same words stand in a row, whatever their case, width, marks and punctuation; the last such place."""
    sought, _ = _plain(said)
    held, places = _plain(own)
    if not sought.strip():
        return None
    at = held.rfind(sought)
    while at >= 0:
        edge = int(sought.startswith(" "))
        start, last = places[at + edge], places[at + len(sought) - 1 - edge]
        end = last + 1
        while end < len(text) and not text[end].isspace() and fold(text[end]) == "":
            end += 1
        if end - start <= SPAN_MAX_CHARS:
            return _Spot(start, end)
        at = held.rfind(sought, 0, at)
    return None


def _plain(text: str) -> tuple[str, list[int]]:
    """The folded words between single spaces, one at each end unless the script has none; a place a character."""
    unspaced = script_of(text[:2_000]) in UNSPACED_SCRIPTS
    chars: list[str] = [] if unspaced else [" "]
    places: list[int] = [] if unspaced else [0]
    for token in tokens_of(text):
        for at in range(token.start, token.end):
            for char in fold(text[at]):
                chars.append(char)
                places.append(at)
        if not unspaced:
            chars.append(" ")
            places.append(token.end - 1)
    return "".join(chars), places


_NAME = re.compile(r"(?<=[\w,;] )[A-ZÀ-ÞА-ЯΑ-Ω][\w’'-]+|\d+(?:[.,:]\d+)*")


def _details(text: str, unknown: set[str]) -> set[str]:
    """Numbers and names: they must be the same, however near the rest is. A name no list knows has a capital."""
    words = {token.word for match in _NAME.finditer(text) for token in tokens_of(match.group())}
    return {word for word in words if word in unknown or word[0].isdigit()}


def _evidence(turn: OwnTurn, spot: _Spot, method: EvidenceMethod, similarity: float = 1.0) -> VerifiedEvidence:
    return VerifiedEvidence(
        session_id=turn.session_id,
        turn_id=turn.turn_id,
        turn_ref=turn.turn_ref,
        span=turn.text[spot.start : spot.end],
        start=spot.start,
        end=spot.end,
        said_at=turn.said_at,
        method=method,
        similarity=similarity,
    )
