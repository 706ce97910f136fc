"""Who wins when statements about the same thing disagree (design section 4). Pure; similarity plays no part.

An attribute of a subject holds one value at a time. Of the live statements about it, the stronger source holds: the
principal's own words, then what a host asserts, then imports, then what a model proposed. Within one rank the later
statement holds. What then stands replaces what is weaker; what was said for a time only suspends it for that time and
never replaces it; and what has yet to begin takes over when it begins. Where neither can be preferred both are kept,
neither is used, until somebody says which holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from retold.contracts.record import RecordType, Source

_STRONGEST_FIRST = (Source.PRINCIPAL, Source.HOST, Source.IMPORT, Source.MODEL)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What the rules need to know of one live statement."""

    id: str
    says: str
    """The statement in a form in which restatements are equal."""
    source: Source
    stated_at: datetime
    temporary: bool = False
    begins: datetime | None = None
    """Inclusive."""
    ends: datetime | None = None
    """Exclusive."""


@dataclass(frozen=True)
class Suspension:
    by: str | None
    begins: datetime | None
    """Inclusive."""
    ends: datetime | None
    """Exclusive; None: for as long as what suspends lives."""


@dataclass(frozen=True)
class Settled:
    """What becomes of one claim beside the others."""

    superseded_by: str | None = None
    suspension: Suspension | None = None
    conflicts_with: frozenset[str] = frozenset()


def has_slot(type: RecordType, attribute: str | None) -> bool:
    """Does a record of this kind hold a value that another may replace? An episode happened, whatever happens later."""
    return attribute is not None and type is not RecordType.EPISODIC


def stated_at(event_at: datetime | None, created_at: datetime) -> datetime:
    """When a statement was made: at its event's time, but never later than it was told."""
    return created_at if event_at is None else min(event_at, created_at)


def stronger(one: Source, other: Source) -> Source:
    return min(one, other, key=_STRONGEST_FIRST.index)


def prevailing(one: Claim, other: Claim) -> Claim | None:
    """Which of two claims holds, if their times overlap; None: neither can be preferred."""
    if _strength(one) != _strength(other):
        return max(one, other, key=_strength)
    if one.says == other.says:  # they agree: any one of them will do
        return min(one, other, key=lambda claim: claim.id)
    return None


def settle(claims: Sequence[Claim], at: datetime) -> dict[str, Settled]:
    """What becomes of live claims about one attribute of one subject, from `at` on. In whatever order they came."""
    replaced = {claim.id: _replacing(claim, claims, at) for claim in claims}
    holding = [claim for claim in claims if replaced[claim.id] is None]
    settled = {claim.id: Settled(superseded_by=replaced[claim.id]) for claim in claims}
    return settled | {claim.id: _beside(claim, holding, at) for claim in holding}


def overlap(one: Claim, other: Claim, at: datetime) -> bool:
    """Is there a moment, from `at` on, in which both hold? A claim holds from `begins` until before `ends`."""
    begins = max([at, *(claim.begins for claim in (one, other) if claim.begins is not None)])
    return all(claim.ends is None or begins < claim.ends for claim in (one, other))


def _replacing(claim: Claim, claims: Sequence[Claim], at: datetime) -> str | None:
    """The strongest claim that stands, has begun, and holds against this one."""
    stronger = (other for other in _against(claim, claims, at) if prevailing(claim, other) is other)
    standing = [other for other in stronger if not other.temporary and _has_begun(other, at)]
    return max(standing, key=lambda other: (_strength(other), other.id)).id if standing else None


def _beside(claim: Claim, holding: Sequence[Claim], at: datetime) -> Settled:
    against = [(other, prevailing(claim, other)) for other in _against(claim, holding, at)]
    return Settled(
        suspension=_suspension([other for other, holds in against if holds is other], at),
        conflicts_with=frozenset(other.id for other, holds in against if holds is None),
    )


def _against(claim: Claim, claims: Sequence[Claim], at: datetime) -> list[Claim]:
    return [other for other in claims if other.id != claim.id and overlap(claim, other, at)]


def _suspension(suspending: Sequence[Claim], at: datetime) -> Suspension | None:
    """The first time, now or to come, in which something stronger holds without a gap."""
    found: Suspension | None = None
    for claim in sorted(suspending, key=lambda claim: (_from(claim), claim.id)):
        if found is None or (found.ends is not None and found.ends <= at):
            found = Suspension(claim.id, _from(claim), claim.ends)
        elif found.ends is not None and _from(claim) <= found.ends:
            ends = None if claim.ends is None else max(found.ends, claim.ends)
            found = Suspension(found.by, found.begins, ends)
    return found


def _from(claim: Claim) -> datetime:
    return claim.begins or claim.stated_at


def _has_begun(claim: Claim, at: datetime) -> bool:
    return claim.begins is None or claim.begins <= at


def _strength(claim: Claim) -> tuple[int, datetime, bool]:
    return -_STRONGEST_FIRST.index(claim.source), claim.stated_at, claim.temporary
