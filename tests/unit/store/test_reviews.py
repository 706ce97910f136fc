"""The review queue in the store: its bound, its clock, its pages, and what becomes of every kind of decision."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import Engine, select, update
from sqlalchemy.orm import Session

from retold.contracts.activation import ActivationCategory, ActivationReason
from retold.contracts.record import RecordRef
from retold.contracts.review import (
    RefusedDecision,
    Resolution,
    Review,
    ReviewerRole,
    ReviewFilter,
    ReviewItem,
    ReviewOutcome,
    ReviewStatus,
    ReviewStep,
    SentDecision,
    UnreadableReview,
)
from retold.credentials import ReviewerCredential
from retold.policy.reviewing import Refusal
from retold.store.review_desk import Decided
from retold.store.review_reading import BadCursorError
from retold.store.reviewers import OPERATORS, ReviewerExistsError, UnknownReviewerError
from retold.store.store import Store
from retold.store.tables import RecordRow, ReviewRow, Row, SessionTurnRow
from tests.unit.store.conftest import ADA, BOB, ELSEWHERE, NOON
from tests.unit.store.review_items import BOUND, LIVES, SAID, SPAN, Queue, activation, decision, sent

HOUR = timedelta(hours=1)


@pytest.fixture
def queue(store: Store, engine: Engine) -> Queue:
    return Queue(store, engine, NOON, ADA)


def refused(decided: Decided) -> RefusedDecision:
    assert isinstance(decided.outcome, Refusal), decided
    return decided.outcome.kind


def ended(decided: Decided) -> ReviewOutcome:
    assert isinstance(decided.outcome, ReviewOutcome), decided
    return decided.outcome


def change(engine: Engine, row: type, where: object, **values: object) -> None:
    with Session(engine) as session, session.begin():
        session.execute(update(row).where(where).values(**values))  # type: ignore[arg-type]


async def stored(queue: Queue, review: Review) -> Review:
    item = await queue.store.reviews.item(review.review_id, queue.now)
    assert isinstance(item, ReviewItem)
    return item.review


# --- into the queue and out of it ---------------------------------------------------------------------------------


async def test_one_version_of_a_record_has_one_item_whoever_asks_and_however_often(queue: Queue) -> None:
    review = await queue.item()
    again = await queue.store.reviews.open_or_defer(
        ADA,
        activation(ADA, review.record, "turn-1", None, ActivationReason.QUOTED, NOON),
        owner="x",
        bound=0,
        at=NOON + HOUR,
        lives_for=LIVES,
    )
    assert again == review
    assert review.status is ReviewStatus.OPEN and review.expires_at == NOON + LIVES
    assert await queue.events(review) == ["review.opened"]


async def test_over_the_bound_items_wait_for_room_and_come_in_oldest_first(queue: Queue) -> None:
    first = await queue.item(bound=1)
    waiting = [await queue.item(bound=1, at=NOON + number * HOUR) for number in (1, 2)]
    assert [review.status for review in waiting] == [ReviewStatus.DEFERRED] * 2
    assert await queue.events(waiting[0]) == ["review.backlog_full"]
    backlog = await queue.store.reviews.backlog(bound=1, owner="o")
    assert (backlog.open, backlog.deferred, backlog.full, backlog.oldest_opened_at) == (1, 2, True, NOON)
    assert await queue.store.reviews.admit_deferred(bound=1, at=NOON) == []

    credential = await queue.reviewer()
    assert refused(await queue.store.reviews.decide(sent(decision(credential, waiting[0]), waiting[0]), NOON)) is (
        RefusedDecision.NOT_OPEN_YET
    )
    ended(await queue.store.reviews.decide(sent(decision(credential, first), first), NOON))
    later = NOON + 5 * HOUR
    assert await queue.store.reviews.admit_deferred(bound=1, at=later) == [waiting[0].review_id]
    admitted = await stored(queue, waiting[0])
    assert (admitted.status, admitted.version) == (ReviewStatus.OPEN, 2)
    assert (admitted.opened_at, admitted.expires_at) == (later, later + LIVES)
    assert await queue.events(admitted) == ["review.backlog_full", "review.decision_refused", "review.opened"]


async def test_an_item_leaves_with_its_record_deferred_or_open(queue: Queue) -> None:
    open_, deferred, other = await queue.item(), await queue.item(bound=0), await queue.item()
    gone = [open_.record.id, deferred.record.id]
    withdrawn = await queue.store.reviews.withdraw_for_records(gone, at=NOON, actor="ada", why="the user deleted it")
    assert sorted(withdrawn) == sorted([open_.review_id, deferred.review_id])
    assert await queue.store.reviews.withdraw_for_records(gone, at=NOON, actor="ada", why="again") == []
    assert (await stored(queue, open_)).status is ReviewStatus.WITHDRAWN
    assert (await stored(queue, other)).status is ReviewStatus.OPEN
    assert await queue.events(open_) == ["review.opened", "review.withdrawn"]
    credential = await queue.reviewer()
    late = await queue.store.reviews.decide(sent(decision(credential, open_), open_), NOON)
    assert refused(late) is RefusedDecision.WITHDRAWN


async def test_a_new_version_under_review_withdraws_the_item_of_the_old_one(queue: Queue) -> None:
    old = await queue.item()
    newer = RecordRef(id=old.record.id, version=2)
    new = await queue.store.reviews.open_or_defer(
        ADA,
        activation(ADA, newer, "turn-1", ActivationCategory.ANSWER_STYLE, ActivationReason.QUOTED, NOON),
        owner="o",
        bound=BOUND,
        at=NOON,
        lives_for=LIVES,
    )
    assert new.review_id != old.review_id
    assert (await stored(queue, old)).status is ReviewStatus.WITHDRAWN


@pytest.mark.parametrize(
    "changed",
    [
        {"version": 2},
        {"status": "deleted"},
        {"status": "superseded", "superseded_by": "other"},
        {"valid_until": NOON},
        {"tenant": "somebody-else"},
    ],
    ids=str,
)
async def test_a_record_that_changed_behind_the_queues_back_withdraws_its_item_at_the_next_look(
    queue: Queue, changed: dict[str, object]
) -> None:
    looked_at, decided_on = await queue.item(), await queue.item()
    for review in (looked_at, decided_on):
        change(queue.engine, RecordRow, RecordRow.id == review.record.id, **changed)
    state = await queue.store.reviews.step(looked_at.review_id, ReviewStep.LOOK, NOON)
    assert state.status is ReviewStatus.WITHDRAWN and state.ended
    credential = await queue.reviewer()
    late = await queue.store.reviews.decide(sent(decision(credential, decided_on), decided_on), NOON)
    assert refused(late) is RefusedDecision.WITHDRAWN
    assert (await stored(queue, decided_on)).status is ReviewStatus.WITHDRAWN


async def test_the_clock_reminds_escalates_and_expires_once_and_nothing_of_it_makes_a_decision_stale(
    queue: Queue,
) -> None:
    review, steps = await queue.item(), queue.store.reviews.step
    for step in (ReviewStep.LOOK, ReviewStep.REMIND, ReviewStep.REMIND, ReviewStep.ESCALATE, ReviewStep.ESCALATE):
        state = await steps(review.review_id, step, NOON + HOUR)
    assert (state.reminded, state.escalated, state.version) == (True, True, review.version)
    early = await steps(review.review_id, ReviewStep.EXPIRE, NOON + LIVES - HOUR)
    assert early == state, "no workflow whatever it was started with ends an item before its time"
    for _ in range(2):
        state = await steps(review.review_id, ReviewStep.EXPIRE, NOON + LIVES)
    assert state.status is ReviewStatus.EXPIRED
    (record,) = await queue.store.records(ADA)
    assert (record.status.value, record.activation.value, record.version) == ("confirmed", "conditional", 1)
    assert await queue.events(review) == ["review.opened", "review.reminded", "review.escalated", "review.expired"]
    credential = await queue.reviewer()
    late = await queue.store.reviews.decide(sent(decision(credential, review), review), NOON + LIVES)
    assert refused(late) is RefusedDecision.ALREADY_RESOLVED


async def test_an_item_whose_row_is_erased_has_ended(store: Store) -> None:
    state = await store.reviews.step("gone", ReviewStep.LOOK, NOON)
    assert state.ended


async def test_what_temporal_has_yet_to_hear(queue: Queue) -> None:
    desk = queue.store.reviews
    one, two = await queue.item(), await queue.item(bound=BOUND)
    due = await desk.due_to_start(overdue_before=NOON, limit=10)
    assert {item.review_id for item in due} == {one.review_id, two.review_id}
    await desk.workflows_started([one.review_id, two.review_id])
    assert await desk.due_to_start(overdue_before=NOON, limit=10) == []
    overdue = await desk.due_to_start(overdue_before=NOON + 2 * LIVES, limit=1)
    assert len(overdue) == 1
    await desk.withdraw_for_records([one.record.id], at=NOON, actor="a", why="w")
    assert await desk.due_to_hear(10) == [one.review_id]
    await desk.step(one.review_id, ReviewStep.LOOK, NOON)  # its workflow looked: it has heard
    assert await desk.due_to_hear(10) == []


# --- decisions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resolution", "status", "record_state", "events"),
    [
        (Resolution.PROMOTE, ReviewStatus.PROMOTED, ("confirmed", "ambient", 2), ["record.activation_changed"]),
        (Resolution.KEEP_CONDITIONAL, ReviewStatus.KEPT_CONDITIONAL, ("confirmed", "conditional", 1), []),
        (Resolution.REJECT, ReviewStatus.REJECTED, ("rejected", "conditional", 2), ["record.rejected"]),
    ],
)
async def test_a_resolution_changes_item_record_outbox_and_audit_together(
    queue: Queue, resolution: Resolution, status: ReviewStatus, record_state: tuple[str, str, int], events: list[str]
) -> None:
    review, credential = await queue.item(), await queue.reviewer()
    outcome = ended(
        await queue.store.reviews.decide(sent(decision(credential, review, resolution), review), NOON + HOUR)
    )
    (record,) = await queue.store.records(ADA)
    assert (record.status.value, record.activation.value, record.version) == record_state
    assert outcome == ReviewOutcome(
        review_id=review.review_id,
        status=status,
        record=record.ref,
        resolved_by="rita",
        resolved_at=NOON + HOUR,
    )
    assert await queue.store.pending_index_count() == (record.version - 1)
    assert await queue.events(review) == ["review.opened", "record.activation_reviewed", *events]
    reviewed = next(
        event for event in await queue.store.audit_events(ADA) if event.event == "record.activation_reviewed"
    )
    assert (reviewed.actor, reviewed.reason) == ("rita", "plain")
    assert reviewed.after is not None and reviewed.after["resolution"] == resolution.value
    ambient = await queue.store.ambient_records(ADA, NOON)
    assert [ref.id for ref in ambient] == ([record.id] if resolution is Resolution.PROMOTE else [])


async def test_the_same_decision_sent_again_is_answered_another_is_refused(queue: Queue) -> None:
    review, credential = await queue.item(), await queue.reviewer()
    first = await queue.store.reviews.decide(sent(decision(credential, review), review, "a"), NOON)
    again = await queue.store.reviews.decide(sent(decision(credential, review), review, "b"), NOON + HOUR)
    assert ended(again) == ended(first) and again.repeated
    other = decision(credential, review, reason="on second thoughts")
    for _ in range(2):  # the second time it is the same sending, handled again
        late = await queue.store.reviews.decide(sent(other, review, "c"), NOON + HOUR)
        assert refused(late) is RefusedDecision.ALREADY_RESOLVED
    events = await queue.events(review)
    assert events.count("record.activation_reviewed") == events.count("review.decision_refused") == 1


async def test_of_many_at_once_one_is_taken_and_every_other_is_on_record(queue: Queue) -> None:
    review = await queue.item()
    people = [await queue.reviewer(f"reviewer-{number}") for number in range(6)]
    decided = await asyncio.gather(
        *(
            queue.store.reviews.decide(sent(decision(person, review), review, person.reviewer_id), NOON)
            for person in people
        )
    )
    taken = [one.outcome for one in decided if isinstance(one.outcome, ReviewOutcome)]
    assert len(taken) == 1
    assert [refused(one) for one in decided if isinstance(one.outcome, Refusal)] == [
        RefusedDecision.ALREADY_RESOLVED
    ] * 5
    events = await queue.events(review)
    assert (events.count("record.activation_reviewed"), events.count("review.decision_refused")) == (1, 5)


async def test_whoever_may_not_decide_is_refused_audited_and_changes_nothing(queue: Queue) -> None:
    review, other = await queue.item(), await queue.item()
    rita, eve = await queue.reviewer("rita"), ReviewerCredential.issue("rita")
    viewer = await queue.reviewer("vera", ReviewerRole.VIEWER)
    foreign = await queue.reviewer("fred", tenants=["acme2"])
    gone = await queue.reviewer("gina")
    await queue.store.reviewers.disable("gina", actor="root", reason="left", at=NOON)
    honest = decision(rita, review)
    forged = {
        "wrong key": decision(eve, review),
        "nobody known": decision(ReviewerCredential.issue("nobody"), review),
        "another item's": decision(rita, other),
        "changed reason": honest.model_copy(update={"reason": "something else"}),
        "changed resolution": honest.model_copy(update={"resolution": Resolution.REJECT}),
        "changed version": honest.model_copy(update={"expected_version": 7}),
        "changed person": honest.model_copy(update={"reviewer_id": "vera"}),
        "no signature": honest.model_copy(update={"signature": "…"}),
        "a viewer": decision(viewer, review),
        "another tenant's": decision(foreign, review),
        "disabled": decision(gone, review),
    }
    for name, forgery in forged.items():
        decided = await queue.store.reviews.decide(sent(forgery, review, name), NOON)
        assert refused(decided) is RefusedDecision.NOT_A_REVIEWER, name
    assert (await stored(queue, review)) == review
    refusals = [
        event for event in await queue.store.audit_events(ADA, review.review_id) if event.event != "review.opened"
    ]
    assert len(refusals) == len(forged)
    assert {event.actor for event in refusals} == {"unverified", "rita", "vera", "fred", "gina"}
    ended(await queue.store.reviews.decide(sent(honest, review, "at last"), NOON))


async def test_what_cannot_be_done_is_refused_by_name(queue: Queue) -> None:
    review, rita = await queue.item(), await queue.reviewer()
    stale = rita.decide(review.review_id, Resolution.REJECT, expected_version=2)
    unknown = rita.decide(review.review_id, "promote_everywhere", expected_version=1)  # type: ignore[arg-type]
    expected = {
        RefusedDecision.STALE_VERSION: sent(stale, review, "a"),
        RefusedDecision.UNKNOWN_RESOLUTION: sent(unknown, review, "b"),
        RefusedDecision.MALFORMED: SentDecision(
            review_id=review.review_id, decision=None, sent_as="c", via="approve", problem="no JSON"
        ),
        RefusedDecision.UNKNOWN_REVIEW: SentDecision(
            review_id="nothing",
            decision=rita.decide("nothing", Resolution.REJECT, expected_version=1),
            sent_as="d",
            via="resolve",
        ),
    }
    for kind, sending in expected.items():
        assert refused(await queue.store.reviews.decide(sending, NOON)) is kind
    wrong_signal = sent(decision(rita, review, Resolution.REJECT), review, "e", via="approve")
    assert refused(await queue.store.reviews.decide(wrong_signal, NOON)) is RefusedDecision.UNKNOWN_RESOLUTION
    assert (await queue.events(review)).count("review.decision_refused") == 4
    assert [event.event for event in await queue.store.audit_events(OPERATORS, "nothing")] == [
        "review.decision_refused"
    ]


@pytest.mark.parametrize(
    "spoiled",
    ["turn gone", "turn changed", "not the user's", "conflicting", "provisional", "about somebody else", "suspended"],
)
async def test_a_promotion_needs_all_an_automatic_one_would_the_other_resolutions_do_not(
    queue: Queue, spoiled: str
) -> None:
    review, rita = await queue.item(), await queue.reviewer()
    assert review.evidence is not None
    turn, record = SessionTurnRow.id == review.evidence.turn_ref, RecordRow.id == review.record.id
    match spoiled:
        case "turn gone":
            change(queue.engine, SessionTurnRow, turn, id="elsewhere")
        case "turn changed":
            change(queue.engine, SessionTurnRow, turn, text=SAID.replace("always", "never "))
        case "not the user's":
            change(queue.engine, SessionTurnRow, turn, role="assistant")
        case "conflicting":
            change(queue.engine, RecordRow, record, conflicting=True)
        case "provisional":
            change(queue.engine, RecordRow, record, status="provisional")
        case "about somebody else":
            change(queue.engine, RecordRow, record, subject="mother")
        case _:
            change(queue.engine, RecordRow, record, suspended_by="other")
    promoted = await queue.store.reviews.decide(sent(decision(rita, review), review, "a"), NOON)
    assert refused(promoted) is RefusedDecision.NOT_ELIGIBLE
    assert (await stored(queue, review)).status is ReviewStatus.OPEN
    kept = decision(rita, review, Resolution.KEEP_CONDITIONAL)
    assert ended(await queue.store.reviews.decide(sent(kept, review, "b"), NOON)).status is (
        ReviewStatus.KEPT_CONDITIONAL
    )


@pytest.mark.parametrize(
    ("policy", "reviewer", "taken"),
    [
        (None, None, False),
        (None, ActivationCategory.ACCESSIBILITY, True),
        (None, ActivationCategory.OTHER, False),
        (ActivationCategory.OTHER, None, False),
        (ActivationCategory.OTHER, ActivationCategory.ANSWER_STYLE, False),
        (ActivationCategory.ANSWER_STYLE, ActivationCategory.ANSWER_STYLE, True),
        (ActivationCategory.ANSWER_STYLE, ActivationCategory.RESPONSE_LANGUAGE, False),
    ],
)
async def test_a_reviewer_names_a_category_only_where_no_policy_did_and_widens_nothing(
    queue: Queue, policy: ActivationCategory | None, reviewer: ActivationCategory | None, taken: bool
) -> None:
    review, rita = await queue.item(category=policy), await queue.reviewer()
    promotion = rita.decide(review.review_id, Resolution.PROMOTE, expected_version=1, reason="plain", category=reviewer)
    decided = await queue.store.reviews.decide(sent(promotion, review), NOON)
    assert isinstance(decided.outcome, ReviewOutcome) is taken


async def test_the_last_place_in_the_queue_is_taken_once_however_many_come_at_once(queue: Queue) -> None:
    items = await asyncio.gather(*(queue.item(bound=5) for _ in range(12)))
    assert sorted(item.status for item in items) == [ReviewStatus.DEFERRED] * 7 + [ReviewStatus.OPEN] * 5


async def test_a_decision_and_a_change_of_the_record_at_once_end_in_one_of_two_ways(queue: Queue) -> None:
    rita = await queue.reviewer()
    for _ in range(6):
        review = await queue.item()
        decided, _, _ = await asyncio.gather(
            queue.store.reviews.decide(sent(decision(rita, review), review), NOON),
            queue.store.lifecycle.delete(ADA, review.record.id, actor="ada", reason="asked for", at=NOON),
            queue.store.reviews.admit_deferred(bound=BOUND, at=NOON),
        )
        now = await stored(queue, review)
        if isinstance(decided.outcome, ReviewOutcome):
            assert now.status is ReviewStatus.PROMOTED
        else:
            assert decided.outcome.kind is RefusedDecision.WITHDRAWN and now.status is ReviewStatus.WITHDRAWN
        assert (await queue.events(review)).count("record.activation_reviewed") == (
            1 if now.status is ReviewStatus.PROMOTED else 0
        )
    assert await queue.store.ambient_records(ADA, NOON) == [], "deleted either way"


# --- what people look at ------------------------------------------------------------------------------------------


async def test_pages_list_every_item_of_the_filter_once_and_the_count_says_how_many(queue: Queue) -> None:
    for number in range(7):
        await queue.item(at=NOON + (number // 3) * HOUR)  # several of the same moment
    await queue.item(principal=ELSEWHERE)
    await queue.item(reason=ActivationReason.QUOTED, at=NOON - HOUR)
    desk = queue.store.reviews
    for newest_first in (False, True):
        wanted = ReviewFilter(tenants=("acme",), limit=3, newest_first=newest_first)
        seen: list[Review | UnreadableReview] = []
        cursor = None
        while True:
            page = await desk.page(wanted, cursor)
            seen += page.items
            cursor = page.next_cursor
            if cursor is None:
                break
        assert len(seen) == len({item.review_id for item in seen}) == page.total == 8
        times = [item.opened_at for item in seen]
        assert times == sorted(times, reverse=newest_first)
    assert (await desk.page(ReviewFilter(reason=ActivationReason.QUOTED))).total == 1
    assert (await desk.page(ReviewFilter(opened_before=NOON))).total == 1
    assert (await desk.page(ReviewFilter(language="en"))).total == 9
    assert (await desk.page(ReviewFilter(statuses=None, tenants=("acme2",)))).total == 1
    assert (await desk.page(ReviewFilter(statuses=(ReviewStatus.REJECTED,)))).items == ()
    for bad in ("x", "", "aGVsbG8=", "MjAyNi0wNi0wMVQxMjowMDowMCB4"):
        with pytest.raises(BadCursorError):
            await desk.page(ReviewFilter(), bad)


async def test_an_item_this_version_cannot_read_is_listed_counted_and_can_be_kept(queue: Queue) -> None:
    review, rita = await queue.item(), await queue.reviewer()
    change(queue.engine, ReviewRow, ReviewRow.review_id == review.review_id, reason="from_the_future", category="new")
    page = await queue.store.reviews.page(ReviewFilter())
    (listed,) = page.items
    assert isinstance(listed, UnreadableReview) and page.total == 1
    assert "reason" in listed.problem and "from_the_future" not in listed.problem
    assert isinstance(await queue.store.reviews.item(review.review_id, NOON), UnreadableReview)
    assert refused(await queue.store.reviews.decide(sent(decision(rita, review), review, "a"), NOON)) is (
        RefusedDecision.NOT_ELIGIBLE
    )
    kept = decision(rita, review, Resolution.KEEP_CONDITIONAL)
    ended(await queue.store.reviews.decide(sent(kept, review, "b"), NOON))


async def test_an_item_shows_the_words_and_what_the_next_profile_would_look_like(queue: Queue) -> None:
    review = await queue.item()
    item = await queue.store.reviews.item(review.review_id, NOON)
    assert isinstance(item, ReviewItem)
    assert item.turn_text == SAID and item.review.evidence is not None and item.review.evidence.span == SPAN
    assert item.record_text == "Prefers answers in short sentences."
    assert item.profile_before == "" and "short sentences" in item.profile_after
    assert [event.event for event in item.history] == ["review.opened"]
    assert await queue.store.reviews.item("nothing", NOON) is None
    change(queue.engine, SessionTurnRow, SessionTurnRow.id == item.review.evidence.turn_ref, user_id=BOB.user)
    stolen = await queue.store.reviews.item(review.review_id, NOON)
    assert isinstance(stolen, ReviewItem) and stolen.turn_text is None


async def test_stats_say_what_became_of_items_and_how_long_people_took(queue: Queue) -> None:
    rita = await queue.reviewer()
    items = [await queue.item() for _ in range(4)]
    for number, review in enumerate(items[:3]):
        said = decision(rita, review, Resolution.KEEP_CONDITIONAL)
        await queue.store.reviews.decide(sent(said, review), NOON + (number + 1) * HOUR)
    stats = await queue.store.reviews.stats(NOON, bound=9, owner="o")
    assert stats.by_status == {"kept_conditional": 3, "open": 1}
    assert stats.by_reviewer == {"rita": 3} and stats.by_reason == {"low_confidence": 4}
    assert (stats.median_wait_s, stats.p95_wait_s) == (7_200, 10_800)
    assert (await queue.store.reviews.stats(NOON + HOUR, bound=9, owner="o")).by_status == {}
    assert stats.backlog.open == 1 and stats.backlog.bound == 9


# --- reviewers ----------------------------------------------------------------------------------------------------


async def test_a_token_opens_for_its_holder_until_they_are_disabled_and_is_stored_nowhere(
    queue: Queue, engine: Engine
) -> None:
    register = queue.store.reviewers
    reviewer, token = await register.register(
        "rita", "Rita R.", ReviewerRole.REVIEWER, tenants=["acme"], actor="root", at=NOON
    )
    assert await register.authenticate(token) == reviewer
    assert await register.list() == [reviewer]
    for wrong in ("", "x", token[:-2], token + "A", ReviewerCredential.issue("rita").token, "retold-reviewer.a.b"):
        assert await register.authenticate(wrong) is None
    with pytest.raises(ReviewerExistsError):
        await register.register("rita", "Another", ReviewerRole.VIEWER, actor="root", at=NOON)
    with pytest.raises(UnknownReviewerError):
        await register.disable("nobody", actor="root", reason="", at=NOON)
    review = await queue.item()
    said = decision(ReviewerCredential.of(token), review)
    assert await register.verify(said) == reviewer
    assert await register.verify(said.model_copy(update={"reason": "else"})) is None
    await register.disable("rita", actor="root", reason="left", at=NOON)
    assert await register.authenticate(token) is None
    events = [event.event for event in await queue.store.audit_events(OPERATORS, "rita")]
    assert events == ["reviewer.registered", "reviewer.disabled"]
    with engine.connect() as connection:
        dump = str([connection.execute(select(table)).all() for table in Row.metadata.sorted_tables])
    assert token not in dump and token.split(".")[2] not in dump


@pytest.mark.parametrize("resolution", list(Resolution))
@pytest.mark.parametrize("reason", ["", " \n", "it says sk-" + "a1B2" * 8])
async def test_a_decision_says_why_and_holds_no_secret(queue: Queue, resolution: Resolution, reason: str) -> None:
    review, rita = await queue.item(), await queue.reviewer()
    decided = await queue.store.reviews.decide(sent(decision(rita, review, resolution, reason), review), NOON)
    assert isinstance(decided.outcome, Refusal) and decided.outcome.kind is RefusedDecision.MALFORMED
    assert decided.outcome.why.startswith("reason ")
    refused = (await queue.store.audit_events(ADA, review.review_id))[-1]
    assert (refused.event, refused.reason) == ("review.decision_refused", decided.outcome.why)
    assert reason.strip() == "" or reason not in refused.model_dump_json()
    again = await queue.store.reviews.decide(sent(decision(rita, review, resolution), review, "again"), NOON)
    assert isinstance(again.outcome, ReviewOutcome)
