"""What candidates do to each other and to the draft: rules that look at the whole set, after scoring.

In this order: hazards, records in doubt, older values of what a newer record says, restatements, what is already
known, then the scores; at last the records that are only useful together.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retold.contracts.record import MemoryRecord, RecordType
from retold.contracts.stages import Verdict
from retold.policy.local import known_answers
from retold.policy.local.candidate_features import PRINCIPAL, Read
from retold.retrieval.text import content_words, fold, names, negations, numbers, words

RESTATEMENT_COSINE = 0.92
NAMED_RESTATEMENT_COSINE = 0.82
"""Lower where both texts carry the same names and numbers: those are the fact, the rest is wording."""
KNOWN_SHARE = 0.85
"""Share of a record's words beyond the question that a known text must hold to make the record redundant."""

_NO_LONGER = re.compile(
    r"\b(?:no longer|not any ?more|any ?more|used to|former|formerly|previously|stopped|quit|gave up|cancelled|"
    r"canceled|nicht mehr|früher|ne \w+ plus|ya no|antes)\b|不再|以前|अब नहीं",
    re.IGNORECASE,
)
_STATE = re.compile(
    r"\b(?:is|are|lives?|works?|uses?|prefers?|likes?|drinks?|drives?|takes?|owns?|has|have|favou?rite|ist|wohnt|est|habite|es|vive)\b",
    re.IGNORECASE,
)
_DONT_KNOW = re.compile(
    r"\b(?:don't|do not|doesn't|cannot|can't|couldn't|not)\b[^.\n]{0,25}"
    r"\b(?:know|have|access|recall|remember|sure|information|see|find|tell)\b"
    r"|\b(?:weiß|kenne)\b[^.\n]{0,15}\bnicht\b|\bje ne (?:sais|connais)\b|\bno (?:sé|tengo)\b|不知道|नहीं पता",
    re.IGNORECASE,
)


def judge_together(
    *,
    turn: str,
    candidates: Sequence[MemoryRecord],
    read: Sequence[Read],
    scores_by_part: NDArray[np.float64],
    hazardous: Sequence[bool],
    known: Sequence[str],
    answered: Sequence[bool],
    max_admitted: int,
) -> list[Verdict]:
    """One verdict a candidate, in their order.

    Args:
        scores_by_part: a row per question of the turn, a column per candidate; above 0 speaks for admission.
        known: what draft, public context and profile say already.
        answered: per question of the turn, whether what the host shows the model answers it; then records are
            redundant to that question, whatever they say.
    """
    scores_by_part = scores_by_part.copy()
    verdicts: list[Verdict | None] = [Verdict.POTENTIALLY_HARMFUL if bad else None for bad in hazardous]
    for at, record in enumerate(candidates):
        if verdicts[at] is None and (record.conflicting or record.superseded_by):
            verdicts[at] = Verdict.STALE_OR_CONFLICTING
    cosines = np.array([each.vector for each in read]) @ np.array([each.vector for each in read]).T
    for older, newer in _replaced(candidates, cosines, verdicts):
        verdicts[older] = Verdict.STALE_OR_CONFLICTING
        # Whatever the older value answered, the newer one answers now, however it is worded.
        scores_by_part[:, newer] = scores_by_part[:, [older, newer]].max(axis=1)
    scores = scores_by_part.max(axis=0)
    for repeat in _restated(candidates, cosines, scores, verdicts):
        verdicts[repeat] = Verdict.REDUNDANT
    asked = set(content_words(turn))
    passages = _passages(known)
    for at, record in enumerate(candidates):
        if verdicts[at] is None and any(_says(passage, record, asked) for passage in passages):
            verdicts[at] = Verdict.REDUNDANT
    open_questions = scores_by_part[[not done for done in answered]]
    unanswered = open_questions.max(axis=0) if len(open_questions) else np.full(len(candidates), -np.inf)
    for at in range(len(candidates)):
        if verdicts[at] is None and scores[at] > 0 >= unanswered[at]:
            verdicts[at] = Verdict.REDUNDANT
    open_ones = [at for at in range(len(candidates)) if verdicts[at] is None]
    chosen = sorted((at for at in open_ones if scores[at] > 0), key=lambda at: (-scores[at], at))[:max_admitted]
    for at in open_ones:
        verdicts[at] = Verdict.HELPFUL if at in chosen else Verdict.INSUFFICIENT
    final = [verdict if verdict is not None else Verdict.INSUFFICIENT for verdict in verdicts]
    for at in _joint(candidates, chosen, final, scores_by_part, max_admitted):
        final[at] = Verdict.JOINTLY_HELPFUL
    return final


def _replaced(
    candidates: Sequence[MemoryRecord], cosines: NDArray[np.float64], verdicts: Sequence[Verdict | None]
) -> list[tuple[int, int]]:
    """(older, newer) where the later record about the same subject gives another value of the same thing."""
    by_age = sorted(
        (at for at in range(len(candidates)) if verdicts[at] is None), key=lambda at: candidates[at].told_at
    )
    return [
        (older, newer)
        for place, older in enumerate(by_age)
        for newer in by_age[place + 1 :]
        if _replaces(candidates[older], candidates[newer], float(cosines[older, newer]))
    ]


def _replaces(old: MemoryRecord, new: MemoryRecord, cosine: float) -> bool:
    if fold(old.subject) != fold(new.subject) or old.told_at >= new.told_at or _same_fact(old, new, cosine):
        return False
    return _same_attribute(old, new) or _ends(old, new, cosine) or _other_value(old.text, new.text)


