"""What an evaluation asks, what it writes, in what order, and that it writes nothing about anything else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, update
from sqlalchemy.orm import Session
from sqlmodel import col, select

from retold.contracts.activation import (
    ActivationCategory,
    ActivationOutcome,
    ActivationReason,
    Applicability,
    CategoryDecision,
    EvidenceMethod,
    StandingText,
    VerifiedEvidence,
)
from retold.contracts.extraction import OwnTurn
from retold.contracts.record import (
    Activation,
    MemoryRecord,
    RecordStatus,
    RetrievalCategory,
    Source,
    TranscriptWrite,
)
from retold.contracts.turn import Principal
from retold.policy.activation import service as services
from retold.policy.activation.service import ActivationService, RecordKeepsChangingError, Settled
from retold.policy.blocking import BlockingPool, PoolClosedError
from retold.policy.ports import MalformedReplyError, RefusedByProviderError
from retold.store.activations import ReviewTerms
from retold.store.store import Store
from retold.store.tables import ActivationRow, EvidenceRow, OutboxRow, RecordRow, ReviewRow
from tests.unit.store.conftest import ADA, BOB, NOON, PutRecord

DAY = timedelta(days=1)
TEXT = "Always answer me in short sentences."
BROAD = CategoryDecision(
    retrieval_category=RetrievalCategory.PREFERENCES,
    activation_category=ActivationCategory.ANSWER_STYLE,
    applicability=Applicability.BROAD,
    confidence=0.95,
    policy="scripted",
    policy_version="1",
)

Answer = CategoryDecision | Exception | Callable[[], Awaitable[CategoryDecision]]


@dataclass
class Policies:
    """A label and a proposal by script; both count how often they were asked."""

    label: RetrievalCategory | Exception = RetrievalCategory.PREFERENCES
    answer: Answer = BROAD
    asked: list[StandingText] = field(default_factory=list)
    identity: str = "labels-1"

    async def categorise(self, records: Sequence[MemoryRecord]) -> Sequence[RetrievalCategory]:
        if isinstance(self.label, Exception):
            raise self.label
        return [self.label for _ in records]

    async def propose(self, standing: StandingText) -> CategoryDecision:
        self.asked.append(standing)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer if isinstance(self.answer, CategoryDecision) else await self.answer()


async def to_the_letter(
    record: MemoryRecord, turns: Sequence[OwnTurn], embedder: object = None
) -> VerifiedEvidence | None:
    """Evidence where the record's own words stand in a turn."""
    for turn in reversed(turns):
        if (start := turn.text.find(record.text)) >= 0:
            return VerifiedEvidence(
                session_id=turn.session_id,
                turn_id=turn.turn_id,
                turn_ref=turn.turn_ref,
                span=record.text,
                start=start,
                end=start + len(record.text),
                said_at=turn.said_at,
                method=EvidenceMethod.EXACT,
            )
    return None


@pytest.fixture
def policies(monkeypatch: pytest.MonkeyPatch) -> Policies:
    """Evidence and the words' own judgement are tested where they are written: here the words are those of the record,
    and speak plainly."""

    def plain(
        text: str, evidence: VerifiedEvidence, turns: Sequence[OwnTurn], replaced: Sequence[str] = ()
    ) -> tuple[ActivationOutcome, ActivationReason]:
        return ActivationOutcome.PROMOTE, ActivationReason.ELIGIBLE_BROAD_PREFERENCE

    monkeypatch.setattr("retold.policy.activation.rules.judge_statement", plain)
    monkeypatch.setattr("retold.policy.activation.service.find_evidence", to_the_letter)
    return Policies()


def service(store: Store, policies: Policies, **changed: Any) -> ActivationService:
    return ActivationService(
        book=store.activations.on(ReviewTerms(owner="ops", bound=changed.pop("bound", 500))),
        labels=policies,
        embedder=None,
        **{
            "pool": BlockingPool(max_threads=4, name="test"),
            "policy": policies,
            "timeout_ms": 2_000,
            "now": lambda: NOON,
            **changed,
        },
    )


