"""Restatements collapse, contradictions never: two candidates are one only if the kept says all the other says."""

from __future__ import annotations

from collections.abc import Sequence

from retold.contracts.record import MemoryRecord
from retold.retrieval.found import Found
from retold.retrieval.fusion import sketches_cosine
from retold.retrieval.text import content_words, fold, names, negations, numbers


def restates(other: Found, kept: Found, *, least_cosine: float) -> bool:
    """Whether `other` adds nothing to `kept`.

    The same normalised text does, about the same subject. Otherwise nearness alone proves nothing ("prefers the
    aisle" is near "prefers the window"): negation, numbers and names have to agree, in order, and the words of
    `other` have to occur in `kept` in the same order, so that "tea over coffee" is not "coffee over tea".
    """
    if kept.record is None or other.record is None or fold(kept.record.subject) != fold(other.record.subject):
        return False
    if _same_text(kept.record, other.record):
        return True
    one, two = kept.record.text, other.record.text
    return (
        kept.hit.type is other.hit.type
        # The cheap question first: nearly every pair ends here, and there are many.
        and sketches_cosine(kept.hit.sketch, other.hit.sketch) >= least_cosine
        and negations(one) == negations(two)
        and numbers(one) == numbers(two)
        and names(one) == names(two)
        and _in_order(content_words(two), content_words(one))
    )


def restated_by(candidate: Found, kept: Sequence[Found], *, least_cosine: float) -> Found | None:
    """The first kept candidate that `candidate` only restates."""
    return next((each for each in kept if restates(candidate, each, least_cosine=least_cosine)), None)


def _same_text(one: MemoryRecord, two: MemoryRecord) -> bool:
    return fold(one.text).rstrip(" .!。！") == fold(two.text).rstrip(" .!。！")


def _in_order(part: Sequence[str], whole: Sequence[str]) -> bool:
    rest = iter(whole)
    return all(word in rest for word in part)
