"""One fair list out of the gaps' lists: every gap's best first, restatements folded in, cut to the caps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from retold.contracts.record import MemoryRecord
from retold.retrieval.dedup import restated_by
from retold.retrieval.found import Found, Tally


@dataclass(slots=True)
class Chosen:
    """A candidate and the gaps it serves. A restatement that was folded in brings its gap along."""

    found: Found
    gaps: list[int]

    def serve(self, gap: int) -> None:
        if gap not in self.gaps:
            self.gaps.append(gap)


def choose(
    per_gap: Sequence[Sequence[Found]],
    tallies: Sequence[Tally],
    *,
    max_candidates: int,
    max_tokens: int,
    restatement_cosine: float,
) -> list[Chosen] | None:
    """Take the gaps' records in turn: all bests, then all seconds, and so on, while the caps allow.

    A record that is too long for what is left of the tokens is skipped whole; shorter ones after it may still
    fit. A record another gap already brought costs nothing. When the list is full, a gap's best may still join what
    it restates; the rest is not looked at any more, so it need not be loaded. None if a record is not loaded that the
    choice hangs on: nothing was chosen then, and the tallies mean nothing.
    """
    chosen: dict[str, Chosen] = {}
    tokens_left = max_tokens
    for rank, gap, found in _in_turn(per_gap):
        present = chosen.get(found.ref.id)
        if present is not None:
            present.serve(gap)
            continue
        full = len(chosen) >= max_candidates
        if full and rank > 0:
            tallies[gap].drop("caps", "max_candidates")
            continue
        if found.record is None:
            return None
        twin = restated_by(found, [each.found for each in chosen.values()], least_cosine=restatement_cosine)
        if twin is not None:
            chosen[twin.ref.id].serve(gap)
            tallies[gap].drop("dedup", "restatement")
        elif full:
            tallies[gap].drop("caps", "max_candidates")
        elif (cost := cost_tokens(found.record)) > tokens_left:
            tallies[gap].drop("caps", "max_tokens")
        else:
            chosen[found.ref.id] = Chosen(found, [gap])
            tokens_left -= cost
    return sorted(chosen.values(), key=lambda each: (-each.found.score, each.found.ref.id))


def cost_tokens(record: MemoryRecord) -> int:
    """What a candidate costs of the token cap: a quarter of its characters, and 30 for what surrounds it."""
    return len(record.text) // 4 + 30


def _in_turn(per_gap: Sequence[Sequence[Found]]) -> Iterator[tuple[int, int, Found]]:
    """Rank, gap and record: every gap's first, then every gap's second, and so on."""
    for rank in range(max((len(found) for found in per_gap), default=0)):
        for gap, found in enumerate(per_gap):
            if rank < len(found):
                yield rank, gap, found[rank]