def _same_attribute(old: MemoryRecord, new: MemoryRecord) -> bool:
    """Two values of one attribute. Events are not values: the second visit does not undo the first."""
    return (
        old.attribute is not None
        and new.attribute is not None
        and fold(old.attribute) == fold(new.attribute)
        and RecordType.EPISODIC not in (old.type, new.type)
    )


def _ends(old: MemoryRecord, new: MemoryRecord, cosine: float) -> bool:
    """The later text says that what the earlier one states is over."""
    shared = set(content_words(old.text)) & set(content_words(new.text))
    return cosine >= 0.7 and len(shared) >= 2 and bool(_NO_LONGER.search(new.text)) and not _NO_LONGER.search(old.text)


def _other_value(old: str, new: str) -> bool:
    """The same sentence about a state with one stretch of it changed: "favourite drink is cola" and "... is coffee"."""
    before, after = [each for each in words(old) if each != "now"], [each for each in words(new) if each != "now"]
    changes = [
        step
        for step in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        if step[0] != "equal"
    ]
    if len(changes) != 1 or changes[0][0] != "replace" or not _STATE.search(old):
        return False
    _, start, end, new_start, new_end = changes[0]
    same = len(before) - (end - start)
    return max(end - start, new_end - new_start) <= 3 and same >= 3 and same >= 0.5 * max(len(before), len(after))


def _same_fact(one: MemoryRecord, other: MemoryRecord, cosine: float) -> bool:
    """Whether two texts say the same. Differing numbers, names or negations make another fact, however near."""
    if sorted(numbers(one.text)) != sorted(numbers(other.text)) or sorted(negations(one.text)) != sorted(
        negations(other.text)
    ):
        return False
    first, second = _particulars(one.text), _particulars(other.text)
    if first and first == second:
        return cosine >= NAMED_RESTATEMENT_COSINE
    return cosine >= RESTATEMENT_COSINE and (first <= second or second <= first)


def _particulars(text: str) -> frozenset[str]:
    """Names (also one that begins the text) without the words that only look like one."""
    first = fold(text.split()[0].strip(".,:;!?").removesuffix("'s").removesuffix("’s")) if text.split() else ""
    plain = {"dr", "mr", "mrs", "ms", "i", "user"}
    return frozenset(name for name in names(text) if name.strip(".") not in plain and name != first)


def _restated(
    candidates: Sequence[MemoryRecord],
    cosines: NDArray[np.float64],
    scores: NDArray[np.float64],
    verdicts: Sequence[Verdict | None],
) -> set[int]:
    """All but one of each group that says the same: the best scored stays, the later one of equals."""
    order = sorted(
        (at for at in range(len(candidates)) if verdicts[at] is None),
        key=lambda at: (-scores[at], -candidates[at].told_at.timestamp(), at),
    )
    out: set[int] = set()
    for place, kept in enumerate(order):
        for repeat in order[place + 1 :]:
            same_subject = fold(candidates[kept].subject) == fold(candidates[repeat].subject)
            if (
                kept not in out
                and same_subject
                and _same_fact(candidates[kept], candidates[repeat], float(cosines[kept, repeat]))
            ):
                out.add(repeat)
    return out


@dataclass(frozen=True)
class _Passage:
    """A few sentences of what is known already, ready to be compared with every record."""

    content: frozenset[str]
    words: frozenset[str]
    negated: bool
    denies: bool


def _passages(texts: Sequence[str]) -> list[_Passage]:
    return [
        _Passage(
            content=frozenset(content_words(part)),
            words=frozenset(words(part)),
            negated=bool(negations(part)),
            denies=bool(_DONT_KNOW.search(part)),
        )
        for text in texts
        for part in known_answers.passages(text)
    ]


def _says(passage: _Passage, record: MemoryRecord, asked: set[str]) -> bool:
    """Whether a passage already holds what the record adds beyond the words of the question."""
    plain = {"user", fold(record.subject)} | asked
    adds = [word for word in content_words(record.text) if word not in plain]
    if not adds or not passage.words.issuperset(numbers(record.text)):
        return False
    share = sum(word in passage.content for word in adds) / len(adds)
    return share >= KNOWN_SHARE and not passage.denies and passage.negated >= bool(negations(record.text))


def _joint(
    candidates: Sequence[MemoryRecord],
    chosen: Sequence[int],
    verdicts: Sequence[Verdict],
    scores_by_part: NDArray[np.float64],
    max_admitted: int,
) -> set[int]:
    """Admitted records that only help together: halves of a compound question, or one leading to the other."""
    if not chosen:
        return set()
    if len(scores_by_part) > 1:
        best = {max(chosen, key=lambda at: part[at]) for part in scores_by_part if part[list(chosen)].max() > 0}
        return best if len(best) > 1 else set()
    top = chosen[0]
    for at, record in enumerate(candidates):
        if at == top or verdicts[at] not in (Verdict.INSUFFICIENT, Verdict.HELPFUL):
            continue
        if _leads_on(candidates[top], record) and (at in chosen or len(chosen) < max_admitted):
            return {top, at}
    return set()


def _leads_on(first: MemoryRecord, second: MemoryRecord) -> bool:
    """The first record ends at a thing ("in the blue cabinet") that the second one is about.

    Things only: a person mentioned in a record does not make everything known about the person part of the answer.
    """
    about = fold(second.subject)
    is_thing = about != PRINCIPAL and second.subject[:1].islower() and about != fold(first.subject)
    return is_thing and f" {about}" in f" {fold(first.text)}"
