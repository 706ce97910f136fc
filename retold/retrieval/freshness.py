"""Age counts for episodes only: what happened fades, what is true does not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

from retold.contracts.record import RecordType
from retold.retrieval.found import Found, ranked


def freshness(age: timedelta, *, half_life_days: float, floor: float) -> float:
    """`max(floor, 0.5 ** (age / half life))`, 1 for what lies in the future."""
    days = max(0.0, age.total_seconds() / 86_400)
    return max(floor, math.pow(0.5, days / half_life_days))


def prefer_fresh(found: Sequence[Found], *, at: datetime, half_life_days: float, floor: float) -> list[Found]:
    """Scale the score of episodic records by their freshness at `at`."""
    return ranked(
        each.scored(each.score * freshness(at - each.hit.told_at, half_life_days=half_life_days, floor=floor))
        if each.hit.type is RecordType.EPISODIC
        else each
        for each in found
    )
