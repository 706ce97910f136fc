"""How well each fused record answers the query, on one scale: meaning, shared words, and the date it asks about.

Rank fusion decides which records are looked at; it forgets by how much one beats the next. Ordered by strength,
the first eight held an answer to 5 points more of the measured questions (benchmarks/retrieval_recall.py).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime

from retold.retrieval.found import Found, ranked
from retold.retrieval.text import fold, words

_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_MAY_THE_MONTH = re.compile(r"\b(?:in|of|last|this|since|until|during|early|late) may\b|\bmay,? \d|\d may\b")
_LEAST_SCALE = 0.3


def by_strength(found: Sequence[Found], query: str, *, lexical_weight: float, date_bonus: float) -> list[Found]:
    """Score by cosine, plus the share of the best lexical score, plus a bonus for the month the query names.

    Lexical scores have no fixed scale: the best one counts as much as the best cosine of this query, times
    `lexical_weight`.
    """
    best_lexical = max((each.lexical or 0.0 for each in found), default=0.0)
    scale = max((each.cosine for each in found), default=0.0)
    asks = _asks_about(query)

    def strength(each: Found) -> float:
        worded = (each.lexical or 0.0) / best_lexical if best_lexical else 0.0
        dated = date_bonus if asks(each.hit.told_at) else 0.0
        return max(0.0, each.cosine) + lexical_weight * worded * max(scale, _LEAST_SCALE) + dated

    return ranked(each.scored(strength(each)) for each in found)


def support_by_day(found: Sequence[Found], *, weight: float, widest_share: float = 0.25) -> list[Found]:
    """Add a share of the best other score of the same day: what was told together often answers together.

    Nothing is added for a day that holds more than `widest_share` of the records: an import, not a conversation.
    """
    days: dict[date, list[Found]] = defaultdict(list)
    for each in ranked(found):
        days[each.hit.told_at.date()].append(each)
    widest = widest_share * len(found)

    def supported(told_together: Sequence[Found]) -> Iterator[Found]:
        if not 1 < len(told_together) <= widest:
            yield from told_together
            return
        best, second = told_together[:2]
        for each in told_together:
            yield each.scored(each.score + weight * (second if each is best else best).score)

    return ranked(each for told_together in days.values() for each in supported(told_together))


def _asks_about(query: str) -> Callable[[datetime], bool]:
    """Whether a time lies in a month the query names (of the year it names, if any). English month names."""
    said = words(query)
    months = {at for at, month in enumerate(_MONTHS, start=1) if month in said}
    if not _MAY_THE_MONTH.search(fold(query)):
        months.discard(5)
    years = {int(word) for word in said if re.fullmatch(r"(?:19|20)\d\d", word)}
    return lambda at: at.month in months and (not years or at.year in years)