async def evaluate(store: Store, policies: Policies, record_id: str = "r", **changed: Any) -> Settled | None:
    return await service(store, policies, **changed).evaluate(ADA, record_id, actor="host", cause="remembered")


async def say(store: Store, text: str, *, owner: Principal = ADA, turn: str = "t1", role: Any = "user") -> None:
    line = TranscriptWrite(kind="turn", session_id=f"s of {owner.user}", turn_id=turn, role=role, text=text, at=NOON)
    await store.import_lines(owner, [line], actor="host", at=NOON)


async def events_of(store: Store, record_id: str = "r") -> list[str]:
    return [event.event for event in await store.audit_events(ADA, record_id)]


async def record_of(store: Store, record_id: str = "r") -> MemoryRecord:
    return (await store.records_by_id([record_id]))[record_id]


async def test_a_standing_preference_is_confirmed_and_promoted_step_by_step_in_one_new_version(
    store: Store, put_record: PutRecord, policies: Policies, engine: Engine
) -> None:
    await say(store, f"By the way. {TEXT} Thanks!")
    await put_record("r", text=TEXT, status="provisional", source="model", attribute="answer_length")
    settled = await evaluate(store, policies)
    assert settled is not None and settled.changed
    assert (settled.decision.outcome, settled.decision.record.version) == (ActivationOutcome.PROMOTE, 2)
    record = await record_of(store)
    assert (record.status, record.activation, record.source, record.category, record.version) == (
        RecordStatus.CONFIRMED, Activation.AMBIENT, Source.PRINCIPAL, RetrievalCategory.PREFERENCES, 2,
    )  # fmt: skip
    trail = await store.audit_events(ADA, "r")
    assert [event.event for event in trail] == [
        "record.category_assigned",
        "record.activation_evidence_verified",
        "record.confirmed",
        "record.activation_decided",
        "record.activation_changed",
    ]
    said: list[dict[str, Any]] = [dict(event.after or {}) for event in trail]
    label, evidence, confirmed, decided, changed = said
    assert (label["assigned"], label["attribute"], label["differs"]) == ("preferences", "answer_length", False)
    assert (evidence["method"], evidence["end"] - evidence["start"]) == ("exact", len(TEXT))
    assert (confirmed["status"], decided["outcome"], changed["activation"]) == ("confirmed", "promote", "ambient")
    assert (decided["policy"], decided["policy_version"]) == ("scripted", "1")
    assert TEXT not in str([event.model_dump() for event in trail])
    with Session(engine) as session:
        found = session.scalars(select(EvidenceRow)).one()
        assert (found.span, found.record_version) == (TEXT, 2)
        assert [row.record_id for row in session.scalars(select(OutboxRow))] == ["r"]


NOT_ELIGIBLE: list[tuple[dict[str, Any], ActivationReason]] = [
    ({"type": "episodic"}, ActivationReason.NOT_SEMANTIC),
    ({"subject": "bob"}, ActivationReason.NOT_ABOUT_PRINCIPAL),
    ({"status": "rejected"}, ActivationReason.NOT_ACTIVE),
    ({"status": "deleted"}, ActivationReason.NOT_ACTIVE),
    ({"status": "superseded", "superseded_by": "other"}, ActivationReason.SUPERSEDED),
    ({"valid_until": NOON}, ActivationReason.EXPIRED),
    ({"valid_from": NOON + DAY}, ActivationReason.NOT_YET_VALID),
    ({"conflicting": True}, ActivationReason.CONFLICTING),
    ({"suspended_by": "other"}, ActivationReason.SUSPENDED),
]


@pytest.mark.parametrize(("fields", "reason"), NOT_ELIGIBLE, ids=lambda value: str(value)[:40])
async def test_nobody_is_asked_about_a_record_that_is_not_eligible_and_it_gets_its_label(
    store: Store, put_record: PutRecord, policies: Policies, fields: dict[str, Any], reason: ActivationReason
) -> None:
    await say(store, TEXT)
    await put_record("r", text=TEXT, **fields)
    settled = await evaluate(store, policies)
    assert settled is not None
    assert (settled.decision.outcome, settled.decision.reason) == (ActivationOutcome.CONDITIONAL, reason)
    assert policies.asked == []
    assert await events_of(store) == ["record.category_assigned", "record.activation_decided"]


