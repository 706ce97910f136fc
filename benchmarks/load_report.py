"""What became of the turns of a load: pure arithmetic over what hosts saw and what is on record.

All times are of one machine's clock. An answer is late by what passed between "the draft was there, plus the budget"
and the moment it counts for: at the worker the end of the last stage, at the host the answer's arrival. Time a turn
waited for a worker is no part of its budget, which begins when the draft is there (specification section 3.3); it is
in the time to the answer, and stands on its own as `waited`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from benchmarks.load_generator import Outcome
from benchmarks.measures import quantile
from retold.contracts.decision import TurnDecision
from retold.contracts.disposition import Reason
from retold.contracts.stages import Stage

Json = dict[str, Any]

GRACE_MS = 50.0
"""How late at the worker still counts as in time: the product's own target for a turn among many."""
SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
WITHHELD = "baseline_budget_exhausted", "admitted_not_applied"
WINDOW_S = 1.0


@dataclass(frozen=True)
class Ended:
    """One turn: what its host saw, and its row if it has one."""

    outcome: Outcome
    row: TurnDecision | None

    @property
    def answered(self) -> bool:
        return not self.outcome.error

    @property
    def answer_ms(self) -> float:
        return (self.outcome.ended_at - self.outcome.due_at) * 1000

    @property
    def waited_ms(self) -> float | None:
        return None if self.row is None else self.row.late_by_ms

    @property
    def late_at_worker_ms(self) -> float | None:
        """None without a budget, a row or a draft."""
        if self.row is None or self.outcome.budget_ms is None or (drafted := _drafted_ms(self.row)) is None:
            return None
        return max(timing.ended_ms for timing in self.row.timings) - drafted - self.outcome.budget_ms

    @property
    def late_at_host_ms(self) -> float | None:
        if self.row is None or self.outcome.budget_ms is None or (drafted := _drafted_ms(self.row)) is None:
            return None
        began = self.row.at + timedelta(milliseconds=self.row.late_by_ms)
        return (self.outcome.ended_at - began.timestamp()) * 1000 - drafted - self.outcome.budget_ms


def shed(outcome: Outcome) -> bool:
    """Whether this turn went out as its draft because workers had too many."""
    return outcome.reason == Reason.OVERLOADED


def _drafted_ms(row: TurnDecision) -> float | None:
    return next((timing.ended_ms for timing in row.timings if timing.stage is Stage.DRAFT), None)


def phase_report(turns: Sequence[Ended], seconds: float) -> Json:
    """Rates, times and dispositions of one phase, in all and for each budget."""
    answered = [turn for turn in turns if turn.answered]
    return {
        "turns": len(turns),
        "offered_per_s": round(len(turns) / seconds, 2),
        "answered_per_s_while_it_lasted": round(_answered_within(turns, seconds) / seconds, 2),
        "errors": dict(Counter(turn.outcome.error for turn in turns if not turn.answered)),
        "generator_behind_ms": _quantiles((turn.outcome.sent_at - turn.outcome.due_at) * 1000 for turn in turns),
        "waited_ms": _quantiles(turn.waited_ms for turn in answered),
        "shed": sum(shed(turn.outcome) for turn in answered),
        "recorded_late": sum(not turn.outcome.recorded for turn in answered),
        "by_budget": {
            _named(budget): _class_report([turn for turn in turns if turn.outcome.budget_ms == budget])
            for budget in _budgets(turns)
        },
    }


def _class_report(turns: Sequence[Ended]) -> Json:
    answered = [turn for turn in turns if turn.answered]
    late = [ms for turn in answered if (ms := turn.late_at_worker_ms) is not None]
    return {
        "turns": len(turns),
        "answer_ms": _quantiles(turn.answer_ms for turn in answered),
        "late_at_worker_ms": _quantiles(late),
        "late_at_host_ms": _quantiles(turn.late_at_host_ms for turn in answered),
        "missed": sum(ms > GRACE_MS for ms in late),
        "with_memory": sum(turn.outcome.disposition == "regenerated" for turn in answered),
        "withheld": sum(turn.outcome.disposition in WITHHELD for turn in answered),
        "outcomes": dict(
            Counter(f"{turn.outcome.disposition}/{turn.outcome.reason}" for turn in answered).most_common()
        ),
    }


def lost(turns: Iterable[Ended], accepted: Mapping[str, bool]) -> Json:
    """What must be empty: turns that were accepted and are on no record, and records that say something else.

    Args:
        accepted: of the turns whose host got an error, by workflow id, whether Temporal has them.
    """
    missing, differing = [], []
    for turn in turns:
        if turn.row is None:
            if turn.answered or accepted.get(turn.outcome.workflow_id, False):
                missing.append(turn.outcome.workflow_id)
        elif turn.answered and (turn.row.disposition.value, turn.row.reason.value) != (
            turn.outcome.disposition,
            turn.outcome.reason,
        ):
            differing.append(turn.outcome.workflow_id)
    return {"without_a_row": missing, "row_says_something_else": differing}


def recovered_after_s(turns: Sequence[Ended], began_at: float, usual_ms: float) -> float | None:
    """How long after the overload ended answers were as fast as before it, for good.

    Args:
        turns: those sent after the overload.
        began_at: when the overload ended.
        usual_ms: p95 of the time to the answer before it.

    Returns:
        Seconds to the first window of a second from which on nine in ten answers come within twice the usual; None:
        that never happened, or too few turns were sent to tell.
    """
    windows: dict[int, list[bool]] = {}
    for turn in turns:
        window = int((turn.outcome.due_at - began_at) / WINDOW_S)
        windows.setdefault(window, []).append(turn.answered and turn.answer_ms <= 2 * usual_ms)
    recovered: float | None = None
    for window in sorted(windows, reverse=True):
        usual = windows[window]
        if sum(usual) < 0.9 * len(usual):
            break
        recovered = window * WINDOW_S
    return recovered


def _answered_within(turns: Sequence[Ended], seconds: float) -> int:
    if not turns:
        return 0
    ends = min(turn.outcome.due_at for turn in turns) + seconds
    return sum(turn.answered and turn.outcome.ended_at <= ends for turn in turns)


def _quantiles(values: Iterable[float | None]) -> Json | None:
    measured = [value for value in values if value is not None]
    if not measured:
        return None
    found = {name: round(quantile(measured, share), 1) for name, share in SHARES.items()}
    return {**found, "most": round(max(measured), 1)}


def _budgets(turns: Sequence[Ended]) -> list[int | None]:
    drawn = {turn.outcome.budget_ms for turn in turns}
    return [*sorted(budget for budget in drawn if budget is not None), *([None] if None in drawn else [])]


def _named(budget: int | None) -> str:
    return "none" if budget is None else str(budget)
