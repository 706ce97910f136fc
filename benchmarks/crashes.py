# ruff: noqa: T201 - a benchmark prints what it measured
"""What each durability gives up when something dies: one command, a table on screen and `build/crashes.json`.

    python -m benchmarks.crashes [--rounds 3] [--within-s 270]

Both durabilities are killed at the same time, each on workers of its own, round after round until the rounds or the
time are used up; numbers are medians over the rounds. The model calls are sleeps of known length (`TAKES_MS`), so what
is left of a number is the product, the server's timers and this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.crash_rig import CrashRig, Line, crash_rig
from benchmarks.crash_scenarios import (
    TAKES_MS,
    Load,
    Recorded,
    Stopped,
    Survived,
    killed_under_load,
    server_killed,
    stopped_politely,
    store_hung,
    store_locked,
    undisturbed,
    worker_killed,
)
from benchmarks.crash_worker import STAGES
from retold.client.tracing import install_tracing
from retold.contracts.turn import Durability
from retold.ending import end_process

KEPT = (Durability.TURN, Durability.STAGE)
BUDGET_MS = 400
HANGS_MS = 3_000
LOCKED_S = 2.0
SERVER_AWAY_S = 1.0
TURNS_UNDER_LOAD = 20


@dataclass
class Measured:
    """Everything about one durability."""

    undisturbed_ms: list[float] = field(default_factory=list)
    killed: dict[str, list[Survived]] = field(default_factory=lambda: {stage: [] for stage in STAGES})
    killed_alone: list[Survived] = field(default_factory=list)
    """No other worker ran; one was started at the crash."""
    budget_gone: list[Survived] = field(default_factory=list)
    server: list[Survived] = field(default_factory=list)
    locked: list[Recorded] = field(default_factory=list)
    locked_and_killed: list[Recorded] = field(default_factory=list)
    hung: list[Recorded] = field(default_factory=list)
    stopped: list[Stopped] = field(default_factory=list)
    load: list[Load] = field(default_factory=list)


# --- measuring ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Whole:
    turns: int
    rows: int
    by_durability: Mapping[Durability, Measured]


async def measure(data_dir: Path, rounds: int, within_s: float, say: Console) -> Whole:
    """Everything, for both durabilities; rounds of kills until there are enough or the time is used up."""
    measured = {durability: Measured() for durability in KEPT}
    started = time.monotonic()
    async with crash_rig(data_dir) as rig:
        lines = dict(zip(KEPT, await asyncio.gather(*(rig.line(kept.value, TAKES_MS) for kept in KEPT)), strict=True))

        async def both(scenario: Any) -> None:
            await asyncio.gather(*(scenario(rig, lines[kept], kept, measured[kept]) for kept in KEPT))

        say.print("once each: a full worker, no standby, a budget, a store and a server that are away, a polite stop")
        await both(_once)
        # One store and one server for both: these cannot be taken away from one line alone.
        for kept in KEPT:
            await _shared(rig, lines[kept], kept, measured[kept])
        for round in range(rounds):
            round_started = time.monotonic()
            say.print(f"round {round + 1} of {rounds}: kill -9 in each stage")
            await both(killed_in_each_stage)
            now = time.monotonic()
            if now - started + (now - round_started) > within_s:
                break
        return Whole(*await rig.turns_and_rows(), measured)


async def _once(rig: CrashRig, line: Line, kept: Durability, measured: Measured) -> None:
    hanging = await rig.line(f"{kept.value}-hanging", {**TAKES_MS, "record": HANGS_MS}, standby=False)
    measured.hung.append(await store_hung(rig, hanging, kept))
    await hanging.end()
    measured.load.append(await killed_under_load(rig, line, kept, turns=TURNS_UNDER_LOAD))
    await line.stand_by()
    measured.budget_gone.append(await worker_killed(rig, line, kept, "draft", budget_ms=BUDGET_MS))
    await line.stand_by()
    measured.stopped.append(await stopped_politely(rig, line, kept))
    measured.killed_alone.append(await worker_killed(rig, line, kept, "admit", standby=False))


async def _shared(rig: CrashRig, line: Line, kept: Durability, measured: Measured) -> None:
    await line.stand_by()
    measured.locked.append(await store_locked(rig, line, kept, for_s=LOCKED_S))
    measured.locked_and_killed.append(await store_locked(rig, line, kept, for_s=LOCKED_S, kill_worker=True))
    measured.server.append(await server_killed(rig, line, kept, "admit", away_s=SERVER_AWAY_S))


async def killed_in_each_stage(
    rig: CrashRig, line: Line, kept: Durability, measured: Measured, stages: Sequence[str] = STAGES
) -> None:
    """One round of kills, an undisturbed turn before each."""
    for stage in stages:
        await line.stand_by()
        measured.undisturbed_ms.append(await undisturbed(rig, line, kept))
        measured.killed[stage].append(await worker_killed(rig, line, kept, stage))


# --- showing --------------------------------------------------------------------------------------------------

Row = tuple[str, ...]


def stage_rows(measured: Mapping[Durability, Measured]) -> Iterator[Row]:
    """One row a stage: answer after the kill, time lost, what was done again; per durability."""
    yield ("nothing", *(cell for kept in KEPT for cell in (f"({_s(measured[kept].undisturbed_ms)} in all)", "", "")))
    for stage in [stage for stage in STAGES if all(measured[kept].killed[stage] for kept in KEPT)]:
        yield (f"`{stage}`", *(cell for kept in KEPT for cell in _stage_cells(measured[kept], stage)))


def _stage_cells(measured: Measured, stage: str) -> Row:
    crashes = measured.killed[stage]
    lost_ms = [crash.total_ms - statistics.median(measured.undisturbed_ms) for crash in crashes]
    return _s([crash.answer_after_ms for crash in crashes]), _s(lost_ms), _again(crashes)


def event_rows(measured: Mapping[Durability, Measured]) -> Iterator[Row]:
    """One row for everything else that may happen to a turn."""

    def row(what: str, cell: Any) -> Row:
        return (what, *(cell(measured[kept]) for kept in KEPT))

    yield row("worker killed in `admit`, no other runs: one is started", lambda m: _survived(m.killed_alone))
    yield row(
        f"worker killed in `draft`, budget {BUDGET_MS} ms",
        lambda m: f"the draft, `{m.budget_gone[0].result.reason}`; {_survived(m.budget_gone)}",
    )
    yield row(f"one of two workers killed, {TURNS_UNDER_LOAD} turns in flight", lambda m: _loaded(m.load[0]))
    yield row("worker told to stop (SIGTERM), 5 turns in `draft`", lambda m: _stopped(m.stopped[0]))
    yield row(f"Temporal server killed in `admit`, back after {SERVER_AWAY_S:.0f} s", lambda m: _survived(m.server))
    yield row(f"store locked while recording, for {LOCKED_S:.0f} s more", lambda m: _recorded(m.locked[0], "release"))
    yield row("the same, and the worker killed meanwhile", lambda m: _recorded(m.locked_and_killed[0], "release"))
    yield row(f"store takes {HANGS_MS / 1000:.0f} s for the row", lambda m: _recorded(m.hung[0], "answer"))


def _survived(crashes: Sequence[Survived]) -> str:
    return f"answer {_s([crash.answer_after_ms for crash in crashes])} after, again: {_again(crashes)}"


def _loaded(load: Load) -> str:
    return (
        f"{load.answers} answers, {load.rows} rows; the last {_s([load.answer_after_ms])} after;"
        f" {load.drafted_again} drafted again"
    )


def _stopped(stopped: Stopped) -> str:
    done = "finished in place" if stopped.finished_in_place else "handed over between stages"
    repeated = max(stopped.executions.values()) - min(stopped.executions.values())
    return (
        f"{done}, {'nothing' if not repeated else 'something'} again, exit code {stopped.exit_code};"
        f" the last answer {_s([stopped.answer_after_ms])} after"
    )


def _recorded(recorded: Recorded, since: str) -> str:
    return f"answer on time ({_s([recorded.total_ms])} in all), row {_s([recorded.row_after_ms])} after the {since}"


def _again(crashes: Sequence[Survived]) -> str:
    """What was done again, in the order of a turn; where rounds differ, everything that was."""
    done = {stage for crash in crashes for stage in crash.again}
    if len(done) > 2 and done == set(STAGES[: len(done)]):
        return "everything so far"
    return ", ".join(stage for stage in STAGES if stage in done) or "nothing"


def _s(values_ms: Sequence[float]) -> str:
    return f"{statistics.median(values_ms) / 1000:.1f} s"


STAGE_HEAD = (
    "worker killed in",
    *(f"`{kept.value}`: {what}" for kept in KEPT for what in ("answer after", "time lost", "done again")),
)
EVENT_HEAD = ("what dies", *(f"`{kept.value}`" for kept in KEPT))


def markdown(head: Row, rows: Sequence[Row]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ("---",) * len(head), *rows))


def on_screen(title: str, head: Row, rows: Sequence[Row]) -> Table:
    table = Table(title=title, title_justify="left", show_lines=True)
    for index, name in enumerate(head):
        table.add_column(name.replace("`", ""), no_wrap=index == 0 and len(head) > 3)
    for row in rows:
        table.add_row(*(cell.replace("`", "") for cell in row))
    return table


def tables(measured: Mapping[Durability, Measured]) -> Iterator[tuple[str, Row, Sequence[Row]]]:
    """Title, head and rows of each, the kills in stages first."""
    yield "Worker killed in each stage; one more stands by", STAGE_HEAD, list(stage_rows(measured))
    yield "Everything else", EVENT_HEAD, list(event_rows(measured))


def as_json(measured: Mapping[Durability, Measured]) -> dict[str, Any]:
    return {"takes_ms": TAKES_MS, **{kept.value: _json_of(measured[kept]) for kept in KEPT}}


def _json_of(measured: Measured) -> dict[str, Any]:
    undisturbed_ms = statistics.median(measured.undisturbed_ms)
    return {
        "undisturbed_ms": round(undisturbed_ms),
        "worker_killed": killed_as_json(measured),
        "worker_killed_none_standing_by": _crashes(measured.killed_alone, undisturbed_ms),
        f"worker_killed_budget_{BUDGET_MS}_ms": _crashes(measured.budget_gone, undisturbed_ms),
        "server_killed": _crashes(measured.server, undisturbed_ms),
        "worker_killed_under_load": [vars(load) for load in measured.load],
        "worker_stopped": [vars(stopped) for stopped in measured.stopped],
        "store_locked": _records(measured.locked),
        "store_locked_worker_killed": _records(measured.locked_and_killed),
        "store_hung": _records(measured.hung),
    }


def killed_as_json(measured: Measured) -> dict[str, Any]:
    """By the stage it was killed in."""
    undisturbed_ms = statistics.median(measured.undisturbed_ms)
    return {stage: _crashes(killed, undisturbed_ms) for stage, killed in measured.killed.items() if killed}


def _crashes(crashes: Sequence[Survived], undisturbed_ms: float) -> dict[str, Any]:
    return {
        "n": len(crashes),
        "answer_after_ms": round(statistics.median(crash.answer_after_ms for crash in crashes)),
        "answer_after_ms_worst": round(max(crash.answer_after_ms for crash in crashes)),
        "lost_ms": round(statistics.median(crash.total_ms for crash in crashes) - undisturbed_ms),
        "again": [crash.again for crash in crashes],
        "dispositions": sorted({f"{crash.result.disposition}/{crash.result.reason}" for crash in crashes}),
        "redelivered": [crash.result.redelivered for crash in crashes],
        "history_events": [crash.history_events for crash in crashes],
    }


def _records(records: Sequence[Recorded]) -> dict[str, Any]:
    return {
        "n": len(records),
        "total_ms": round(statistics.median(recorded.total_ms for recorded in records)),
        "row_after_ms": round(statistics.median(recorded.row_after_ms for recorded in records)),
        "recorded_by_the_turn": [recorded.result.recorded for recorded in records],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="kills in each stage (default 3)")
    parser.add_argument("--within-s", type=float, default=270, help="begin no round that would end later (default 270)")
    asked = parser.parse_args()
    screen, progress = Console(), Console(stderr=True)
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="retold-crashes-") as data_dir, install_tracing("retold-crashes"):
        whole = asyncio.run(measure(Path(data_dir), asked.rounds, asked.within_s, progress))
    measured = whole.by_durability
    for title, head, rows in tables(measured):
        screen.print(on_screen(title, head, rows))
    for _, head, rows in tables(measured):
        print(f"\n{markdown(head, rows)}")
    print(f"\n{whole.turns} turns sent, {whole.rows} decision rows written")
    report = {
        "load_average_before": round(load_before, 2),
        "turns": whole.turns,
        "rows": whole.rows,
        **as_json(measured),
    }
    out = Path("build/crashes.json")
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(report, indent=2, default=str) + "\n")
    print(f"\n{out}")


if __name__ == "__main__":
    main()
    end_process(0)
