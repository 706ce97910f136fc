"""Who wins when statements disagree: the table of design section 4, and what holds for any set of statements."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retold.contracts.record import RecordType, Source
from retold.policy.authority import Claim, Settled, Suspension, has_slot, overlap, settle, stated_at

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)

OLD = Claim(id="old", says="cola", source=Source.HOST, stated_at=NOW - 3 * DAY)
NEW = Claim(id="new", says="tea", source=Source.HOST, stated_at=NOW - DAY)
WEEK = replace(NEW, id="week", says="water", temporary=True, begins=NOW - DAY, ends=NOW + 6 * DAY)


def outcome(*claims: Claim) -> dict[str, str]:
    """In one word a claim: `holds`, `superseded`, `suspended`, `conflict`; the same in every order."""
    outcomes = {tuple(sorted(_words(order).items())) for order in permutations(claims)}
    assert len(outcomes) == 1
    return dict(outcomes.pop())


def _words(claims: tuple[Claim, ...]) -> dict[str, str]:
    return {
        id: "superseded"
        if s.superseded_by
        else "conflict"
        if s.conflicts_with
        else "suspended"
        if s.suspension
        else "holds"
        for id, s in settle(claims, NOW).items()
    }


def _held_back(one: Settled) -> str:
    return "suspended" if one.suspension else "holds"


def by(source: Source, claim: Claim) -> Claim:
    return replace(claim, source=source)


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        # The later of two equals, whatever order they came in.
        ((OLD, NEW), {"old": "superseded", "new": "holds"}),
        # The stronger source, however old.
        ((by(Source.PRINCIPAL, OLD), NEW), {"old": "holds", "new": "superseded"}),
        ((OLD, by(Source.IMPORT, NEW)), {"old": "holds", "new": "superseded"}),
        ((by(Source.IMPORT, OLD), by(Source.MODEL, NEW)), {"old": "holds", "new": "superseded"}),
        ((by(Source.MODEL, OLD), by(Source.PRINCIPAL, NEW)), {"old": "superseded", "new": "holds"}),
        # Neither stronger nor later: nobody decides for the user.
        ((OLD, replace(NEW, stated_at=OLD.stated_at)), {"old": "conflict", "new": "conflict"}),
        # The same words at the same time agree.
        ((OLD, replace(OLD, id="same")), {"old": "holds", "same": "superseded"}),
        # For a time only: suspends, never replaces.
        ((OLD, WEEK), {"old": "suspended", "week": "holds"}),
        ((replace(OLD, stated_at=WEEK.stated_at), WEEK), {"old": "suspended", "week": "holds"}),
        # What is said later and for good ends what was said for a time.
        ((replace(NEW, stated_at=NOW), WEEK), {"new": "holds", "week": "superseded"}),
        # A weaker temporary statement does not push a stronger one aside.
        ((by(Source.PRINCIPAL, OLD), WEEK), {"old": "holds", "week": "superseded"}),
        # Over, or not at the same time: nothing to decide.
        ((OLD, replace(NEW, ends=NOW)), {"old": "holds", "new": "holds"}),
        ((replace(OLD, ends=NOW + DAY), replace(NEW, begins=NOW + DAY)), {"old": "holds", "new": "holds"}),
        ((replace(OLD, ends=NOW + DAY + TICK), replace(NEW, begins=NOW + DAY)), {"old": "suspended", "new": "holds"}),
        # Said to begin later: it takes over when it begins.
        ((OLD, replace(NEW, begins=NOW + DAY)), {"old": "suspended", "new": "holds"}),
        ((OLD, replace(NEW, begins=NOW)), {"old": "superseded", "new": "holds"}),
        # Three: the strongest stands, whatever the others think of each other.
        ((OLD, replace(OLD, id="tied", says="ale"), NEW), {"old": "superseded", "tied": "superseded", "new": "holds"}),
    ],
)  # fmt: skip
def test_what_becomes_of_statements(claims: tuple[Claim, ...], expected: dict[str, str]) -> None:
    assert outcome(*claims) == expected


def test_a_suspension_lasts_as_long_as_what_suspends_without_a_gap() -> None:
    first = replace(WEEK, id="first", begins=NOW, ends=NOW + DAY)
    next_ = replace(WEEK, id="next", begins=NOW + DAY, ends=NOW + 2 * DAY)
    later = replace(WEEK, id="later", begins=NOW + 3 * DAY, ends=NOW + 4 * DAY)
    assert settle([OLD, first, next_, later], NOW)["old"].suspension == Suspension("first", NOW, NOW + 2 * DAY)
    assert settle([OLD, first, next_, later], NOW + 2 * DAY)["old"].suspension == Suspension(
        "later", NOW + 3 * DAY, NOW + 4 * DAY
    )
    assert settle([OLD, first], NOW + DAY)["old"].suspension is None
    open_ended = replace(WEEK, begins=None, ends=None)
    assert settle([OLD, open_ended], NOW)["old"].suspension == Suspension("week", WEEK.stated_at, None)


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))])
@pytest.mark.parametrize(
    "clock",
    [
        "2026-06-02T00:00:00",
        "2026-06-01T23:59:59",
        "0002-01-01T00:00:00",
        "9999-12-30T23:59:59",
        "2026-03-29T02:30:00",  # does not exist on a clock in Zürich
    ],
)
def test_a_statement_holds_from_its_first_instant_until_before_its_last(clock: str, zone: timezone) -> None:
    bound = datetime.fromisoformat(clock).replace(tzinfo=zone)
    ends, begins = replace(OLD, ends=bound), replace(NEW, begins=bound)
    assert not overlap(ends, begins, datetime(1, 1, 2, tzinfo=UTC))
    assert overlap(replace(ends, ends=bound + TICK), begins, datetime(1, 1, 2, tzinfo=UTC))
    assert not overlap(ends, OLD, bound)
    assert overlap(ends, OLD, bound - TICK)


def test_a_statement_is_made_at_its_event_but_never_later_than_it_was_told() -> None:
    assert stated_at(None, NOW) == NOW
    assert stated_at(NOW - DAY, NOW) == NOW - DAY
    assert stated_at(NOW + DAY, NOW) == NOW


def test_episodes_and_statements_without_an_attribute_replace_nothing() -> None:
    assert has_slot(RecordType.SEMANTIC, "home_city")
    assert has_slot(RecordType.PROCEDURAL, "deploys")
    assert not has_slot(RecordType.EPISODIC, "home_city")
    assert not has_slot(RecordType.SEMANTIC, None)


moments = st.one_of(st.none(), st.integers(-5, 5).map(lambda days: NOW + days * DAY))


@st.composite
def claim_sets(draw: st.DrawFn) -> list[Claim]:
    claims = []
    for number in range(draw(st.integers(1, 6))):
        begins, ends = draw(moments), draw(moments)
        if begins is not None and ends is not None and begins >= ends:
            begins = None
        if ends is not None and ends <= NOW:
            ends = None
        claims.append(
            Claim(
                id=f"c{number}",
                says=draw(st.sampled_from(("a", "b"))),
                source=draw(st.sampled_from(Source)),
                stated_at=NOW - draw(st.integers(0, 3)) * DAY,
                temporary=draw(st.booleans()),
                begins=begins,
                ends=ends,
            )
        )
    return claims


@given(claim_sets())
def test_of_any_statements_at_most_one_stands(claims: list[Claim]) -> None:
    settled = settle(claims, NOW)
    assert settled == settle(list(reversed(claims)), NOW)
    by_id = {claim.id: claim for claim in claims}
    standing = [
        claim
        for claim in claims
        if not claim.temporary
        and settled[claim.id].superseded_by is None
        and not settled[claim.id].conflicts_with
        and (claim.begins is None or claim.begins <= NOW)
        and not _suspended(settled[claim.id].suspension, NOW)
    ]
    assert len(standing) <= 1
    for id, one in settled.items():
        if one.superseded_by is not None:
            assert not by_id[one.superseded_by].temporary
            assert one.suspension is None and not one.conflicts_with
        for peer in one.conflicts_with:
            assert id in settled[peer].conflicts_with
    assert any(one.superseded_by is None for one in settled.values())


def _suspended(suspension: Suspension | None, at: datetime) -> bool:
    if suspension is None:
        return False
    begun = suspension.begins is None or suspension.begins <= at
    return begun and (suspension.ends is None or at < suspension.ends)