async def test_words_of_others_are_no_evidence(store: Store, put_record: PutRecord, policies: Policies) -> None:
    await say(store, TEXT, role="assistant")
    await say(store, TEXT, role="tool", turn="t2")
    await say(store, TEXT, owner=BOB)
    await say(store, f"<memory-0123456789abcdef>\n{TEXT}\n</memory-0123456789abcdef> why do you know?", turn="t3")
    await put_record("r", text=TEXT, status="provisional", source="model")
    settled = await evaluate(store, policies)
    assert settled is not None and settled.decision.reason is ActivationReason.NO_HOST_VERIFIED_EVIDENCE
    assert policies.asked == []
    assert (await record_of(store)).status is RecordStatus.PROVISIONAL


async def test_a_category_the_host_chose_stays_and_the_difference_is_on_record(
    store: Store, put_record: PutRecord, policies: Policies
) -> None:
    await put_record("r", category="people", attribute="team")
    await evaluate(store, policies)
    assert (await record_of(store)).category is RetrievalCategory.PEOPLE
    (assigned, _) = await store.audit_events(ADA, "r")
    said = assigned.after or {}
    assert (said["category"], said["assigned"], said["differs"]) == ("people", "preferences", True)


async def hang() -> CategoryDecision:
    await asyncio.sleep(60)
    return BROAD


FAILURES: list[tuple[Answer, ActivationReason]] = [
    (hang, ActivationReason.POLICY_TIMEOUT),
    (MalformedReplyError("no_valid_object"), ActivationReason.POLICY_MALFORMED),
    (RefusedByProviderError("quota"), ActivationReason.POLICY_ERROR),
    (OSError("reset"), ActivationReason.POLICY_ERROR),
    (BROAD.model_copy(update={"unsafe": True}), ActivationReason.FLAGGED_UNSAFE),
    (BROAD.model_copy(update={"confidence": 0.69}), ActivationReason.LOW_CONFIDENCE),
    (BROAD.model_copy(update={"applicability": Applicability.AMBIGUOUS}), ActivationReason.AMBIGUOUS_APPLICABILITY),
]


@pytest.mark.parametrize(("answer", "reason"), FAILURES, ids=lambda value: getattr(value, "__name__", str(value)[:30]))
async def test_a_policy_that_fails_or_doubts_sends_the_record_to_review_and_promotes_nothing(
    store: Store, put_record: PutRecord, policies: Policies, engine: Engine, answer: Answer, reason: ActivationReason
) -> None:
    await say(store, TEXT)
    await put_record("r", text=TEXT)
    policies.answer = answer
    settled = await evaluate(store, policies, timeout_ms=50)
    assert settled is not None and settled.review_id is not None
    assert (settled.decision.outcome, settled.decision.reason) == (ActivationOutcome.REVIEW, reason)
    assert (await record_of(store)).activation is Activation.CONDITIONAL
    with Session(engine) as session:
        review = session.scalars(select(ReviewRow)).one()
        assert (review.review_id, review.reason, review.status) == (settled.review_id, reason.value, "open")
        assert (review.record_version, review.owner) == (settled.decision.record.version, "ops")


async def test_a_blocking_policy_that_never_returns_holds_nobody(
    store: Store, put_record: PutRecord, policies: Policies
) -> None:
    import threading

    returned = threading.Event()

    class Blocking:
        def propose(self, standing: StandingText) -> CategoryDecision:
            returned.wait(30)
            return BROAD

    await say(store, TEXT)
    await put_record("r", text=TEXT)
    settled = await evaluate(store, policies, policy=Blocking(), timeout_ms=50)
    returned.set()
    assert settled is not None and settled.decision.reason is ActivationReason.POLICY_TIMEOUT


