"""Proposes records from what the user says plainly, by word lists alone: standing instructions and first-person facts.

Precision first: what is asked, quoted, pasted, supposed, said of somebody else or meant as a joke is not proposed, and
neither is anything in a language nobody reviewed. A missed fact can be said again; an invented one misleads for good.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources

from retold.contracts.activation import SPAN_MAX_CHARS, ActivationReason
from retold.contracts.extraction import PROPOSED_RECORDS_MAX, Extraction, OwnTurn, ProposedRecord
from retold.contracts.record import RetrievalCategory
from retold.policy.activation.claims import Claims
from retold.policy.activation.instruction import Instruction, read_instruction
from retold.policy.activation.reading import Reading, Sentence, read
from retold.policy.local.record_categories import FACT_CATEGORIES
from retold.policy.local.time_limits import ends_at

EXTRACTOR = "retold.local.extractor"
FACT_MIN_WORDS = 3
FACT_MAX_WORDS = 60

_NOT_A_WISH = frozenset(
    {
        ActivationReason.FLAGGED_UNSAFE,
        ActivationReason.QUOTED,
        ActivationReason.HYPOTHETICAL,
        ActivationReason.SARCASTIC,
        ActivationReason.RETRACTED,
        ActivationReason.NEGATED,
        ActivationReason.QUESTION,
        ActivationReason.THIRD_PARTY,
        ActivationReason.LANGUAGE_NOT_REVIEWED,
    }
)
_NOT_A_FACT = ("quote", "hypothetical", "roleplay", "sarcasm", "takeback", "not_asked", "condition")
_ONE_VALUED = {"location": "home_location", "work": "occupation"}
"""Facts of which a person has one at a time, so that a later one supersedes the earlier."""


@cache
def word_lists_version() -> str:
    """First 12 hex digits of the SHA-256 over all word lists: what the rules read with."""
    digest = hashlib.sha256()
    folder = resources.files("retold.policy.activation").joinpath("languages")
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


class LocalExtractor:
    """Pure and quick: about a millisecond a turn. The same turns give the same proposals, in the order of the turns."""

    @property
    def identity(self) -> str:
        return f"{EXTRACTOR}@{word_lists_version()}"

    def extract(self, turns: Sequence[OwnTurn]) -> Extraction:
        proposals: dict[str, ProposedRecord] = {}
        for turn in turns:
            for proposal in _from_turn(turn):
                proposals[proposal.text.casefold()] = proposal
        return Extraction(
            proposals=tuple(proposals.values())[-PROPOSED_RECORDS_MAX:],
            extractor=EXTRACTOR,
            extractor_version=word_lists_version(),
        )


def _from_turn(turn: OwnTurn) -> Iterator[ProposedRecord]:
    reading = read(turn.text)
    taken: set[int] = set()
    for at, sentence in enumerate(reading.sentences):
        if sentence.language is None or sentence.asks or not reading.is_own(sentence.start, sentence.end):
            continue
        instruction = read_instruction(reading, sentence)
        if _is_wish(instruction):
            start = _start_of_wish(reading, at)
            if start < sentence.start:
                taken.add(at - 1)
            yield from _proposed(turn, sentence, start, _attribute(instruction.claims), RetrievalCategory.PREFERENCES)
            taken.add(at)
    for at, sentence in enumerate(reading.sentences):
        if at not in taken and (fact := _fact(reading, sentence)) is not None:
            yield from _proposed(turn, sentence, sentence.start, _ONE_VALUED.get(fact), FACT_CATEGORIES[fact])


def _is_wish(instruction: Instruction) -> bool:
    """A wish about replies that is the user's own; whether it holds for ever is for the activation rules to say."""
    sentence = instruction.sentence
    if instruction.claims.empty or not instruction.directed or _NOT_A_WISH & set(instruction.doubts):
        return False
    about_replies = sentence.has("reply_noun", "bare", "exempt") or sentence.has("directive")
    return instruction.plain or (
        about_replies and (instruction.standing or sentence.has("wish")) and _is_clear(sentence)
    )


def _is_clear(sentence: Sentence) -> bool:
    return sum(len(clause.unknown) for clause in sentence.clauses) <= 4


def _start_of_wish(reading: Reading, at: int) -> int:
    """The need named just before belongs to the wish: "I'm dyslexic. Please always ..."."""
    sentence = reading.sentences[at]
    before = reading.sentences[at - 1] if at else None
    if before is None or not before.has("access") or before.asks or before.has("third", *_NOT_A_FACT):
        return sentence.start
    fits = sentence.end - before.start <= SPAN_MAX_CHARS and reading.is_own(before.start, sentence.end)
    return before.start if fits else sentence.start


def _fact(reading: Reading, sentence: Sentence) -> str | None:
    """The kind of plain first-person fact a sentence is, or None."""
    if sentence.language is None or sentence.asks or not reading.is_own(sentence.start, sentence.end):
        return None
    if sentence.has(*_NOT_A_FACT) or any(other.has("roleplay", "sarcasm") for other in reading.sentences):
        return None
    if not FACT_MIN_WORDS <= sum(clause.words for clause in sentence.clauses) <= FACT_MAX_WORDS:
        return None
    before = reading.sentences[: reading.sentences.index(sentence)]
    if any(other.has("quote") for other in before):
        return None
    kinds = [one for one in sentence.found if one.list == "fact"]
    opening = min(kinds, key=lambda one: one.start, default=None)
    if opening is None or (opening.start - sentence.start > 25 and opening.key != "preference"):
        return None
    if sentence.has("third") and opening.key != "family":
        return None
    return opening.key


def _proposed(
    turn: OwnTurn, sentence: Sentence, start: int, attribute: str | None, category: RetrievalCategory
) -> Iterator[ProposedRecord]:
    start = _after_politeness(sentence, start)
    span = turn.text[start : sentence.end].strip()
    if not span or len(span) > SPAN_MAX_CHARS:
        return
    for_a_while = sentence.has("temporary")
    until = ends_at(sentence.text, turn.said_at) if for_a_while else None
    yield ProposedRecord(
        text=_canonical(span),
        attribute=attribute if not for_a_while else None,
        category=category,
        valid_until=until,
        temporary=for_a_while and until is None,
        turn_ref=turn.turn_ref,
        span=span,
    )


def _after_politeness(sentence: Sentence, start: int) -> int:
    """Past "Thanks," and "By the way,": a first clause that says nothing."""
    if start != sentence.start:
        return start
    for clause in sentence.clauses[:-1]:
        says_something = clause.unknown or any(one.list not in ("polite", "stop", "conj") for one in clause.found)
        if says_something:
            break
        start = clause.end
    return start


def _canonical(span: str) -> str:
    """The user's words as a sentence: a capital where there are capitals, a full stop where there is no mark."""
    text = " ".join(span.split())
    text = text[:1].upper() + text[1:] if text[:1].islower() and text[:2].strip() else text
    return text if text[-1:] in ".!?…。！।॥۔" else text.rstrip(",;:،，") + "."


def _attribute(claims: Claims) -> str | None:
    """One slug for one thing; None where a statement asks for several, which no single one may supersede."""
    if claims.needs:
        return None
    if claims.wanted_languages and not claims.axes:
        return "answer_language"
    axes = {axis for axis, _ in claims.axes}
    if len(axes) != 1 or claims.languages:
        return None
    axis = axes.pop()
    return {"short": "answer_length", "formal": "answer_formality"}.get(axis, f"answer_{axis}")
