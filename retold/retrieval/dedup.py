"""Restatements collapse, contradictions never: two candidates are one only if the kept says all the other says."""

from __future__ import annotations

from collections.abc import Sequence

from retold.contracts.record import MemoryRecord
from retold.retrieval.found import Found
from retold.retrieval.fusion import sketched_cosines, unsketched
from retold.retrieval.text import content_words, fold, names, negations, numbers


def restated_by(candidate: Found, kept: Sequence[Found], *, least_cosine: float) -> Found | None:
    """The first kept candidate that `candidate` only restates."""
    if not kept:
        return None
    cosines = sketched_cosines([each.hit.sketch for each in kept], unsketched(candidate.hit.sketch))
    pairs = zip(kept, cosines, strict=True)
    return next((each for each, cosine in pairs if _restates(candidate, each, near=cosine >= least_cosine)), None)


def _restates(other: Found, kept: Found, *, near: bool) -> bool:
    """Whether `other` adds nothing to `kept`.

    The same normalised text does, about the same subject. Otherwise nearness alone proves nothing ("prefers the
    aisle" is near "prefers the window"): negation, numbers and names have to agree, in order, and the words of
    `other` have to occur in `kept` in the same order, so that "tea over coffee" is not "coffee over tea".
    """
    if kept.record is None or other.record is None or not _same_subject(kept.record, other.record):
        return False
    if _same_text(kept.record, other.record):
        return True
    one, two = kept.record.text, other.record.text
    return (
        kept.hit.type is other.hit.type
        # The cheap question first: nearly every pair ends here, and there are many.
        and near
        and negations(one) == negations(two)
        and numbers(one) == numbers(two)
        and names(one) == names(two)
        and _in_order(content_words(two), content_words(one))
    )


def _same_subject(one: MemoryRecord, two: MemoryRecord) -> bool:
    return one.subject == two.subject or fold(one.subject) == fold(two.subject)


def _same_text(one: MemoryRecord, two: MemoryRecord) -> bool:
    return fold(one.text).rstrip(" .!。！") == fold(two.text).rstrip(" .!。！")


def _in_order(part: Sequence[str], whole: Sequence[str]) -> bool:
    rest = iter(whole)
    return all(word in rest for word in part)
