"""The relevance gate: what is too far from the query is no candidate, however empty the list stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from retold.contracts.record import RecordType
from retold.retrieval.found import Found
from retold.retrieval.ports import Generator
from retold.retrieval.text import content_words


@dataclass(frozen=True, slots=True)
class Gate:
    """Who comes in for one query. Built by :func:`gate_for` from everything that was found for it."""

    near: Mapping[RecordType, float]
    """Least cosine, by type, of a record that is let in for its meaning."""
    named: float
    """Least cosine of a record that carries a name the query names."""
    worded: float
    """Least lexical score of a record that is let in for its words,"""
    wanted: frozenset[str]
    """the query's content words,"""
    min_share: float
    """and the least share of them that its text must hold."""

    def lets_in(self, found: Found) -> bool | None:
        """Whether a record comes in; None if that hangs on its words and its text is not loaded yet."""
        if found.cosine >= self.near[found.hit.type]:
            return True
        if Generator.ENTITY in found.generators and found.cosine >= self.named:
            return True
        if found.lexical is None or found.lexical < self.worded:
            return False
        return None if found.record is None else self._share(found.record.text) >= self.min_share

    def _share(self, text: str) -> float:
        return len(self.wanted.intersection(content_words(text))) / len(self.wanted) if self.wanted else 0.0


def gate_for(
    found: Sequence[Found],
    query: str,
    *,
    heard: bool,
    dense_floors: Mapping[RecordType, float],
    unheard_floor: float,
    lexical_min_share: float,
    relative_floor: float,
) -> Gate:
    """Let in a record that is near enough in meaning, shares enough words, or carries a name the query names.

    Each way in has its own floor, and the relative floor holds within each: least share of the best score. A query
    is `heard` if any word or name of it occurs in anything that could be found; if not, nearness alone is held to
    a higher floor: a vector is near something whatever was asked, even for noise.
    """
    least = relative_floor * max((each.cosine for each in found), default=0.0)
    absolute = 0.0 if heard else unheard_floor
    return Gate(
        near={kind: max(floor, absolute, least) for kind, floor in dense_floors.items()},
        named=least,
        worded=relative_floor * max((each.lexical or 0.0 for each in found), default=0.0),
        wanted=frozenset(content_words(query)),
        min_share=lexical_min_share,
    )
