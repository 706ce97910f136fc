"""Whom a query speaks of, and a preference (never a filter) for records about them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from retold.retrieval.found import Found, ranked
from retold.retrieval.text import fold, is_first_person, possible_names

PRINCIPAL = "user"


def spoken_of(query: str, stored_subjects: Iterable[str]) -> frozenset[str]:
    """The subjects a query names: stored ones by name, and the principal where it says I or my. Folded."""
    said = frozenset(possible_names(query))
    named = frozenset(
        folded for subject in stored_subjects if (folded := fold(subject)) != PRINCIPAL and _names(folded, said)
    )
    return named | {PRINCIPAL} if is_first_person(query) else named


def prefer_subjects(found: Sequence[Found], subjects: Collection[str], *, penalty: float) -> list[Found]:
    """Take `penalty` off the score of records about somebody else. With nobody spoken of, nothing changes."""
    if not subjects:
        return list(found)
    meant = {subject for subject in {each.hit.subject for each in found} if fold(subject) in subjects}
    return ranked(each if each.hit.subject in meant else each.scored(each.score - penalty) for each in found)


def _names(subject: str, said: frozenset[str]) -> bool:
    """A subject is named by its whole name or by its first word (`Ann` for `Ann Smith`)."""
    return subject in said or subject.split(" ")[0] in said
