"""What a planner's and a judge's answer must satisfy, checked by code and not by trust (design 3.3 and 3.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from pydantic import ValidationError

from retold.contracts.record import RecordRef
from retold.contracts.stages import (
    ADMITTING_VERDICTS,
    CandidateVerdict,
    Gap,
    GapCategory,
    ProposedGap,
    ProposedVerdict,
    Verdict,
)  # fmt: skip


class MalformedError(ValueError):
    """An answer that breaks a rule. The message is a short code, safe to store and to trace."""


class CleanGaps(NamedTuple):
    gaps: tuple[Gap, ...]
    dropped: int


def clean_gaps(proposed: Sequence[ProposedGap], *, max_gaps: int) -> CleanGaps:
    """Keep the valid gaps, first come first kept: known category, usable query, no repeat, at most `max_gaps`.

    Raises:
        MalformedError: the plan named gaps and not one of them was valid.
    """
    kept: list[Gap] = []
    seen: set[str] = set()
    valid = 0
    for gap in proposed:
        query = gap.query.strip()
        try:
            clean = Gap(category=GapCategory(gap.category), query=query)
        except (ValueError, ValidationError):
            continue
        valid += 1
        if query.casefold() in seen or len(kept) == max_gaps:
            continue
        seen.add(query.casefold())
        kept.append(clean)
    if proposed and not valid:
        raise MalformedError("no_valid_gap")
    return CleanGaps(tuple(kept), len(proposed) - len(kept))


class CheckedAdmission(NamedTuple):
    admitted: tuple[RecordRef, ...]
    verdicts: tuple[CandidateVerdict, ...]


def check_admission(
    judged: Sequence[RecordRef], admitted: Sequence[str], verdicts: Sequence[ProposedVerdict]
) -> CheckedAdmission:
    """Accept a judge's answer only if it is complete and consistent over the candidates it was shown.

    Raises:
        MalformedError: `unknown_verdict`, `unknown_id`, `duplicate_verdict`, `incomplete_verdicts`,
            `duplicate_admitted`, `admitted_without_admitting_verdict` or `jointly_helpful_alone`.
    """
    refs = {ref.id: ref for ref in judged}
    named = Counter(verdict.id for verdict in verdicts)
    if set(named) - set(refs) or set(admitted) - set(refs):
        raise MalformedError("unknown_id")
    if any(count > 1 for count in named.values()):
        raise MalformedError("duplicate_verdict")
    if set(named) != set(refs):
        raise MalformedError("incomplete_verdicts")
    if len(set(admitted)) != len(admitted):
        raise MalformedError("duplicate_admitted")
    try:
        checked = {verdict.id: Verdict(verdict.verdict) for verdict in verdicts}
    except ValueError as error:
        raise MalformedError("unknown_verdict") from error
    admitting = {id for id, verdict in checked.items() if verdict in ADMITTING_VERDICTS}
    if set(admitted) - admitting:
        raise MalformedError("admitted_without_admitting_verdict")
    if any(checked[id] is Verdict.JOINTLY_HELPFUL for id in admitted) and len(admitted) < 2:
        raise MalformedError("jointly_helpful_alone")
    return CheckedAdmission(
        tuple(refs[id] for id in admitted),
        tuple(CandidateVerdict(id=id, verdict=verdict) for id, verdict in checked.items()),
    )


def surviving_admission(
    admitted: Sequence[RecordRef], verdicts: Sequence[CandidateVerdict], present: Collection[str]
) -> tuple[RecordRef, ...]:
    """Which admitted records may still be applied when some are gone meanwhile.

    A `helpful` record stands on its own. A `jointly_helpful` one was judged together with records that may be
    the ones missing, so as soon as anything is gone nothing of a joint admission is applied.
    """
    left = tuple(ref for ref in admitted if ref.id in present)
    if len(left) == len(admitted):
        return left
    joint = {verdict.id for verdict in verdicts if verdict.verdict is Verdict.JOINTLY_HELPFUL}
    return () if any(ref.id in joint for ref in admitted) else left
