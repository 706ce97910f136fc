"""`bench.json`: keys that other tools read, and targets that cannot be missed quietly."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from benchmarks.budget import Cell
from benchmarks.results import Results, as_json
from benchmarks.retrieval import SearchTimes
from benchmarks.round_trips import ServerCost
from benchmarks.tables import section_tables, target_table
from benchmarks.targets import Target, targets
from benchmarks.throughput import Throughput
from benchmarks.turn_overhead import FLOOR, STAGE, TURN, Overhead

PEERS = ("dbos-sqlite", "dbos-postgres", "langgraph-sqlite", "langgraph-postgres")


def walls(at_0: float, at_50: float) -> dict[int, list[list[float]]]:
    return {0: [[at_0] * 3, [at_0] * 3], 50: [[at_50] * 3, [at_50] * 3]}


def overhead(turn_ms: float = 220.0) -> Overhead:
    everybody = {FLOOR: walls(0.05, 200.0), TURN: walls(20.0, turn_ms), STAGE: walls(60.0, 270.0)}
    everybody.update({peer: walls(15.0, 230.0) for peer in PEERS})
    found = Overhead((0, 50))
    found.walls = {length: {name: rounds[length] for name, rounds in everybody.items()} for length in (0, 50)}
    return found


def cell(**fields: Any) -> Cell:
    defaults: dict[str, Any] = {
        "budget_ms": 50,
        "durability": "turn",
        "style": "async",
        "in_flight": 1,
        "slow_store": False,
        "over_ms": (1.0, 2.0, 3.0),
        "host_over_ms": (5.0, 6.0, 7.0),
        "early": 0,
    }
    return Cell(**{**defaults, **fields})


def whole_run(**changes: Any) -> Results:
    cost = ServerCost(turns=10, calls={"StartWorkflowExecution": 1.0, "PollWorkflowTaskQueue": 2.0}, events=12.0,
                      least_events=12)  # fmt: skip
    times = SearchTimes([8.0] * 19 + [18.0], [5.0] * 20, 6.0)
    load = Throughput([90.0] * 90, 2, 0, 8, 1.0, 1.1)
    run = Results(
        machine={"cores": 2},
        run={"quick": False},
        overhead=overhead(),
        server={TURN: cost, STAGE: cost},
        throughput={8: load, 32: load, 128: load},
        budget=[cell(), cell(durability="stage", budget_ms=150)],
        retrieval={1_000: times, 100_000: times},
    )
    return replace(run, **changes)


def at(found: Any, path: str) -> Any:
    for name in path.split("."):
        found = found[name]
    return found


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("turn.round_trips", 3.0),
        ("turn.history_events", 12.0),
        ("turn.overhead_ratio_50ms", 1.1),
        ("stage.round_trips", 3.0),
        ("stage.history_events", 12.0),
        ("stage.overhead_ratio_50ms", 1.35),
        *((f"turn.peers.{peer}.overhead_ratio_50ms", 1.15) for peer in PEERS),
        ("turn.turns_per_s.8", 90.0),
        ("turn.turns_per_s.32", 90.0),
        ("turn.turns_per_s.128", 90.0),
        ("budget.50.median_over_ms", 2.0),
        ("budget.50.p95_over_ms", 3.0),
        ("retrieval.100000.p50_ms", 8.0),
        ("retrieval.100000.p95_ms", 8.0),
    ],
)
def test_a_key_other_tools_read(path: str, value: float) -> None:
    found = json.loads(json.dumps(as_json(whole_run())))
    assert at(found, path) == value


def test_a_budget_is_as_late_as_its_worst_promised_cell() -> None:
    cells = [
        cell(),
        cell(style="blocking", over_ms=(10.0, 20.0, 90.0)),
        cell(in_flight=16, over_ms=(500.0,)),  # many at once have a bound of their own
        cell(durability="stage", over_ms=(700.0,)),  # below 100 ms nothing is promised there
    ]
    found = as_json(whole_run(budget=cells))["budget"]["50"]
    assert (found["median_over_ms"], found["p95_over_ms"]) == (20.0, 90.0)
    assert len(found["cells"]) == 4


def verdicts(results: Results) -> dict[str, str]:
    return {target.what: target.verdict for target in targets(as_json(results))}


def test_a_run_that_reaches_everything_misses_nothing() -> None:
    assert set(verdicts(whole_run()).values()) == {"met"}


def test_slower_than_a_peer_is_missed_even_within_the_bound() -> None:
    found = verdicts(whole_run(overhead=overhead(turn_ms=236.0)))
    assert found["turn.overhead_ratio_50ms"] == "met"
    assert found["turn.overhead_ratio_50ms, not above dbos-postgres"] == "MISSED"


@pytest.mark.parametrize(
    ("late", "verdict"),
    [
        (cell(in_flight=16, over_ms=(51.0,)), "MISSED"),
        (cell(durability="stage", budget_ms=150, in_flight=16, over_ms=(249.0,)), "met"),
        (cell(durability="stage", budget_ms=150, in_flight=16, over_ms=(251.0,)), "MISSED"),
        (cell(slow_store=True, over_ms=(51.0,)), "MISSED"),
    ],
)
def test_a_late_answer_is_missed_at_the_bound_of_its_kind(late: Cell, verdict: str) -> None:
    found = verdicts(whole_run(budget=[cell(), cell(durability="stage", budget_ms=150), late]))
    what = f"budget {late.budget_ms} ms, {late.durability}, {late.in_flight} in flight: median over"
    assert found[what] == verdict


def test_what_was_not_run_is_said_and_never_passes() -> None:
    found = verdicts(Results(machine={}, run={}))
    assert set(found.values()) == {"not measured"}
    assert "retrieval.100000.p95_ms" in found


def shown(*tables: Any) -> str:
    page = io.StringIO()
    Console(file=page, width=200).print(*tables)
    return page.getvalue()


def test_the_tables_show_every_contender_and_every_missed_number() -> None:
    found = as_json(whole_run(overhead=overhead(turn_ms=300.0)))
    page = shown(*section_tables(found), target_table(targets(found)))
    for expected in ("plain asyncio", "durability turn", *PEERS, "100,000", "1.500", "MISSED"):
        assert expected in page


def test_a_target_not_measured_is_shown_as_such() -> None:
    assert "not measured" in shown(target_table([Target("turn.round_trips", None, 4.0, "most")]))
