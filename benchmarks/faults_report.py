"""What a fault did to the turns that met it: pure arithmetic over what hosts saw and what is on record."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from benchmarks.faults_rig import Sent
from retold.contracts.decision import TurnDecision
from retold.contracts.disposition import Disposition
from retold.contracts.stages import Stage

Json = dict[str, Any]

NORMAL_IN_A_ROW = 5


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One fault, from its beginning until everything was as before."""

    fault: str
    lasted_s: float
    turns: int
    """Sent before, during and after it, in all."""
    met: int
    """Those that were under way while it lasted."""
    outcomes: Mapping[str, int]
    """Of the turns that met it: disposition and reason, or the type of the error."""
    usual_ms: float
    """Median time to the answer before it."""
    slowest_ms: float
    """Of the turns that met it, error or answer."""
    late_ms: float | None
    """The latest answer after its draft and its budget, among the turns that met it; negative: none was late."""
    answered_when_sent_again: str
    """Of the turns whose host got an error."""
    rows: int
    lost: Sequence[str]
    """Workflow ids of turns that were accepted and are on no record, or on one that says something else."""
    normal_after_s: float | None
    """From its end to the first of five turns in a row that were as before; None: they never were."""
    notes: Sequence[str] = ()
    skipped: str = ""
    """Why it could not be done here. Then nothing else is of any meaning."""

    def as_json(self) -> Json:
        return {name: value for name, value in asdict(self).items() if value not in ("", ())}


@dataclass(frozen=True)
class Observed:
    """The raw material of a `Seen`."""

    fault: str
    began_at: float
    mended_at: float
    sent: Sequence[Sent]
    again: Sequence[Sent]
    accepted: Mapping[str, bool]
    """Of the turns that were never answered: whether Temporal has them."""
    rows: Mapping[str, TurnDecision]
    notes: Sequence[str] = field(default_factory=tuple)


def seen(observed: Observed) -> Seen:
    """Raises:
    ValueError: no turn was sent before the fault, so nothing is known of what is usual.
    """
    began, mended = observed.began_at, observed.mended_at
    before = [turn for turn in observed.sent if turn.ended_at <= began and turn.result is not None]
    met = [turn for turn in observed.sent if turn.ended_at > began and turn.sent_at < mended]
    usual = usual_ms(before)
    late = [ms for turn in met if (ms := late_ms(turn, observed.rows.get(turn.workflow_id))) is not None]
    answered_again = sum(turn.result is not None for turn in observed.again)
    return Seen(
        fault=observed.fault,
        lasted_s=round(mended - began, 2),
        turns=len(observed.sent),
        met=len(met),
        outcomes=dict(Counter(_outcome(turn) for turn in met).most_common()),
        usual_ms=round(usual),
        slowest_ms=round(max((turn.answer_ms for turn in met), default=0.0)),
        late_ms=round(max(late)) if late else None,
        answered_when_sent_again=f"{answered_again} of {len(observed.again)}" if observed.again else "",
        rows=len({turn.workflow_id for turn in observed.sent} & observed.rows.keys()),
        lost=lost(observed),
        normal_after_s=normal_after_s(observed.sent, mended, usual),
        notes=tuple(observed.notes),
    )


def usual_ms(before: Sequence[Sent]) -> float:
    """The median time to the answer of undisturbed turns."""
    if not before:
        raise ValueError("nothing was answered before the fault")
    return statistics.median(turn.answer_ms for turn in before)


def is_normal(turn: Sent, usual: float) -> bool:
    """Answered with memory, on record, and not much slower than before on a machine that has other work too."""
    return (
        turn.result is not None
        and turn.result.disposition is Disposition.REGENERATED
        and turn.result.recorded
        and turn.answer_ms <= 3 * usual + 500
    )


def normal_after_s(sent: Sequence[Sent], since: float, usual: float) -> float | None:
    """Seconds from `since` to the sending of the first of enough normal turns in a row; at least 0."""
    after = sorted((turn for turn in sent if turn.sent_at >= since), key=lambda turn: turn.sent_at)
    for first in range(len(after) - NORMAL_IN_A_ROW + 1):
        if all(is_normal(turn, usual) for turn in after[first : first + NORMAL_IN_A_ROW]):
            return round(after[first].sent_at - since, 2) if first else 0.0
    return None


def lost(observed: Observed) -> list[str]:
    """Turns that Temporal accepted, or a host was answered, without a row that says the same."""
    answers = {turn.workflow_id: turn.result for turn in (*observed.sent, *observed.again) if turn.result is not None}
    found = []
    for workflow_id in dict.fromkeys(turn.workflow_id for turn in observed.sent):
        row, answer = observed.rows.get(workflow_id), answers.get(workflow_id)
        if row is None:
            if answer is not None or observed.accepted.get(workflow_id, False):
                found.append(workflow_id)
        elif answer is not None and (row.disposition, row.reason) != (answer.disposition, answer.reason):
            found.append(workflow_id)
    return found


def late_ms(turn: Sent, row: TurnDecision | None) -> float | None:
    """From draft and budget to the answer's arrival at the host; None without an answer, a row or a budget."""
    if turn.result is None or row is None or row.effective_budget_ms is None:
        return None
    drafted = next((timing.ended_ms for timing in row.timings if timing.stage is Stage.DRAFT), None)
    if drafted is None:
        return None
    began = row.at + timedelta(milliseconds=row.late_by_ms)
    return (turn.ended_at - began.timestamp()) * 1000 - drafted - row.effective_budget_ms


def _outcome(turn: Sent) -> str:
    if turn.result is None:
        return turn.error
    recorded = "" if turn.result.recorded else ", recorded later"
    return f"{turn.result.disposition.value}/{turn.result.reason.value}{recorded}"
