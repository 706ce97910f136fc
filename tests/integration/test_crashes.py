"""kill -9, SIGTERM and a store that is away, against real worker processes: what is done again, and what is lost.

Nothing may be lost. The bound on an answer tells "handed over" from "hung": without hand-over a stage's worker is
missed after 30 s at the earliest, when the stage's own limit has passed on the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from benchmarks.crash_rig import CrashRig, Line, crash_rig
from benchmarks.crash_scenarios import (
    TAKES_MS,
    killed_under_load,
    server_killed,
    stopped_politely,
    store_locked,
    worker_killed,
)
from retold.contracts.disposition import Disposition, Reason
from retold.contracts.turn import Durability

HANDED_OVER_MS = 20_000
LONG_ENOUGH_TO_HIT = {**TAKES_MS, "draft": 400, "plan": 400, "admit": 500}


@pytest.fixture(scope="module")
async def rig(tmp_path_factory: pytest.TempPathFactory, spans: InMemorySpanExporter) -> AsyncIterator[CrashRig]:
    async with crash_rig(tmp_path_factory.mktemp("crashes")) as rig:
        yield rig


@pytest.fixture(scope="module")
async def both_lines(rig: CrashRig) -> dict[Durability, Line]:
    turn, stage = await asyncio.gather(*(rig.line(name, LONG_ENOUGH_TO_HIT) for name in ("turn", "stage")))
    return {Durability.TURN: turn, Durability.STAGE: stage}


@pytest.fixture
async def lines(both_lines: dict[Durability, Line]) -> dict[Durability, Line]:
    """One line a durability, so that both can be killed at once; on each a worker polls and another stands by."""
    await asyncio.gather(*(line.stand_by() for line in both_lines.values()))
    return both_lines


@pytest.mark.parametrize(
    ("killed_in", "again"),
    [
        (
            "draft",
            {
                Durability.TURN: {"open": 1, "draft": 1, "plan": 1},
                Durability.STAGE: {"draft": 1, "plan": 1},
            },
        ),
        (
            "admit",
            {
                Durability.TURN: {"open": 1, "draft": 1, "plan": 1, "retrieve": 1, "admit": 1},
                Durability.STAGE: {"admit": 1},
            },
        ),
    ],
)
async def test_kill_of_a_worker_repeats_what_its_durability_says(
    rig: CrashRig, lines: dict[Durability, Line], killed_in: str, again: dict[Durability, dict[str, int]]
) -> None:
    crashes = await asyncio.gather(
        *(worker_killed(rig, line, durability, killed_in) for durability, line in lines.items())
    )
    for durability, crash in zip(lines, crashes, strict=True):
        assert crash.again == again[durability]
        assert (crash.result.disposition, crash.result.reason) == (Disposition.REGENERATED, Reason.ADMITTED)
        assert crash.result.answer == f"improved by {lines[durability].active.pid}"
        assert crash.result.redelivered == (durability is Durability.TURN)
        assert crash.answer_after_ms < HANDED_OVER_MS


async def test_a_budget_that_is_gone_after_the_crash_gives_the_draft(
    rig: CrashRig, lines: dict[Durability, Line]
) -> None:
    whole, stage = await asyncio.gather(
        *(worker_killed(rig, line, durability, "admit", budget_ms=600) for durability, line in lines.items())
    )
    assert (whole.result.disposition, whole.result.reason) == (
        Disposition.BASELINE_BUDGET_EXHAUSTED,
        Reason.REDELIVERED_LATE,
    )
    assert whole.again == {"open": 1, "draft": 1}
    assert whole.row.late_by_ms > 600
    # The draft of the worker that died is kept; no judge is asked whose answer would come too late.
    assert (stage.result.disposition, stage.result.reason) == (
        Disposition.BASELINE_BUDGET_EXHAUSTED,
        Reason.JUDGE_CUT_OFF,
    )
    assert stage.again == {}
    assert stage.result.answer.startswith("drafted by ")


async def test_a_locked_store_costs_no_answer_and_no_row_and_no_second_row(
    rig: CrashRig, lines: dict[Durability, Line]
) -> None:
    for durability, kill_worker in ((Durability.TURN, False), (Durability.STAGE, True)):
        recorded = await store_locked(rig, lines[durability], durability, for_s=0.5, kill_worker=kill_worker)
        assert recorded.result.disposition is Disposition.REGENERATED
        assert not recorded.result.recorded
        assert recorded.row_after_ms < HANDED_OVER_MS


async def test_a_polite_stop_finishes_or_hands_over_and_repeats_nothing(
    rig: CrashRig, lines: dict[Durability, Line]
) -> None:
    turns = 4
    whole, stage = await asyncio.gather(
        *(stopped_politely(rig, line, durability, turns=turns) for durability, line in lines.items())
    )
    for stopped in (whole, stage):
        assert stopped.exit_code == 0
        assert set(stopped.executions.values()) == {turns}
        assert stopped.answer_after_ms < HANDED_OVER_MS
    assert whole.finished_in_place
    assert not stage.finished_in_place


async def test_kill_of_a_worker_full_of_turns_loses_none(rig: CrashRig, lines: dict[Durability, Line]) -> None:
    loads = await asyncio.gather(
        *(killed_under_load(rig, line, durability, turns=10) for durability, line in lines.items())
    )
    for load in loads:
        assert load.answers == load.rows == load.turns
        assert load.answer_after_ms < HANDED_OVER_MS


async def test_kill_of_the_server_in_mid_turn_loses_nothing(rig: CrashRig, both_lines: dict[Durability, Line]) -> None:
    crash = await server_killed(rig, both_lines[Durability.TURN], Durability.TURN, "admit", away_s=0.5)
    assert crash.result.disposition is Disposition.REGENERATED
    assert crash.answer_after_ms < HANDED_OVER_MS
