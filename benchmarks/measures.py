"""The arithmetic of the benchmarks: quantiles, and ratios of rounds that were run side by side."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed (nearest rank): one that was measured.

    Raises:
        ValueError: no values, or a share outside 0 to 1.
    """
    if not values:
        raise ValueError("a quantile needs at least one value")
    if not 0 <= share <= 1:
        raise ValueError(f"share must be between 0 and 1, got {share}")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def median_of_rounds(rounds: Sequence[Sequence[float]]) -> float:
    """The median of the rounds' medians: one disturbed round does not move it."""
    return statistics.median(statistics.median(each) for each in rounds)


def ratio_of_rounds(rounds: Sequence[Sequence[float]], floor: Sequence[Sequence[float]]) -> float:
    """How many times the floor's median, as the median over rounds; each round against the floor of the same round.

    Raises:
        ValueError: the two were not run in the same number of rounds.
    """
    return statistics.median(
        statistics.median(mine) / statistics.median(floors) for mine, floors in zip(rounds, floor, strict=True)
    )


def pooled(rounds: Sequence[Sequence[float]]) -> list[float]:
    return [value for each in rounds for value in each]


def rotated(items: Sequence[str], by: int) -> list[str]:
    """The items beginning with another one each round, so that nobody always runs after the same neighbour."""
    start = by % len(items) if items else 0
    return [*items[start:], *items[:start]]
