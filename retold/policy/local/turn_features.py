"""What a turn's wording says about whether something stored is needed. Length is left out on purpose.

Length, pronoun and question form alone separate easy turns almost perfectly and fail on every look-alike; so each
feature here is a bounded yes/no or a small count, and the sentence vector beside them carries the meaning.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from retold.policy.local import lexicon as lx
from retold.retrieval.text import names

_CODE = re.compile(r"[{}`;<>=\[\]]|\(\)|=>|::|\bdef \b|\bSELECT\b")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_QUOTED = re.compile(r"[\"“”«»「」]|(?:^|\s)'[^']+'")
_SENTENCE_END = re.compile(r"[.!?。！？؟](?:\s|$)|[。！？]")
_TWO_CAPITALS = re.compile(r"(?<![.!?] )\b[A-ZÀ-Þ][\w’'-]+\s+(?:(?:van|von|de|da|of)\s+)?[A-ZÀ-Þ][\w’'-]+")
_OWNED_NAME = re.compile(r"(?<=\s)[A-ZÀ-Þ]\w+['’]s\b")
_AUXILIARY = r"\b(?:did|do|does|have|has|had|was|were|am|are|is|would|will|should|could|can|might)"
_ASKS_OF_ME = re.compile(_AUXILIARY + r"\s+(?:I|my|we|our)\b", re.IGNORECASE)
_ASKS_OF_SOMEBODY = re.compile(_AUXILIARY + r"\s+(?:both\s+)?([A-ZÀ-Þ]\w+)(?!\w|\s+[A-ZÀ-Þ])(?:['’]s)?")
_MONTH = "(?:january|february|march|april|may|june|july|august|september|october|november|december)"
_FULL_DATE = re.compile(rf"\b\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}\b|\b{_MONTH} \d{{1,4}}\b", re.IGNORECASE)
_THE_NAME = re.compile(r"\b[Tt]he\s+(?:[a-z]+\s+)?[A-ZÀ-Þ]\w+")
_GIVEN = re.compile(r"\b([A-ZÀ-Þ]\w+)(?:['’]s)?(?!\w)(?!['’]?s?\s+(?:(?:van|von|de|da)\s+)?[A-ZÀ-Þ])")

NAMES = (
    "i", "my", "me", "we", "memory_cue", "past", "starts_wh", "starts_yes_no", "how_to", "starts_task",
    "self_contained", "hypothetical", "advice", "kin", "my_kin", "keepsake", "when_said", "definite",
    "generic_you", "small_talk", "number", "numbers_many", "number_and_i", "number_and_name", "year", "quoted",
    "code", "two_capitals", "one_name", "owned_name", "lower_start", "more_sentences", "i_past", "past_name",
    "definite_past", "question_mark", "line_break", "colon", "starts_task_i", "advice_i", "given_name",
    "asks_of_me", "asks_of_given_name", "full_date", "i_capitals", "i_wh_plain", "the_kin", "the_keepsake",
    "wh_past_plain", "date_and_person", "checks", "own_state", "own_state_plain", "may", "may_and_person",
    "attribute", "attribute_of_mine", "attribute_of_name", "attribute_of_the", "attribute_of_known", "known",
    "lone_name", "the_name", "limit_on_me",
)  # fmt: skip
"""One name a feature, in the order of :func:`turn_features`. The weights file repeats them and must agree."""


def turn_features(text: str) -> NDArray[np.float64]:
    """The features named in :data:`NAMES`, each between 0 and 1."""
    said = lx.spaced(text)
    first = lx.FIRST_PERSON.in_(said)
    mine = lx.MY.in_(said)
    me = lx.ME.in_(said)
    ours = lx.WE.in_(said)
    past = lx.PAST.in_(said)
    task = lx.TASK.starts(said)
    advice = lx.ADVICE.in_(said)
    numbers = len(_NUMBER.findall(_YEAR.sub("", _FULL_DATE.sub("", text))))
    double = bool(_TWO_CAPITALS.search(text))
    single = bool(names(text)) and not double
    person = first or mine or me or ours
    nobody = not person and not single and not double
    plain = not numbers and not _QUOTED.search(text) and not _CODE.search(text) and not lx.SELF_CONTAINED.in_(said)
    definite, wh = lx.DEFINITE.in_(said), lx.WH.starts(said)
    given = [name for name in _GIVEN.findall(text) if lx.GIVEN_NAMES.in_(lx.spaced(name))]
    asked_of = _ASKS_OF_SOMEBODY.search(text)
    checks, known, attribute = lx.CHECKS.in_(said), lx.PUBLIC.in_(said), lx.ATTRIBUTE.in_(said)
    own_state, may = lx.OWN_STATE.starts(said), lx.MAY.in_(said)
    # A name nobody knows and no article before it: somebody's boat, project or house.
    lone = single and not given and not known and not _THE_NAME.search(text)
    values = (
        first, mine, me, ours, lx.MEMORY.in_(said), past, wh, lx.YES_NO.starts(said), lx.HOW_TO.in_(said), task,
        lx.SELF_CONTAINED.in_(said), lx.HYPOTHETICAL.in_(said), advice, lx.KIN.in_(said),
        mine and lx.KIN.in_(said), lx.KEEPSAKE.in_(said), lx.WHEN_SAID.in_(said), definite,
        lx.GENERIC_YOU.in_(said), lx.SMALL_TALK.starts(said), numbers > 0, numbers > 1, numbers > 0 and person,
        numbers > 1 and (single or double), bool(_YEAR.search(text)), bool(_QUOTED.search(text)),
        bool(_CODE.search(text)), double, single, bool(_OWNED_NAME.search(text)), text[:1].islower(),
        len(_SENTENCE_END.findall(text.strip())) > 1, person and past, past and single,
        past and definite and nobody, "?" in text or "？" in text or "؟" in text, "\n" in text.strip(), ":" in text,
        task and person, advice and person, bool(given), bool(_ASKS_OF_ME.search(text)),
        asked_of is not None and asked_of.group(1) in given, bool(_FULL_DATE.search(text)), person and double,
        person and wh and plain, definite and nobody and lx.KIN.in_(said),
        definite and nobody and lx.KEEPSAKE.in_(said), wh and past and nobody and plain,
        bool(_FULL_DATE.search(text)) and (person or bool(given)),
        checks, own_state, own_state and plain and not checks and not known, may, may and person and not known,
        attribute, attribute and (mine or first), attribute and lone, attribute and definite and nobody and not known,
        attribute and known, known, lone, bool(_THE_NAME.search(text)),
        lx.LIMIT_ON_ME.in_(said) and lx.QUANTITY.in_(said) and not known,
    )  # fmt: skip
    return np.array(values, dtype=np.float64)


def turn_inputs(text: str, vector: NDArray[np.float32], scale: float) -> NDArray[np.float64]:
    """The heads' input: the sentence vector times `scale` (its numbers are small otherwise), then features."""
    return np.concatenate([vector.astype(np.float64) * scale, turn_features(text)])