async def test_without_a_free_thread_nobody_was_asked_and_nothing_is_decided(
    store: Store, put_record: PutRecord, policies: Policies
) -> None:
    class Blocking:
        def propose(self, standing: StandingText) -> CategoryDecision:
            raise AssertionError("not asked")

    await say(store, TEXT)
    await put_record("r", text=TEXT)
    pool = BlockingPool(max_threads=1, name="test")
    pool.close()
    with pytest.raises(PoolClosedError):
        await evaluate(store, policies, policy=Blocking(), pool=pool)
    assert await events_of(store) == []
    assert await evaluate(store, policies) is not None


async def test_a_label_that_cannot_be_had_is_other_and_the_trail_says_why(
    store: Store, put_record: PutRecord, policies: Policies
) -> None:
    policies.label = OSError("reset")
    await put_record("r")
    await evaluate(store, policies)
    (assigned, _) = await store.audit_events(ADA, "r")
    assert (assigned.after or {})["assigned"] == "other"
    assert (assigned.after or {})["failure"] == "error"


async def test_the_same_version_is_settled_once_however_many_evaluate_it(
    store: Store, put_record: PutRecord, policies: Policies
) -> None:
    await say(store, TEXT)
    await put_record("r", text=TEXT, status="provisional")
    settled = await asyncio.gather(*(evaluate(store, policies) for _ in range(4)))
    assert sum(each is not None for each in settled) == 1
    assert await evaluate(store, policies) is None
    assert len(await events_of(store)) == 5


async def test_a_record_that_changes_while_the_policy_thinks_is_considered_again(
    store: Store, put_record: PutRecord, policies: Policies, engine: Engine
) -> None:
    await say(store, TEXT)
    await say(store, "Answer at length.", turn="t2")
    await put_record("r", text=TEXT)

    async def thinking() -> CategoryDecision:
        if len(policies.asked) == 1:
            with Session(engine) as session, session.begin():
                session.execute(
                    update(RecordRow).values(text="Answer at length.", version=2, content_hash="another statement")
                )
        return BROAD

    policies.answer = thinking
    settled = await evaluate(store, policies)
    assert settled is not None and settled.decision.evidence is not None
    assert [standing.text for standing in policies.asked] == [TEXT, "Answer at length."]
    assert settled.decision.evidence.span == "Answer at length."
    assert (await events_of(store)).count("record.activation_decided") == 1


async def test_what_is_deleted_or_forgotten_meanwhile_is_not_brought_back(
    store: Store, put_record: PutRecord, policies: Policies, engine: Engine
) -> None:
    await say(store, TEXT)
    await put_record("r", text=TEXT)

    async def thinking() -> CategoryDecision:
        with Session(engine) as session, session.begin():
            session.delete(session.get(RecordRow, "r"))
        return BROAD

    policies.answer = thinking
    assert await evaluate(store, policies) is None
    with Session(engine) as session:
        assert session.scalars(select(EvidenceRow)).all() == []
        assert session.scalars(select(ActivationRow)).all() == []


async def test_a_record_that_always_changes_is_left_for_later(
    store: Store, put_record: PutRecord, policies: Policies, engine: Engine
) -> None:
    await say(store, TEXT)
    await put_record("r", text=TEXT)

    async def thinking() -> CategoryDecision:
        with Session(engine) as session, session.begin():
            session.execute(update(RecordRow).values(version=RecordRow.version + 1))
        return BROAD

    policies.answer = thinking
    with pytest.raises(RecordKeepsChangingError):
        await evaluate(store, policies)
    assert len(policies.asked) == services.ATTEMPTS
    assert await events_of(store) == []


