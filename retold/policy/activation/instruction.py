"""Whether a sentence plainly asks for something about every reply to come, and everything that speaks against it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from retold.contracts.activation import ActivationReason
from retold.policy.activation.claims import Claims, claims_of, spoken_clauses, verb_last
from retold.policy.activation.own_words import BLANK
from retold.policy.activation.plainness import INSTRUCTS, OBJECTS, OF_THE_USER, first_person, is_elliptic, is_plain
from retold.policy.activation.reading import Clause, Reading, Sentence
from retold.policy.activation.words import fold, reviewed

BARE_MAX_WORDS = 10
UNIVERSAL_NEAR_CHARS = 40

# Spaced languages in which a question word may stand anywhere; elsewhere it opens a clause.
_QUESTION_ANYWHERE = frozenset({"tr", "ko", "hi", "ur", "bn", "ta", "te", "mr", "ar", "fa", "zh", "ja", "th", "vi"})


@dataclass(frozen=True)
class Instruction:
    """One sentence that asks something of the assistant's replies."""

    sentence: Sentence
    claims: Claims
    standing: bool
    """It says "always" or the like, or "every answer"."""
    directed: bool
    plain: bool
    """Standing, directed, about a known thing, and in words the lists know."""
    doubts: tuple[ActivationReason, ...]
    """What speaks against promoting it, gravest first."""


def read_instruction(reading: Reading, sentence: Sentence) -> Instruction:
    """Read one sentence in its turn. Always answers; what is no instruction is neither directed nor plain."""
    claims = claims_of(_with_context(reading, sentence))
    standing = _is_standing(sentence) or _fragment_before_or_after(reading, sentence)
    directed = sentence.has(*INSTRUCTS) or _says_every_answer(sentence) or is_elliptic(sentence)
    about = sentence.has(*OBJECTS)
    bare = _is_bare(reading, sentence, claims)
    clear = bare or is_plain(sentence)
    plain = about and directed and (standing or bare) and clear
    return Instruction(sentence, claims, standing, directed, plain, tuple(_doubts(reading, sentence, claims)))


def is_bare(reading: Reading, instruction: Instruction) -> bool:
    """It is only "Reply in Hindi.", and promoted as a broad preference rather than as said for ever."""
    return not instruction.standing and _is_bare(reading, instruction.sentence, instruction.claims)


def _with_context(reading: Reading, sentence: Sentence) -> tuple[Sentence, ...]:
    """ "I'm dyslexic. Please always use short sentences.": the need is said in the sentence before."""
    before = _neighbour(reading, sentence, -1)
    if before is not None and before.has("access") and not before.asks and not before.has("third", "hypothetical"):
        return before, sentence
    return (sentence,)


def _neighbour(reading: Reading, sentence: Sentence, step: int) -> Sentence | None:
    at = reading.sentences.index(sentence) + step
    return reading.sentences[at] if 0 <= at < len(reading.sentences) else None


def _is_standing(sentence: Sentence) -> bool:
    return any(clause.has("standing") for clause in spoken_clauses(sentence)) or _says_every_answer(sentence)


def _fragment_before_or_after(reading: Reading, sentence: Sentence) -> bool:
    """ "Short answers please. Always." - the neighbouring sentence is nothing but the standing word."""
    for step in (-1, 1):
        other = _neighbour(reading, sentence, step)
        if other is not None and other.has("standing") and len(other.tokens) <= 4 and not other.asks:
            unknown = sum(len(clause.unknown) for clause in other.clauses)
            if not unknown and not other.has("directive", "wish", "style", "takeback", "not_asked", "quote", "habit"):
                return True
    return False


def _says_every_answer(sentence: Sentence) -> bool:
    """ "Every" close to "answer", in either order."""
    every = [one for one in sentence.found if one.list == "universal"]
    answers = [one for one in sentence.found if one.list == "reply_noun"]
    return any(
        max(one.start, other.start) - min(one.end, other.end) <= UNIVERSAL_NEAR_CHARS
        and _same_clause(sentence, one.start, other.start)
        for one in every
        for other in answers
    )


def _same_clause(sentence: Sentence, one: int, other: int) -> bool:
    return any(clause.start <= one < clause.end and clause.start <= other < clause.end for clause in sentence.clauses)


