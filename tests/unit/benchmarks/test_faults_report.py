"""The arithmetic of `make faults`: what met a fault, what was lost by it, and when everything was as before."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from benchmarks.faults import FILE_WIDTH, KilledInStages, exit_code, fault_table, summary
from benchmarks.faults_report import Observed, Seen, lost, normal_after_s, seen
from benchmarks.faults_rig import Sent
from benchmarks.faults_scenarios import skipped
from retold.contracts.disposition import Disposition, Reason
from retold.contracts.turn import Durability, Principal, TurnRequest, TurnResult
from tests.unit.benchmarks.test_load_report import row

USUAL_MS = 100.0


def sent(at: float, *, takes_s: float = 0.1, error: str = "", recorded: bool = True) -> Sent:
    request = TurnRequest(principal=Principal(tenant="t", user="u"), session_id=f"s{at}", turn_id="1", text="hello")
    result = TurnResult(
        decision_id="d",
        request_digest="x",
        answer="yes",
        disposition=Disposition.REGENERATED,
        reason=Reason.ADMITTED,
        durability=Durability.TURN,
        recorded=recorded,
    )
    return Sent(request, at, at + takes_s, None if error else result, error)


def observed(turns: list[Sent], *, without_a_row: tuple[Sent, ...] = (), **changes: object) -> Observed:
    rows = {turn.workflow_id: row() for turn in turns if turn not in without_a_row}
    fields: dict[str, object] = {"again": (), "accepted": {}, **changes}
    return Observed(fault="f", began_at=10, mended_at=20, sent=turns, rows=rows, **fields)  # type: ignore[arg-type]


def test_turns_met_the_fault_that_were_under_way_while_it_lasted() -> None:
    turns = [sent(5), sent(9.95), sent(15, takes_s=2), sent(16, error="UnreachableError"), sent(21)]
    found = seen(observed(turns))
    assert found.met == 3
    assert found.outcomes == {"regenerated/admitted": 2, "UnreachableError": 1}
    assert (found.usual_ms, found.slowest_ms) == (100, 2_000)


def test_nothing_is_said_of_a_fault_before_which_nothing_was_answered() -> None:
    with pytest.raises(ValueError, match="before the fault"):
        seen(observed([sent(15)]))


def test_an_error_is_a_loss_only_if_the_turn_had_been_accepted() -> None:
    answered, refused, accepted = sent(5), sent(12, error="UnreachableError"), sent(13, error="UnreachableError")
    turns = [answered, refused, accepted]
    kept = observed(turns, without_a_row=(refused, accepted), accepted={accepted.workflow_id: True})
    assert lost(kept) == [accepted.workflow_id]


def test_an_answer_without_a_row_is_a_loss_also_when_it_came_at_the_second_asking() -> None:
    first = sent(12, error="UnreachableError")
    assert lost(observed([sent(5), first], without_a_row=(first,), again=[sent(12)])) == [first.workflow_id]


@pytest.mark.parametrize(
    ("after", "normal"),
    [
        ([sent(20 + at) for at in range(5)], 0.0),
        ([sent(20, recorded=False), *(sent(21 + at) for at in range(5))], 1.0),
        ([*(sent(20 + at) for at in range(4)), sent(24, takes_s=9), *(sent(25 + at) for at in range(5))], 5.0),
        ([sent(20 + at) for at in range(4)], None),
        ([sent(20 + at, error="DraftFailedError") for at in range(9)], None),
    ],
)
def test_normal_is_five_in_a_row_as_they_were_before(after: list[Sent], normal: float | None) -> None:
    assert normal_after_s([sent(5), *after], 20, USUAL_MS) == normal


FINE = seen(observed([sent(5), sent(15), *(sent(21 + at) for at in range(5))]))


@pytest.mark.parametrize(
    ("faults", "stages", "code", "said"),
    [
        ([FINE], None, 0, ["7 turns, 0 lost"]),
        ([FINE], KilledInStages(9, 9, {}), 0, ["16 turns, 0 lost"]),
        ([FINE], KilledInStages(9, 7, {}), 1, ["16 turns, 2 lost"]),
        ([replace(FINE, lost=["one"])], KilledInStages(9, 10, {}), 1, ["16 turns, 1 lost"]),
        ([replace(FINE, normal_after_s=None)], None, 1, ["7 turns, 0 lost", "never as before: f"]),
        ([FINE, skipped("g", "not root")], None, 0, ["7 turns, 0 lost", "skipped: g"]),
    ],
)
def test_the_exit_code_and_the_last_lines_say_the_same(
    faults: list[Seen], stages: KilledInStages | None, code: int, said: list[str]
) -> None:
    assert (exit_code(faults, stages), list(summary(faults, stages))) == (code, said)


def test_in_a_file_the_table_has_room_for_every_column() -> None:
    longest = replace(FINE, fault="a fault with a name", notes=["the last 20 turns by bundle: {'a': 5, 'b': 15}"])
    console = Console(width=FILE_WIDTH, color_system=None)
    with console.capture() as captured:
        console.print(fault_table([longest]))
    for told in ("a fault with a name", "1 x regenerated/admitted", "usually 100 ms", "0 of 7 turns", "after 0.0 s"):
        assert told in captured.get()
