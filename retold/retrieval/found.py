"""What the stages pass along: one record as found for one gap, with everything a later stage may ask about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from retold.contracts.record import MemoryRecord, RecordRef
from retold.retrieval.ports import Generator, Hit


class Found(NamedTuple):
    """A record found for a gap. `score` orders it within the gap; `cosine` and `lexical` say how it was found."""

    hit: Hit
    score: float
    cosine: float
    lexical: float | None = None
    generators: frozenset[Generator] = frozenset()
    record: MemoryRecord | None = None
    """The record's current version, once it was loaded."""

    @property
    def ref(self) -> RecordRef:
        return self.hit.ref

    def scored(self, score: float) -> Found:
        """The same finding with another score."""
        return Found(self.hit, score, self.cosine, self.lexical, self.generators, self.record)

    def loaded(self, record: MemoryRecord) -> Found:
        return Found(self.hit, self.score, self.cosine, self.lexical, self.generators, record)


@dataclass(slots=True)
class Tally:
    """Counts what each stage of one gap's search dropped, and why."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)

    def drop(self, stage: str, reason: str, count: int = 1) -> None:
        if count > 0:
            self.counts.setdefault(stage, Counter())[reason] += count

    def add(self, other: Tally) -> None:
        """Count what `other` counted as well."""
        for stage, reasons in other.counts.items():
            for reason, count in reasons.items():
                self.drop(stage, reason, count)

    def as_dict(self) -> dict[str, dict[str, int]]:
        return {stage: dict(reasons) for stage, reasons in self.counts.items()}


def ranked(found: Iterable[Found]) -> list[Found]:
    """Best first; ties in the order of ids, so that the same findings always come out the same."""
    return sorted(found, key=lambda each: (-each.score, each.hit.ref.id))