def _is_bare(reading: Reading, sentence: Sentence, claims: Claims) -> bool:
    """The whole turn is "Reply in Hindi.": a response language is a standing choice by what it is.

    Nothing else may stand in the turn, so that a language asked for one task is not taken for all of them.
    """
    if not claims.wanted_languages or any(sign < 0 for _, sign in claims.languages):
        return False
    if claims.axes or claims.needs or not sentence.has("bare") or not sentence.has("directive"):
        return False
    if sentence.asks or len(sentence.tokens) > BARE_MAX_WORDS or any(clause.unknown for clause in sentence.clauses):
        return False
    if any(char == "\ufffc" for char in reading.own):
        return False
    return all(
        other is sentence
        or (not any(clause.unknown for clause in other.clauses) and not other.asks and other.has("polite")
            and not other.has(*INSTRUCTS, *OBJECTS) and len(other.tokens) <= 4)
        for other in reading.sentences
    )  # fmt: skip


# A mail address, a link or a long number in a standing instruction sends or discloses something.
_ADDRESS = re.compile(r"\S@\S|https?:|www\.|\d{5}|(?:\d[ -]?){8}")

_DOUBTS = (
    (("unsafe",), ActivationReason.FLAGGED_UNSAFE),
    (("quote",), ActivationReason.QUOTED),
    (("roleplay", "hypothetical"), ActivationReason.HYPOTHETICAL),
    (("sarcasm",), ActivationReason.SARCASTIC),
    (("takeback",), ActivationReason.RETRACTED),
    (("third",), ActivationReason.THIRD_PARTY),
    (("temporary",), ActivationReason.TEMPORARY_PREFERENCE),
    (("condition", "task"), ActivationReason.SCOPED_PREFERENCE),
)


def _doubts(reading: Reading, sentence: Sentence, claims: Claims) -> Iterable[ActivationReason]:
    if sentence.language is None:
        yield ActivationReason.LANGUAGE_NOT_REVIEWED
        return
    leaves_out_warnings = ("warnings", -1) in claims.axes or (("warnings", 1) in claims.axes and not claims.needs)
    if leaves_out_warnings or _ADDRESS.search(sentence.text):
        # Warnings are only plainly wanted with the need they are for; "lass die Risiken weg" has many forms.
        yield ActivationReason.FLAGGED_UNSAFE
    if _asks(sentence):
        yield ActivationReason.QUESTION
    for lists, reason in _DOUBTS:
        if sentence.has(*lists):
            yield reason
    if any(clause.has("habit") and clause.has("standing", "universal", "habit") and _asks_here(clause)
           for clause in spoken_clauses(sentence)):  # fmt: skip
        yield ActivationReason.THIRD_PARTY
    if len({code.partition("-")[0] for code in _asked_languages(sentence)}) > 1:
        yield ActivationReason.AMBIGUOUS_APPLICABILITY
    if _is_announced(sentence) or _touches_brought_along(reading, sentence):
        yield ActivationReason.QUOTED
    if _denies_always(sentence):
        yield ActivationReason.NEGATED
    if sentence.has("not_asked") and not _asked_in_another_clause(sentence):
        yield ActivationReason.NEGATED
    if any((language, -1) in claims.languages for language, _ in claims.languages) and not claims.wanted_languages:
        # "Never answer in French" says what not to do; which language is meant instead, somebody must ask.
        yield ActivationReason.NEGATED
    if _is_scoped(sentence):
        yield ActivationReason.SCOPED_PREFERENCE
    yield from _doubts_around(reading, sentence)


def _doubts_around(reading: Reading, sentence: Sentence) -> Iterable[ActivationReason]:
    at = reading.sentences.index(sentence)
    for before in reading.sentences[:at]:
        if before.has("quote"):
            yield ActivationReason.QUOTED
        if before.has("roleplay", "hypothetical"):
            yield ActivationReason.HYPOTHETICAL
        if before.has("temporary") and len(before.tokens) <= 6:
            yield ActivationReason.TEMPORARY_PREFERENCE
    for after in reading.sentences[at + 1 :]:
        if after.has("takeback"):
            yield ActivationReason.RETRACTED
        if after.has("temporary", "task") and len(after.tokens) <= 6:
            yield ActivationReason.TEMPORARY_PREFERENCE
    if any(other.has("sarcasm", "roleplay") for other in reading.sentences):
        yield ActivationReason.SARCASTIC


def _is_announced(sentence: Sentence) -> bool:
    """ "It is written on my mug: always be formal": what stands before a colon must be about the wish or the user."""
    for clause in sentence.clauses:
        if clause.has(*INSTRUCTS, "standing", "universal"):
            return False
        ends_in_colon = sentence.text[: clause.end - sentence.start].rstrip().endswith((":", "："))
        if ends_in_colon and not clause.has("polite", "access", "fact", "reason"):
            return True
    return False