async def test_evidence_that_is_erased_while_the_policy_thinks_confirms_nothing(
    store: Store, put_record: PutRecord, policies: Policies, engine: Engine
) -> None:
    from retold.store.tables import SessionTurnRow

    await say(store, TEXT)
    await put_record("r", text=TEXT, status="provisional")

    async def thinking() -> CategoryDecision:
        with Session(engine) as session, session.begin():
            for row in session.scalars(select(SessionTurnRow)):
                session.delete(row)
        return BROAD

    policies.answer = thinking
    settled = await evaluate(store, policies)
    assert settled is not None and settled.decision.reason is ActivationReason.NO_HOST_VERIFIED_EVIDENCE
    assert (await record_of(store)).status is RecordStatus.PROVISIONAL


async def change(engine: Engine, record_id: str = "r", **values: Any) -> None:
    """As the lifecycle changes a record: with a new version."""
    with Session(engine) as session, session.begin():
        session.execute(
            update(RecordRow).where(col(RecordRow.id) == record_id).values(version=RecordRow.version + 1, **values)
        )


async def test_an_ambient_record_whose_words_change_must_earn_it_again(
    store: Store, put_record: PutRecord, policies: Policies, engine: Engine
) -> None:
    await say(store, TEXT)
    await put_record("r", text=TEXT)
    await evaluate(store, policies)
    await change(engine, text="Answer like a pirate.", content_hash="other words")
    settled = await evaluate(store, policies)
    assert settled is not None and settled.decision.reason is ActivationReason.NO_HOST_VERIFIED_EVIDENCE
    assert (await record_of(store)).activation is Activation.CONDITIONAL
    assert (await events_of(store))[-1] == "record.activation_changed"
    with Session(engine) as session:
        assert session.scalars(select(EvidenceRow)).all() == []


async def test_a_contradiction_demotes_and_its_resolution_promotes_again(
    store: Store, put_record: PutRecord, policies: Policies, engine: Engine
) -> None:
    await say(store, TEXT)
    await put_record("r", text=TEXT)
    await evaluate(store, policies)
    await change(engine, conflicting=True, conflicts_with=["other"])
    settled = await evaluate(store, policies)
    assert settled is not None and settled.decision.reason is ActivationReason.CONFLICTING
    assert (await record_of(store)).activation is Activation.CONDITIONAL
    await change(engine, conflicting=False, conflicts_with=[])
    settled = await evaluate(store, policies)
    assert settled is not None and settled.decision.outcome is ActivationOutcome.PROMOTE


async def test_a_suspension_takes_nothing_back_and_nobody_is_asked_about_the_same_words_again(
    store: Store, put_record: PutRecord, policies: Policies, engine: Engine
) -> None:
    await say(store, TEXT)
    await put_record("r", text=TEXT)
    await evaluate(store, policies)
    for suspended_by in ("a temporary one", None):
        await change(engine, suspended_by=suspended_by)
        assert await evaluate(store, policies) is None
        assert (await record_of(store)).activation is Activation.AMBIENT
    assert len(policies.asked) == 1


@pytest.mark.parametrize(
    "waiting",
    [
        {"valid_from": NOON + DAY},
        {"suspended_by": "another", "suspended_from": NOON - DAY, "suspended_until": NOON + DAY},
    ],
)
async def test_a_record_that_waits_for_the_clock_is_evaluated_again_when_its_time_comes(
    store: Store, put_record: PutRecord, policies: Policies, waiting: dict[str, Any]
) -> None:
    await say(store, TEXT)
    await put_record("r", text=TEXT, category="preferences", **waiting)
    assert await evaluate(store, policies) is not None
    before = NOON + DAY - timedelta(microseconds=1)
    assert await store.activations.due(before, limit=10) == {}
    assert await evaluate(store, policies, now=lambda: before) is None
    assert await store.activations.due(NOON + DAY, limit=10) == {ADA: ["r"]}
    settled = await evaluate(store, policies, now=lambda: NOON + DAY)
    assert settled is not None and settled.decision.outcome is ActivationOutcome.PROMOTE
    assert await store.activations.due(NOON + DAY, limit=10) == {}


