"""The relevance gate: what is too far from the query is no candidate, however empty the list stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from retold.contracts.record import RecordType
from retold.retrieval.found import Found, Tally
from retold.retrieval.ports import Generator
from retold.retrieval.text import content_words


def pass_gate(
    found: Sequence[Found],
    query: str,
    tally: Tally,
    *,
    heard: bool,
    dense_floors: Mapping[RecordType, float],
    unheard_floor: float,
    lexical_min_share: float,
    relative_floor: float,
) -> list[Found]:
    """Keep a record that is near enough in meaning, shares enough words, or carries a name the query names.

    Each way in has its own floor, and the relative floor holds within each: least share of the best score. A query
    is `heard` if any word or name of it occurs in anything that could be found; if not, nearness alone is held to
    a higher floor: a vector is near something whatever was asked, even for noise.
    """
    best_cosine = max((each.cosine for each in found), default=0.0)
    best_lexical = max((each.lexical or 0.0 for each in found), default=0.0)
    wanted = frozenset(content_words(query))

    def near(each: Found) -> bool:
        floor = dense_floors[each.hit.type] if heard else max(unheard_floor, dense_floors[each.hit.type])
        return each.cosine >= max(floor, relative_floor * best_cosine)

    def named(each: Found) -> bool:
        return Generator.ENTITY in each.generators and each.cosine >= relative_floor * best_cosine

    def worded(each: Found) -> bool:
        return (
            each.lexical is not None
            and each.lexical >= relative_floor * best_lexical
            and _share(wanted, each) >= lexical_min_share
        )

    kept = [each for each in found if near(each) or named(each) or worded(each)]
    tally.drop("gate", "below_floor", len(found) - len(kept))
    return kept


def _share(wanted: frozenset[str], found: Found) -> float:
    if not wanted or found.record is None:
        return 0.0
    return len(wanted & frozenset(content_words(found.record.text))) / len(wanted)