def _touches_brought_along(reading: Reading, sentence: Sentence) -> bool:
    """Part of the sentence was blanked: what is left may mean something else than what was said."""
    before = reading.own[: sentence.start].rstrip(" \t")[-1:]
    after = reading.own[sentence.end :].lstrip(" \t")[:1]
    return BLANK in (before, after) or BLANK in sentence.text


def _asked_languages(sentence: Sentence) -> set[str]:
    """Languages named in the clauses that ask: two of them may be "in English to German messages"."""
    asking = [clause for clause in spoken_clauses(sentence) if clause.has("standing", "directive", "universal")]
    return {one.key for clause in asking if not clause.has("not") for one in clause.found if one.list == "languages"}


def _denies_always(sentence: Sentence) -> bool:
    """Whether it says "not ... always", which asks for nothing standing; "don't ... from now on" does.

    The first standing word of a language's list is its "always".
    """
    if sentence.language is None or verb_last(sentence):
        return False
    always = reviewed()[sentence.language].entries["standing", ""][0]
    for clause in spoken_clauses(sentence):
        asked = {one.start for one in clause.found if one.list == "directive"}  # "avoid" denies nothing
        denials = [one.end for one in clause.found if one.list == "not" and one.start not in asked]
        for one in clause.found:
            if one.list == "standing" and denials and min(denials) <= one.start:
                said = sentence.text[one.start - sentence.start : one.end - sentence.start]
                if fold(said) == fold(always):
                    return True
    return False


def _asked_in_another_clause(sentence: Sentence) -> bool:
    """ "No need to be stiff, talk to me casually, always": the standing wish is not the one that is waved aside."""
    waved_aside = [clause for clause in sentence.clauses if clause.has("not_asked")]
    others = [clause for clause in sentence.clauses if not clause.has("not_asked")]
    return (
        all(clause.has(*OBJECTS) and not clause.has("standing", "universal") for clause in waved_aside)
        and any(clause.has("standing", "universal") for clause in others)
        and any(clause.has("directive", "wish") and clause.has(*OBJECTS) for clause in others)
    )


def _asks_here(clause: Clause) -> bool:
    """What the user says they do is a habit only where the standing word is about it: "I use a screen reader, so"."""
    return clause.has("standing", "universal", *INSTRUCTS) or not clause.has("access")


def _asks(sentence: Sentence) -> bool:
    if sentence.asks:
        return True
    if sentence.language in _QUESTION_ANYWHERE:
        return sentence.has("question")
    return any(
        one.list == "question" and one.start <= _first_word(sentence, clause)
        for clause in sentence.clauses
        for one in clause.found
    )


def _first_word(sentence: Sentence, clause: Clause) -> int:
    """Where the clause begins to say something, after "please" and "oh"."""
    polite = [one.end for one in clause.found if one.list in ("polite", "conj")]
    for token in sentence.tokens:
        if token.start >= clause.start and not any(token.start < end and token.end <= end for end in polite):
            return token.start
    return clause.start


def _is_scoped(sentence: Sentence) -> bool:
    """It names a field it holds in: work, recipes, Fridays; or "in/for/about" something no list knows."""
    prep_known = sentence.language is not None and any(reviewed()[sentence.language].entries.get(("prep", ""), ()))
    asking = {clause for clause in sentence.clauses if clause.has(*INSTRUCTS, "standing", "universal")}
    for clause in sentence.clauses:
        fronted = any(one.list == "prep" and one.start <= _first_word(sentence, clause) for one in clause.found)
        said_of_self = clause.has(*OF_THE_USER) or first_person(sentence, clause)
        background = clause not in asking and prep_known and not fronted and said_of_self
        if background:
            continue
        if clause.has("topic") and not clause.has("reason"):
            return True
        if _names_unknown_field(sentence, clause):
            return True
    return False


_GIVES_SENSE = ("reply_noun", "style", "languages", "access", "standing", "universal", "directive", "me", "exempt",
                "concessive", "reason", "polite", "wish")  # fmt: skip


def _names_unknown_field(sentence: Sentence, clause: Clause) -> bool:
    """After "in", "for" or "about" the first word that means something is one that no list knows."""
    for one in clause.found:
        if one.list != "prep":
            continue
        for token in (token for token in sentence.tokens if one.end <= token.start < clause.end):
            if token.word in clause.unknown:
                return True
            if any(other.list in _GIVES_SENSE and other.start <= token.start < other.end for other in clause.found):
                break
    return False
