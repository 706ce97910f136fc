"""The decision log: a turn's row, searches and texts are written together, once, and found again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from retold.contracts.config import Switches, UtilityAwareConfig
from retold.contracts.decision import StageOutcomes, StageTiming, TurnDecision, TurnRecord
from retold.contracts.disposition import TABLE, Disposition, Reason
from retold.contracts.identity import decision_id, turn_ref, turn_workflow_id
from retold.contracts.record import RecordRef
from retold.contracts.stages import Gap, GapCategory, SearchEntry, Stage
from retold.contracts.turn import Durability, Principal, TurnResult
from retold.store.engine import Transactions
from retold.store.store import Store, StoreUnavailableError
from retold.store.tables import SearchRow
from tests.unit.store.conftest import ADA, BOB, ELSEWHERE, NOON

MINUTE = timedelta(minutes=1)
REF = RecordRef(id="r1", version=2)


def turn(
    turn_id: str = "t1",
    *,
    owner: Principal = ADA,
    session_id: str = "s",
    disposition: Disposition = Disposition.REGENERATED,
    user_text: str = "what do I drink?",
    draft: str | None = "Water.",
    final: str | None = None,
    searches: tuple[str, ...] = (),
    **fields: Any,
) -> TurnRecord:
    workflow_id = turn_workflow_id(owner, session_id, turn_id)
    decision = TurnDecision(
        **{
            "decision_id": decision_id(workflow_id),
            "workflow_id": workflow_id,
            "principal": owner,
            "session_id": session_id,
            "turn_id": turn_id,
            "request_digest": "sha256:one",
            "at": NOON,
            "disposition": disposition,
            "reason": min(TABLE[disposition]),
            "shadow": False,
            "durability": Durability.TURN,
            "requested_budget_ms": "default",
            "effective_budget_ms": 1_500,
            "draft_latency_ms": 412.5,
            "timings": (StageTiming(stage=Stage.DRAFT, started_ms=1.0, ended_ms=413.5),),
            "gaps": (Gap(category=GapCategory.PREFERENCE, query="favourite drink"),),
            "search_ids": searches,
            "config": UtilityAwareConfig(),
            "switches": Switches(),
            "user_turn_ref": turn_ref(owner, session_id, turn_id, "user"),
            "draft_turn_ref": turn_ref(owner, session_id, turn_id, "draft") if draft else None,
            "final_turn_ref": turn_ref(owner, session_id, turn_id, "final") if final else None,
            "outcomes": StageOutcomes(),
            **fields,
        }
    )
    entries = tuple(
        SearchEntry(
            search_id=search_id,
            gap_index=index,
            query="favourite drink",
            generated={"dense": 9},
            dropped={"gate": {"floor": 8}},
            kept=(REF,),
            elapsed_ms=12.5,
        )
        for index, search_id in enumerate(searches)
    )
    return TurnRecord(decision=decision, searches=entries, user_text=user_text, draft=draft, final=final)


def failed(turn_id: str = "t1", **fields: Any) -> TurnRecord:
    return turn(turn_id, disposition=Disposition.FAILED, draft=None, draft_latency_ms=None, **fields)


async def test_a_recorded_turn_reads_back_whole(store: Store) -> None:
    record = turn(final="Oat milk.", searches=("q1", "q2"), applied=(REF,))
    await store.record_turn(record)
    assert await store.decision(record.decision.decision_id) == record.decision
    assert tuple(await store.searches(record.decision.decision_id)) == record.searches
    said = await store.session_turns(ADA, "s")
    assert [(line.role, line.text) for line in said] == [
        ("user", "what do I drink?"),
        ("draft", "Water."),
        ("final", "Oat milk."),
    ]
    decision = record.decision
    assert [line.ref for line in said] == [decision.user_turn_ref, decision.draft_turn_ref, decision.final_turn_ref]
    assert await store.session_turn(decision.user_turn_ref) == said[0]
    assert await store.session_turns(BOB, "s") == []


async def test_the_stored_answer_is_what_the_user_saw(store: Store) -> None:
    kept, replaced = turn("kept"), turn("replaced", final="Oat milk.", applied=(REF,))
    for record in (kept, replaced):
        await store.record_turn(record)
    answers = [await store.decided(record.decision.decision_id) for record in (kept, replaced)]
    assert all(answer is not None and answer.request_digest == "sha256:one" for answer in answers)
    results = [TurnResult.model_validate(answer.result) for answer in answers if answer is not None]
    assert [result.answer for result in results] == ["Water.", "Oat milk."]
    assert results[1].model_dump() == {
        "schema_version": 1,
        "decision_id": replaced.decision.decision_id,
        "request_digest": "sha256:one",
        "answer": "Oat milk.",
        "disposition": Disposition.REGENERATED,
        "reason": Reason.ADMITTED,
        "delivered": ({"id": "r1", "version": 2},),
        "shadow": False,
        "redelivered": False,
        "durability": Durability.TURN,
        "effective_budget_ms": 1_500,
        "timings_ms": {"draft": 412.5},
        "recorded": True,
    }
    assert await store.decided("unknown") is None


async def test_an_answer_whose_text_was_erased_is_no_answer_to_repeat(store: Store, engine: Engine) -> None:
    record = turn(final="Oat milk.")
    await store.record_turn(record)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM session_turns WHERE role = 'final'"))
    assert await store.decided(record.decision.decision_id) is None
    assert await store.decision(record.decision.decision_id) == record.decision


async def test_recording_again_changes_nothing_even_with_another_text(store: Store) -> None:
    first = turn(final="Oat milk.", searches=("q1",))
    await store.record_turn(first)
    await store.record_turn(first)
    await store.record_turn(turn(draft="Gin.", request_digest="sha256:two", at=NOON + MINUTE))
    await store.record_turn(failed(at=NOON + MINUTE))
    assert list(await store.decisions()) == [first.decision]
    assert len(await store.searches(first.decision.decision_id)) == 1
    assert [line.text for line in await store.session_turns(ADA, "s")] == ["what do I drink?", "Water.", "Oat milk."]


@pytest.mark.parametrize("unanswered", [Disposition.FAILED, Disposition.CANCELLED])
async def test_a_turn_without_an_answer_gives_way_to_a_later_run(store: Store, unanswered: Disposition) -> None:
    first = turn(disposition=unanswered, user_text="first try", draft="lost", searches=("q1",))
    await store.record_turn(first)
    assert await store.decided(first.decision.decision_id) is None
    answered = turn(user_text="second try", draft="Water.", searches=("q2",), at=NOON + MINUTE)
    await store.record_turn(answered)
    await store.record_turn(first)  # its delayed record arrives after all
    assert list(await store.decisions()) == [answered.decision]
    assert [entry.search_id for entry in await store.searches(first.decision.decision_id)] == ["q2"]
    assert [line.text for line in await store.session_turns(ADA, "s")] == ["second try", "Water."]
    assert await store.decided(first.decision.decision_id) is not None


async def test_of_two_failed_runs_the_later_one_stays_whatever_arrives_last(store: Store) -> None:
    later = failed(at=NOON + MINUTE)
    for record in (failed(), later, failed()):
        await store.record_turn(record)
    assert list(await store.decisions()) == [later.decision]


async def test_a_cancelled_turn_leaves_what_the_user_said_and_no_draft_of_its_own(store: Store) -> None:
    await store.record_turn(turn(disposition=Disposition.CANCELLED, draft="half an answer"))
    await store.record_turn(turn(disposition=Disposition.CANCELLED, draft=None, at=NOON + MINUTE))
    assert [line.role for line in await store.session_turns(ADA, "s")] == ["user"]


async def test_a_turn_whose_session_went_to_another_user_is_still_recorded(store: Store) -> None:
    await store.open_session(BOB, "s", NOON)
    record = turn()
    await store.record_turn(record)
    assert await store.decision(record.decision.decision_id) == record.decision
    assert [line.text for line in await store.session_turns(ADA, "s")] == ["what do I drink?", "Water."]
    assert await store.session_turns(BOB, "s") == []
    assert await store.open_session(BOB, "s", NOON) is None  # Bob still owns it


async def test_recording_late_claims_a_free_session_and_does_not_reopen_an_ended_one(store: Store) -> None:
    await store.record_turn(turn(session_id="never opened"))
    await store.open_session(ADA, "ended", NOON)
    await store.end_session(ADA, "ended", NOON)
    await store.record_turn(turn(session_id="ended"))
    assert await store.expire_idle_sessions(NOON + MINUTE, NOON + MINUTE) == 1
    assert [event.event for event in await store.audit_events(ADA, "never opened")] == ["session.expired"]


async def test_decisions_are_listed_newest_first_and_narrowed_by_what_an_operator_knows(store: Store) -> None:
    records = {
        "old": turn("old", at=NOON),
        "new": turn("new", at=NOON + MINUTE, session_id="s2"),
        "failed": failed("failed", at=NOON + 2 * MINUTE),
        "bob": turn("bob", owner=BOB, session_id="b", at=NOON + 3 * MINUTE),
        "elsewhere": turn("elsewhere", owner=ELSEWHERE, at=NOON + 4 * MINUTE),
    }
    for record in records.values():
        await store.record_turn(record)

    async def listed(**query: Any) -> list[str]:
        return [decision.turn_id for decision in await store.decisions(**query)]

    assert await listed() == ["elsewhere", "bob", "failed", "new", "old"]
    assert await listed(tenant="acme") == ["bob", "failed", "new", "old"]
    assert await listed(tenant="acme", user="ada") == ["failed", "new", "old"]
    assert await listed(tenant="acme", user="ada", session_id="s2") == ["new"]
    assert await listed(disposition=Disposition.FAILED) == ["failed"]
    assert await listed(limit=2) == ["elsewhere", "bob"]
    assert await listed(before=NOON + MINUTE) == ["old"]
    assert await listed(tenant="acm%") == []


async def test_the_columns_an_operator_filters_by_say_what_the_document_says(store: Store, engine: Engine) -> None:
    for turn_id, requested in (("a", "default"), ("b", None), ("c", 0)):
        await store.record_turn(turn(turn_id, requested_budget_ms=requested, trace_id="4bf9"))
    query = text(
        "SELECT requested_budget, effective_budget_ms, disposition, reason, trace_id, document"
        " FROM turn_decisions ORDER BY turn_id"
    )
    with engine.connect() as connection:
        rows = (connection.execute(query)).all()
    assert [row[0] for row in rows] == ["default", "none", "0"]
    assert {row[1:5] for row in rows} == {(1_500, "regenerated", "admitted", "4bf9")}
    assert all("Water." not in row[5] for row in rows)


async def test_a_turn_that_cannot_be_written_whole_is_not_written_at_all(store: Store) -> None:
    await store.record_turn(turn("first", searches=("q1",)))
    clashing = turn("second", searches=("q2", "q1"))  # a search id that another turn already used
    with pytest.raises(StoreUnavailableError):
        await store.record_turn(clashing)
    assert await store.decision(clashing.decision.decision_id) is None
    assert {line.turn_id for line in await store.session_turns(ADA, "s")} == {"first"}


async def test_a_search_without_its_decision_is_refused_by_the_database(engine: Engine) -> None:
    orphan = SearchRow(
        search_id="q", decision_id="none", tenant="acme", user_id="ada", gap_index=0, query="x",
        generated={}, dropped={}, kept=[], elapsed_ms=1.0, at=NOON,
    )  # fmt: skip

    def add(session: Session) -> None:
        session.add(orphan)

    with pytest.raises(StoreUnavailableError) as raised:
        await Transactions(engine).write(add)
    assert isinstance(raised.value.__cause__, IntegrityError)
