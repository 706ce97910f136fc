"""The arithmetic of `make load`: what is late, what is lost, and when everything is as before."""

from __future__ import annotations

import pytest

from benchmarks.load_generator import Outcome
from benchmarks.load_report import Ended, lost, phase_report, recovered_after_s
from retold.contracts.config import Switches, UtilityAwareConfig
from retold.contracts.decision import StageOutcomes, StageTiming, TurnDecision
from retold.contracts.disposition import Disposition, Reason
from retold.contracts.stages import Stage
from retold.contracts.turn import Durability, Principal
from retold.policy.limits import utc_now

NOW = utc_now()
AT = NOW.timestamp()


def outcome(number: int = 0, **changes: object) -> Outcome:
    fields = {
        "phase": "twice",
        "workflow_id": f"turn/{number}",
        "session_id": "s",
        "budget_ms": 400,
        "due_at": AT,
        "sent_at": AT,
        "ended_at": AT + 1.0,
        "disposition": "regenerated",
        "reason": "admitted",
    }
    return Outcome.model_validate(fields | changes)


def row(*, waited_ms: float = 0, drafted_ms: float = 200, ended_ms: float = 500) -> TurnDecision:
    return TurnDecision(
        decision_id="d",
        workflow_id="turn/0",
        principal=Principal(tenant="t", user="u"),
        session_id="s",
        turn_id="1",
        request_digest="x",
        at=NOW,
        disposition=Disposition.REGENERATED,
        reason=Reason.ADMITTED,
        shadow=False,
        durability=Durability.TURN,
        late_by_ms=waited_ms,
        requested_budget_ms=400,
        effective_budget_ms=400,
        timings=(
            StageTiming(stage=Stage.DRAFT, started_ms=0, ended_ms=drafted_ms),
            StageTiming(stage=Stage.REGENERATE, started_ms=drafted_ms, ended_ms=ended_ms),
        ),
        config=UtilityAwareConfig(),
        switches=Switches(),
        user_turn_ref="u",
        outcomes=StageOutcomes(),
    )


def test_lateness_counts_from_the_draft_and_not_from_the_queue() -> None:
    turn = Ended(outcome(ended_at=AT + 3.7), row(waited_ms=3_000, drafted_ms=200, ended_ms=650))
    assert turn.late_at_worker_ms == pytest.approx(50)
    assert turn.late_at_host_ms == pytest.approx(100, abs=1)
    assert turn.answer_ms == pytest.approx(3_700, abs=1)


@pytest.mark.parametrize("turn", [Ended(outcome(budget_ms=None), row()), Ended(outcome(), None)])
def test_without_a_budget_or_a_row_nothing_is_late(turn: Ended) -> None:
    assert turn.late_at_worker_ms is None
    assert turn.late_at_host_ms is None


def test_lost_is_what_was_accepted_and_is_on_no_record_or_on_another() -> None:
    error = {"error": "UnreachableError", "disposition": "", "reason": ""}
    turns = [
        Ended(outcome(0), row()),
        Ended(outcome(1), None),
        Ended(outcome(2, **error), None),
        Ended(outcome(3, **error), None),
        Ended(outcome(4, disposition="baseline_no_gaps", reason="planner_silent"), row()),
    ]
    assert lost(turns, {"turn/2": True, "turn/3": False}) == {
        "without_a_row": ["turn/1", "turn/2"],
        "row_says_something_else": ["turn/4"],
    }


def test_a_phase_counts_what_was_answered_while_it_lasted_and_what_missed_its_budget() -> None:
    turns = [
        Ended(outcome(0), row(ended_ms=500)),
        Ended(outcome(1, ended_at=AT + 9), row(ended_ms=700)),
        Ended(outcome(2, budget_ms=None, error="UnreachableError"), None),
    ]
    found = phase_report(turns, seconds=2)
    assert (found["offered_per_s"], found["answered_per_s_while_it_lasted"]) == (1.5, 0.5)
    assert found["errors"] == {"UnreachableError": 1}
    assert list(found["by_budget"]) == ["400", "none"]
    assert (found["by_budget"]["400"]["missed"], found["by_budget"]["400"]["with_memory"]) == (1, 2)


@pytest.mark.parametrize(
    ("answers_s", "recovered"),
    [
        ([0.1] * 6, 0.0),
        ([5.0, 5.0, 0.1, 0.1], 2.0),
        ([0.1, 5.0, 0.1], 2.0),
        ([0.1, 0.1, 5.0], None),
        ([], None),
    ],
)
def test_recovery_is_when_answers_are_as_before_for_good(answers_s: list[float], recovered: float | None) -> None:
    turns = [
        Ended(outcome(at, due_at=AT + at + 0.5, ended_at=AT + at + 0.5 + takes), None)
        for at, takes in enumerate(answers_s)
    ]
    assert recovered_after_s(turns, AT, usual_ms=100) == recovered
