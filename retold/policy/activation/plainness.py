"""Whether a sentence plainly asks for something, and nothing else: every word of the wish explained by the lists."""

from __future__ import annotations

from retold.policy.activation.claims import spoken_clauses
from retold.policy.activation.reading import Clause, Sentence
from retold.policy.activation.words import reviewed

INSTRUCTS = ("directive", "wish", "exempt")
OBJECTS = ("style", "languages", "access")
UNKNOWN_MAX = {"en": 0}
UNKNOWN_MAX_ELSEWHERE = 1
UNKNOWN_SHARE_UNSPACED = 0.15
"""How many words no list knows an instruction may hold and still be plain. Such a word may be the trigger, the third
person or the harm that the lists lack: English, with the longest lists, may hold none."""
ELLIPTIC_MAX_WORDS = 5


def is_plain(sentence: Sentence) -> bool:
    """No word of it is left that could be a trigger, a third person or a further wish."""
    return not (
        _too_much_unknown(sentence)
        or _unknown_beside(sentence)
        or _comments_on_the_wish(sentence)
        or _asks_something_else(sentence)
        or _describes_something_else(sentence)
    )


def _too_much_unknown(sentence: Sentence) -> bool:
    """Over the clauses that carry the instruction. A name after "call me" may be any word."""
    asking = [
        clause
        for clause in spoken_clauses(sentence)
        if clause.has(*INSTRUCTS, "standing", "universal", "style") and not clause.has("fact")
    ]
    named = any(one.list == "style" and one.key == "address" for one in sentence.found)
    unknown = sum(len(clause.unknown) for clause in asking) - (3 if named else 0)
    words = sum(clause.words for clause in asking)
    if sentence.language is not None and reviewed()[sentence.language].unspaced:
        return unknown > words * UNKNOWN_SHARE_UNSPACED
    return unknown > UNKNOWN_MAX.get(sentence.language or "", UNKNOWN_MAX_ELSEWHERE)


def is_elliptic(sentence: Sentence) -> bool:
    """ "No tables, ever": a wish without a verb, and without a word beside it that would make it something else."""
    named = [clause for clause in sentence.clauses if clause.has("style")]
    covers = ("not", "style", "standing", "universal", "reply_noun", "polite", "conj", "stop", "prep")
    return (
        sentence.has("standing")
        and bool(named)
        and not any(clause.unknown or first_person(sentence, clause) for clause in named)
        and all(one.list in covers for clause in named for one in clause.found)
        and sum(clause.words for clause in named) <= ELLIPTIC_MAX_WORDS
    )


OF_THE_USER = ("me", "access", "fact", "wish", "reason")


def _unknown_beside(sentence: Sentence) -> bool:
    """A clause beside the instruction that no list can explain: "Rule 3 of the manual:", "As far as taxes go,".

    What the user says there of themselves ("I'm on the train,") may be about anything.
    """
    allowed = UNKNOWN_MAX.get(sentence.language or "", UNKNOWN_MAX_ELSEWHERE)
    return any(
        len(clause.unknown) > allowed
        and not clause.has(*INSTRUCTS, "standing", "universal", *OF_THE_USER)
        and not first_person(sentence, clause)
        and not (clause.words <= 2 and "address" in sentence.keys("style"))  # "call me by my first name, Lena"
        for clause in spoken_clauses(sentence)
    )


_EXPLAINS = (*OBJECTS, "access", "reason", "wish", "exempt", "concessive", "reply_noun", "standing", "universal")


def _comments_on_the_wish(sentence: Sentence) -> bool:
    """ "Write in capitals, I do love being shouted at": what is said of it afterwards in words no list knows.

    It may be the irony that takes the wish back. A reason, a need or a further wish may stand there.
    """
    asked = False
    for clause in spoken_clauses(sentence):
        if asked and clause.unknown and clause.has("me", "fact", "not") and not clause.has(*_EXPLAINS, *INSTRUCTS):
            return True
        asked = asked or (clause.has(*INSTRUCTS) and clause.has(*OBJECTS))
    return False


def first_person(sentence: Sentence, clause: Clause) -> bool:
    """English says it in words the lists need for other things."""
    return sentence.language == "en" and any(
        token.word in ("i", "my", "me", "im") for token in sentence.tokens if clause.start <= token.start < clause.end
    )


_SAYS_NO_WISH = ("standing", "polite", "stop", "conj", "me", "not", "prep", "reply_noun", "universal", "wish")


def _asks_something_else(sentence: Sentence) -> bool:
    """A further wish beside the one that is understood: "always answer in English and do as I say"."""
    for clause in spoken_clauses(sentence):
        if clause.has(*OBJECTS, "exempt", "reason", "fact"):
            continue
        wishes = [one for one in clause.found if one.list == "directive"]
        plain = {(one.start, one.end) for one in clause.found if one.list in _SAYS_NO_WISH}
        if any((one.start, one.end) not in plain for one in wishes) or (clause.has("standing") and clause.unknown):
            return True
        if sentence.language == "en" and clause.has("standing") and _says_more_than_for_ever(sentence, clause):
            return True
        if clause.has("not") and clause.has("standing") and len(clause.found) and clause.has("reply_noun"):
            return True
    return False


_NOTHING_MORE = frozenset({"so", "and", "but", "please", "just", "also", "then", "or", "therefore", "thanks"})


def _says_more_than_for_ever(sentence: Sentence, clause: Clause) -> bool:
    """ "Always back me up" is made of words the lists know; no object among them says what it asks for."""
    covered = [one for one in clause.found if one.list in ("standing", "polite", "universal", "reply_noun", "prep")]
    return any(
        token.word not in _NOTHING_MORE and not any(one.start <= token.start < one.end for one in covered)
        for token in sentence.tokens
        if clause.start <= token.start < clause.end
    )


_QUALITIES = frozenset({"short", "long", "formal", "casual", "plain", "direct"})
_NOUN_FIRST = frozenset({"es", "fr", "it", "pt", "ro", "ar", "fa", "he", "id", "ms", "vi", "sw"})


def _describes_something_else(sentence: Sentence) -> bool:
    """ "Short hikes", "direct flights": the quality is asked of a thing no list knows, so not of an answer."""
    for clause in sentence.clauses:
        words = [token for token in sentence.tokens if clause.start <= token.start < clause.end]
        for one in clause.found:
            if one.list != "style" or one.key not in _QUALITIES:
                continue
            if sentence.language in _NOUN_FIRST:
                beside = [token for token in words if token.end <= one.start][-1:]
            else:
                beside = [token for token in words if token.start >= one.end][:1]
            if beside and beside[0].word in clause.unknown:
                return True
    return False
