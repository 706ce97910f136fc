"""Who may decide what, and when: the rules over everything that can come together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from retold.contracts.activation import PROMOTABLE_CATEGORIES, ActivationCategory
from retold.contracts.record import ACTIVE_STATUSES, MemoryRecord, RecordRef, RecordStatus, RecordType
from retold.contracts.review import (
    RefusedDecision,
    Resolution,
    ReviewDecision,
    Reviewer,
    ReviewerRole,
    ReviewStatus,
)
from retold.policy.reviewing import (
    SIGNALLED,
    ItemFacts,
    Refusal,
    category_for_promotion,
    refuse_moment,
    refuse_person,
    refuse_word,
    why_withdrawn,
)

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)

decisions = st.builds(
    ReviewDecision,
    review_id=st.sampled_from(["a", "b"]),
    resolution=st.sampled_from([*Resolution, "erase", "PROMOTE", ""]),
    expected_version=st.integers(1, 3),
    reviewer_id=st.just("rita"),
    signature=st.just("x"),
)
reviewers = st.builds(
    Reviewer,
    reviewer_id=st.just("rita"),
    name=st.just("Rita"),
    role=st.sampled_from(ReviewerRole),
    tenants=st.sampled_from([None, (), ("acme",), ("acme2",)]),
    public_key=st.just(""),
    created_at=st.just(NOON),
    disabled_at=st.sampled_from([None, NOON]),
)
items = st.builds(ItemFacts, tenant=st.just("acme"), status=st.sampled_from(ReviewStatus), version=st.integers(1, 3))


@given(decisions, st.none() | reviewers, st.booleans(), st.sampled_from(["acme", None]))
def test_only_a_known_undisabled_reviewer_of_the_tenant_who_signed_for_this_item_passes(
    decision: ReviewDecision, reviewer: Reviewer | None, signed: bool, tenant: str | None
) -> None:
    refusal = refuse_person(decision, "a", reviewer, signed=signed, tenant=tenant)
    may = (
        reviewer is not None
        and signed
        and decision.review_id == "a"
        and reviewer.disabled_at is None
        and reviewer.role is ReviewerRole.REVIEWER
        and (tenant is None or reviewer.tenants is None or tenant in reviewer.tenants)
    )
    assert (refusal is None) is may
    assert refusal is None or refusal.kind is RefusedDecision.NOT_A_REVIEWER


@given(decisions, st.none() | items)
def test_only_an_open_item_in_the_version_that_was_seen_is_decided(
    decision: ReviewDecision, item: ItemFacts | None
) -> None:
    refusal = refuse_moment(decision, item)
    open_ = item is not None and item.status is ReviewStatus.OPEN and item.version == decision.expected_version
    assert (refusal is None) is open_
    if item is not None and refusal is not None and item.status is not ReviewStatus.OPEN:
        assert refusal.kind in (
            RefusedDecision.ALREADY_RESOLVED,
            RefusedDecision.WITHDRAWN,
            RefusedDecision.NOT_OPEN_YET,
        )


@given(decisions, st.sampled_from([*SIGNALLED, "resolve", "operation"]))
def test_a_signal_says_what_was_signed_and_nothing_unknown_is_done(decision: ReviewDecision, via: str) -> None:
    known = decision.resolution in list(Resolution)
    assert (refuse_word(decision, via) is None) is (
        known and SIGNALLED.get(via, decision.resolution) == decision.resolution
    )


@given(st.none() | st.sampled_from(ActivationCategory), st.none() | st.sampled_from(ActivationCategory))
def test_nobody_widens_the_list_of_categories_or_overrules_the_policy(
    policy: ActivationCategory | None, reviewer: ActivationCategory | None
) -> None:
    category = category_for_promotion(policy, reviewer)
    if not isinstance(category, Refusal):
        assert category in PROMOTABLE_CATEGORIES
        assert policy in (None, category) and reviewer in (None, category)
    else:
        named = [one for one in (policy, reviewer) if one is not None]
        assert not named or len(set(named)) == 2 or named[0] not in PROMOTABLE_CATEGORIES


@given(
    st.sampled_from(RecordStatus),
    st.integers(1, 3),
    st.none() | st.sampled_from([NOON - timedelta(microseconds=1), NOON, NOON + timedelta(microseconds=1)]),
    st.booleans(),
)
def test_an_item_stays_exactly_as_long_as_its_record_is_alive_and_unchanged(
    status: RecordStatus, version: int, valid_until: datetime | None, superseded: bool
) -> None:
    record = MemoryRecord(
        id="r",
        tenant="acme",
        user="ada",
        type=RecordType.SEMANTIC,
        subject="user",
        text="text",
        status=status,
        version=version,
        valid_until=valid_until,
        superseded_by="s" if superseded else None,
        created_at=NOON,
    )
    stays = (
        status in ACTIVE_STATUSES and version == 2 and (valid_until is None or valid_until > NOON) and not superseded
    )
    assert (why_withdrawn(RecordRef(id="r", version=2), record, NOON) is None) is stays
    assert why_withdrawn(RecordRef(id="r", version=2), None, NOON) is not None