async def test_what_is_over_before_it_could_begin_waits_for_nothing_any_more(
    store: Store, put_record: PutRecord, policies: Policies
) -> None:
    await put_record("r", text=TEXT, valid_from=NOON + DAY, valid_until=NOON + 2 * DAY)
    await evaluate(store, policies)
    settled = await evaluate(store, policies, now=lambda: NOON + 3 * DAY)
    assert settled is not None and settled.decision.reason is ActivationReason.EXPIRED
    assert await store.activations.due(NOON + 4 * DAY, limit=10) == {}
    assert await evaluate(store, policies, now=lambda: NOON + 4 * DAY) is None


async def test_what_a_reviewer_kept_conditional_is_not_promoted_behind_their_back(
    store: Store, put_record: PutRecord, policies: Policies, engine: Engine
) -> None:
    await say(store, TEXT)
    await put_record("r", text=TEXT)
    policies.answer = BROAD.model_copy(update={"confidence": 0.1})
    await evaluate(store, policies)
    with Session(engine) as session, session.begin():
        session.execute(update(ActivationRow).values(outcome="conditional", reason="by_reviewer"))
    await change(engine, entities=["x"])
    policies.answer = BROAD
    assert await evaluate(store, policies) is None
    assert (await record_of(store)).activation is Activation.CONDITIONAL


async def test_a_review_is_withdrawn_when_its_record_turns_out_otherwise(
    store: Store, put_record: PutRecord, policies: Policies, engine: Engine
) -> None:
    await say(store, TEXT)
    await put_record("r", text=TEXT)
    policies.answer = OSError("away")
    first = await evaluate(store, policies)
    await change(engine, entities=["x"])
    policies.answer = BROAD
    second = await evaluate(store, policies)
    assert first is not None and second is not None and second.decision.outcome is ActivationOutcome.PROMOTE
    with Session(engine) as session:
        assert [row.status for row in session.scalars(select(ReviewRow))] == ["withdrawn"]


async def test_over_the_bound_a_review_is_deferred_and_the_record_stays_conditional(
    store: Store, put_record: PutRecord, policies: Policies, engine: Engine
) -> None:
    policies.answer = OSError("away")
    for number in range(3):
        await say(store, f"{TEXT} {number}", turn=f"t{number}")
        await put_record(f"r{number}", text=f"{TEXT} {number}")
        await evaluate(store, policies, f"r{number}", bound=2)
    with Session(engine) as session:
        statuses = sorted(row.status for row in session.scalars(select(ReviewRow)))
    assert statuses == ["deferred", "open", "open"]


STATES = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["semantic", "episodic"]),
        "subject": st.sampled_from(["user", "bob"]),
        "status": st.sampled_from(["provisional", "confirmed", "rejected"]),
        "activation": st.sampled_from(["conditional", "ambient"]),
        "conflicting": st.booleans(),
        "text": st.sampled_from([TEXT, "Never said."]),
    }
)
ANSWERS = st.sampled_from([BROAD, OSError("away"), BROAD.model_copy(update={"unsafe": True})])


@given(fields=STATES, answer=ANSWERS, times=st.integers(2, 4))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_evaluating_again_changes_nothing(
    store: Store,
    put_record: PutRecord,
    policies: Policies,
    fields: dict[str, Any],
    answer: Answer,
    times: int,
) -> None:
    """Whatever state a record is in: one decision, one event of each kind, and ambient only if promoted."""
    record_id = uuid4().hex
    await say(store, TEXT)
    await put_record(record_id, **fields, content_hash=record_id)
    policies.answer = answer
    policies.asked.clear()
    outcomes = [await evaluate(store, policies, record_id) for _ in range(times)]
    assert [outcome is not None for outcome in outcomes] == [True] + [False] * (times - 1)
    events = await events_of(store, record_id)
    assert len(events) == len(set(events)) and events[0] == "record.category_assigned"
    assert len(policies.asked) <= 1
    record, first = await record_of(store, record_id), outcomes[0]
    assert first is not None and record.ref == first.decision.record
    assert (record.activation is Activation.AMBIENT) == (first.decision.outcome is ActivationOutcome.PROMOTE)
