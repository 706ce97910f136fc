"""Labels for records without a model: the retrieval taxonomy, and what a response instruction is about."""

from __future__ import annotations

import re
from collections.abc import Sequence

from retold.contracts.activation import (
    ActivationCategory,
    ActivationReason,
    Applicability,
    CategoryDecision,
    StandingText,
)
from retold.contracts.record import MemoryRecord, RetrievalCategory
from retold.policy.activation.claims import Claims, claims_of
from retold.policy.activation.instruction import Instruction, read_instruction
from retold.policy.activation.reading import Sentence, read

POLICY = "retold.local.categories"

FACT_CATEGORIES = {
    "location": RetrievalCategory.LOCATIONS,
    "work": RetrievalCategory.PERSONAL,
    "preference": RetrievalCategory.PREFERENCES,
    "health": RetrievalCategory.PERSONAL,
    "family": RetrievalCategory.PEOPLE,
    "identity": RetrievalCategory.PERSONAL,
    "schedule": RetrievalCategory.SCHEDULES,
    "constraint": RetrievalCategory.CONSTRAINTS,
    "decision": RetrievalCategory.DECISIONS,
    "infrastructure": RetrievalCategory.INFRASTRUCTURE,
}

# English cues in the order they are tried: the narrower first. The word lists' first-person facts come after them.
_CUES: tuple[tuple[RetrievalCategory, str], ...] = (
    (RetrievalCategory.TIME_ZONE, r"time ?zones?|utc|gmt[+-]?|cet|cest|pst|est|ist"),
    (RetrievalCategory.DECISIONS, r"decided|decision|agreed|chose|chosen|settled on|going with|opted for|approved"),
    (
        RetrievalCategory.LIMITS,
        r"at most|maximum|max|no more than|limit(?:ed)?|budget|up to|minimum|at least|cap(?:ped)?|quota",
    ),
    (RetrievalCategory.CONSTRAINTS, r"must(?: not)?|cannot|can't|not allowed|allerg\w+|has to|have to|required|"
     r"forbidden|intoleran\w+|deadline"),
    (RetrievalCategory.PREFERENCES, r"prefers?|likes?|loves?|hates?|dislikes?|enjoys?|favou?rites?|avoids?|fan of|"
     r"can't stand|rather|passionate about|wants? (?:answers|replies)"),
    (RetrievalCategory.SCHEDULES, r"every (?:mon|tues|wednes|thurs|fri|satur|sun)day|weekly|daily|at \d{1,2}(?::\d\d)?|"
     r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?|appointment|meeting|schedule[ds]?|shift|o'clock|a\.m\.|p\.m\."),
    (RetrievalCategory.INFRASTRUCTURE, r"server|database|cluster|laptop|computer|phone|router|printer|api|deploy\w*|"
     r"kubernetes|postgres\w*|linux|windows|repo(?:sitory)?|version|port|bike|car|thermostat"),
    (RetrievalCategory.LOCATIONS, r"lives?|living in|moved to|based in|address|office is|located|born in|from|city|"
     r"apartment|house|hometown"),
    (RetrievalCategory.PEOPLE, r"wife|husband|partner|son|daughter|mother|father|mom|mum|dad|sister|brother|friend|"
     r"colleague|boss|manager|teacher|doctor|neighbou?r|cousin|aunt|uncle|kids?|children|family|girlfriend|boyfriend"),
    (RetrievalCategory.PERSONAL, r"name is|born|birthday|speaks?|works? (?:as|at|for)|studies|degree|job|age|married|"
     r"diabetic|vegetarian|vegan|height|nationality|hobby|plays|owns?|adopted|pet|dog|cat"),
)  # fmt: skip
_PATTERNS = tuple((label, re.compile(rf"\b(?:{cues})\b", re.IGNORECASE)) for label, cues in _CUES)
_READ_CHARS = 600


class LocalRetrievalCategories:
    """One content-free label a record, from cues in its text; `other` when there is none."""

    @property
    def identity(self) -> str:
        return f"{POLICY}@1"

    def categorise(self, records: Sequence[MemoryRecord]) -> tuple[RetrievalCategory, ...]:
        return tuple(_label(record.text[:_READ_CHARS]) for record in records)


def _label(text: str) -> RetrievalCategory:
    sentences = read(text).sentences
    if any(
        sentence.has("style", "access") and sentence.has("directive", "reply_noun", "standing")
        for sentence in sentences
    ):
        return RetrievalCategory.PREFERENCES
    if any(sentence.has("languages") and sentence.has("directive", "reply_noun", "standing") for sentence in sentences):
        return RetrievalCategory.PREFERENCES
    for label, pattern in _PATTERNS:
        if pattern.search(text):
            return label
    facts = [key for sentence in sentences for key in sentence.keys("fact")]
    return FACT_CATEGORIES[facts[0]] if facts else RetrievalCategory.OTHER


class LocalCategoryPolicy:
    """Says what a standing instruction is about and how far it reaches, from the user's words and the record's."""

    def propose(self, standing: StandingText) -> CategoryDecision:
        reading = read(standing.session_turn)
        at = standing.session_turn.find(standing.span)
        said = reading.overlapping(at, at + len(standing.span)) if at >= 0 else read(standing.span).sentences
        home = reading if at >= 0 else read(standing.span)
        instructions = [read_instruction(home, sentence) for sentence in said]
        claims = claims_of(said)
        category = _category(claims, said)
        return CategoryDecision(
            retrieval_category=_label(standing.text[:_READ_CHARS]),
            activation_category=category,
            applicability=_applicability(instructions),
            confidence=_confidence(instructions, category),
            unsafe=any(ActivationReason.FLAGGED_UNSAFE in each.doubts for each in instructions),
            rationale=", ".join(sorted({doubt.value for each in instructions for doubt in each.doubts}))[:500],
            policy=POLICY,
            policy_version="1",
        )


def _category(claims: Claims, said: Sequence[Sentence]) -> ActivationCategory:
    about_replies = any(sentence.has("standing", "directive", "reply_noun", "bare", "exempt") for sentence in said)
    if claims.empty or not about_replies:
        return ActivationCategory.OTHER
    if claims.needs:
        return ActivationCategory.ACCESSIBILITY
    return ActivationCategory.RESPONSE_LANGUAGE if claims.languages else ActivationCategory.ANSWER_STYLE


def _applicability(instructions: Sequence[Instruction]) -> Applicability:
    doubts = {doubt for each in instructions for doubt in each.doubts}
    if ActivationReason.TEMPORARY_PREFERENCE in doubts:
        return Applicability.TEMPORARY
    if ActivationReason.SCOPED_PREFERENCE in doubts:
        return Applicability.SCOPED
    plain = any(each.plain for each in instructions)
    return Applicability.BROAD if plain and not doubts else Applicability.AMBIGUOUS


def _confidence(instructions: Sequence[Instruction], category: ActivationCategory) -> float:
    """Not a probability: .9 when the rules read all of it, .75 when it is bare or doubtful, .5 when it is neither."""
    if category is ActivationCategory.OTHER:
        return 0.75
    plain = [each for each in instructions if each.plain]
    if not plain:
        return 0.5
    return 0.9 if any(each.standing for each in plain) else 0.75
