# ruff: noqa: T201 - a benchmark prints what it measured
"""Turns that arrive whether or not the earlier ones were answered: one command, tables on screen, `build/load.json`.

    python -m benchmarks.load [--seconds 90] [--quick]

An embedded Temporal server, one worker and one generator, a process each. What the worker can do is measured first, in
a closed loop; then turns arrive as a Poisson process at half of that, at all of it, at twice as much, and at half
again. Budgets are drawn anew for every turn. What must hold is checked at the end, and decides the exit code: nothing
is lost, budgets hold, and recovery is immediate.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from benchmarks import load_generator, load_worker
from benchmarks.crash_rig import ROOT
from benchmarks.facts import load_average, machine_facts
from benchmarks.load_generator import FINISH, FINISHED, SENT, Outcome, Phase
from benchmarks.load_report import GRACE_MS, Ended, lost, phase_report, recovered_after_s, shed
from benchmarks.load_worker import READY, Lengths, resident_mb
from benchmarks.measures import quantile
from retold.cli.embedded import embedded_temporal
from retold.client import plugins
from retold.client.runtime import core_runtime
from retold.client.tracing import install_tracing
from retold.contracts.record import RecordWrite
from retold.contracts.turn import Principal
from retold.ending import end_process
from retold.policy.limits import utc_now
from retold.settings import WorkerSettings
from retold.store.engine import open_engine
from retold.store.migrations import migrate
from retold.store.store import Store

Json = dict[str, Any]

BUDGETS_MS = (0, 150, 400, 800, None)
CONCURRENT_TURNS = 4
"""Few, so that the worker's permits are what is overloaded and not the cores it shares with server and generator:
where models take seconds, permits are what runs out first. With the product's 32 this machine's cores are."""
TENANTS = 50
RECORDS_A_TENANT = 8
HALF, WHOLE, TWICE, AFTER = "half", "whole", "twice", "after"
CAPACITY = "capacity"
PHASES = {HALF: (0.5, 0.15), WHOLE: (1.0, 0.2), TWICE: (2.0, 0.25), AFTER: (0.5, 0.15)}
"""Times the capacity, and share of the whole run's seconds."""
WARM_SHARE, STEP_SHARE = 0.05, 0.05
"""Of the seconds: for turns that are not counted, and for each step of the closed loop."""
STEPS = (1, 1.5, 2, 2.5)
"""Callers of the closed loop, for each turn that may have memory. Capacity is the most turns a second of a step in
which hardly a turn was shed."""
HARDLY = 0.05
ROWS_WITHIN_S = 60.0
STARTS_WITHIN_S = 90.0
STOPS_WITHIN_S = 30.0
BUDGETS_HELD = 0.99
"""Share of the turns with a budget that may not be later than the grace at the worker."""
RECOVERS_WITHIN_S = 3.0
OVERLOADED = 0.1
"""Share of the turns that were shed, from which on twice the capacity was an overload; else it was misjudged."""


@dataclass(frozen=True)
class Measured:
    capacity_per_s: float
    turns: Sequence[Ended]
    accepted: Mapping[str, bool]
    seconds: Mapping[str, float]
    memory_mb: Mapping[str, float]
    """Of the worker, at the end of each phase."""
    twice_ended_at: float


async def measure(folder: Path, seconds: float, lengths: Lengths, settings: WorkerSettings, say: Console) -> Measured:
    """The whole run: capacity, then the phases, then what is on record."""
    queue, run = f"load-{uuid.uuid4()}", str(uuid.uuid4())
    async with embedded_temporal(folder) as server, _store(folder) as store:
        client = await Client.connect(server.temporal, plugins=plugins(), runtime=core_runtime())
        worker_orders = load_worker.Orders(
            address=server.temporal,
            task_queue=queue,
            folder=folder,
            store_url=f"sqlite:///{folder / 'retold.db'}",
            lengths=lengths,
            settings=settings,
        )
        generator_orders = load_generator.Orders(
            address=server.temporal,
            task_queue=queue,
            log=folder / "outcomes",
            run=run,
            tenants=TENANTS,
            budgets_ms=BUDGETS_MS,
        )
        async with (
            _process("benchmarks.load_worker", worker_orders.model_dump_json(), folder) as worker,
            _process("benchmarks.load_generator", generator_orders.model_dump_json(), folder) as generator,
        ):
            await _says(worker, READY, STARTS_WITHIN_S)
            await _run(generator, Phase(name="warm", seconds=WARM_SHARE * seconds, lanes=settings.concurrent_turns))
            for step in STEPS:
                lanes = round(step * settings.concurrent_turns)
                say.print(f"capacity: {lanes} callers in a closed loop")
                phase = Phase(name=f"{CAPACITY} {lanes}", seconds=STEP_SHARE * seconds, lanes=lanes)
                await _run(generator, phase)
            memory = {CAPACITY: resident_mb(worker.pid)}
            per_s = capacity_per_s(_outcomes(generator_orders.log), STEP_SHARE * seconds)
            twice_ended_at = 0.0
            for name, (times, share) in PHASES.items():
                say.print(f"{name}: {times * per_s:.1f} turns/s for {share * seconds:.0f} s")
                await _run(generator, Phase(name=name, seconds=share * seconds, turns_per_s=times * per_s))
                memory[name] = resident_mb(worker.pid)
                if name == TWICE:
                    twice_ended_at = time.time()
            say.print("what is still under way")
            await _tell(generator, FINISH)
            await _says(generator, FINISHED, load_generator.ANSWERS_WITHIN_S + 10)
            outcomes = _outcomes(generator_orders.log)
            rows = await _rows(store, outcomes)
            accepted = {each.workflow_id: await _exists(client, each.workflow_id) for each in outcomes if each.error}
            memory["rest"] = resident_mb(worker.pid)
    return Measured(
        capacity_per_s=per_s,
        turns=[Ended(outcome, rows.get(outcome.workflow_id)) for outcome in outcomes],
        accepted=accepted,
        seconds={name: share * seconds for name, (_, share) in PHASES.items()},
        memory_mb=memory,
        twice_ended_at=twice_ended_at,
    )


def report(measured: Measured) -> Json:
    """`load.json` without the facts about the machine: numbers by phase and budget, and what must hold."""
    by_phase = {name: [turn for turn in measured.turns if turn.outcome.phase == name] for name in PHASES}
    phases = {name: phase_report(turns, measured.seconds[name]) for name, turns in by_phase.items()}
    usual = quantile([turn.answer_ms for turn in by_phase[HALF] if turn.answered], 0.95)
    recovered = recovered_after_s(by_phase[AFTER], measured.twice_ended_at, usual)
    missing = lost(measured.turns, measured.accepted)
    return {
        "capacity_per_s": round(measured.capacity_per_s, 2),
        "turns": len(measured.turns),
        "rows": sum(turn.row is not None for turn in measured.turns),
        "phases": phases,
        "overloaded": phases[TWICE]["shed"] >= OVERLOADED * phases[TWICE]["turns"],
        "memory_mb": {name: round(mb, 1) for name, mb in measured.memory_mb.items()},
        "lost": missing,
        "recovered_after_s": recovered,
        "usual_answer_p95_ms": round(usual, 1),
        "must_hold": {
            "nothing is lost": not any(missing.values()),
            f"budgets hold at twice the capacity (late by more than {GRACE_MS:.0f} ms: under 1 %)": _held(
                by_phase[TWICE]
            ),
            "hardly a turn is shed at half the capacity": phases[HALF]["shed"] <= HARDLY * phases[HALF]["turns"],
            "no host got an error at twice the capacity": not phases[TWICE]["errors"],
            f"answers are as usual {RECOVERS_WITHIN_S:.0f} s after": recovered is not None
            and recovered <= RECOVERS_WITHIN_S,
        },
    }


def _held(turns: Sequence[Ended]) -> bool:
    late = [ms for turn in turns if (ms := turn.late_at_worker_ms) is not None]
    return bool(late) and sum(ms <= GRACE_MS for ms in late) >= BUDGETS_HELD * len(late)


# --- processes ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _process(module: str, orders: str, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Ends with the block: by its closed stdin if it listens, else by its process id."""
    with (folder / f"{module}.log").open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, orders,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors, cwd=ROOT,
        )  # fmt: skip
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOPS_WITHIN_S):
                await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _run(generator: asyncio.subprocess.Process, phase: Phase) -> None:
    await _tell(generator, phase.model_dump_json().encode())
    await _says(generator, SENT, phase.seconds + 120)


async def _tell(process: asyncio.subprocess.Process, line: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(line + b"\n")
    await process.stdin.drain()


async def _says(process: asyncio.subprocess.Process, line: bytes, within_s: float) -> None:
    assert process.stdout is not None
    async with asyncio.timeout(within_s):
        said = await process.stdout.readline()
    if said != line:
        raise RuntimeError(f"process {process.pid} said {said!r} where {line!r} was due: see its log")


@asynccontextmanager
async def _store(folder: Path) -> AsyncIterator[Store]:
    engine = open_engine(f"sqlite:///{folder / 'retold.db'}")
    await migrate(engine)
    store = Store(engine)
    try:
        for number in range(TENANTS):
            lines = [
                RecordWrite(id=f"r{at}", text=f"The team prefers dish number {at}.") for at in range(RECORDS_A_TENANT)
            ]
            principal = Principal(tenant=f"tenant-{number}", user="user")
            await store.import_lines(principal, lines, actor="load", at=utc_now())
        yield store
    finally:
        await store.close()


def capacity_per_s(outcomes: Sequence[Outcome], step_s: float) -> float:
    """Answered turns a second, in the best step of the closed loop in which hardly one was shed."""
    steps: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.phase.startswith(CAPACITY) and not outcome.error:
            steps.setdefault(outcome.phase, []).append(outcome)
    whole = (turns for turns in steps.values() if sum(map(shed, turns)) <= HARDLY * len(turns))
    return max((len(turns) for turns in whole), default=0) / step_s


def _outcomes(log: Path) -> list[Outcome]:
    return [Outcome.model_validate_json(line) for line in log.read_text().splitlines()]


async def _rows(store: Store, outcomes: Sequence[Outcome]) -> Mapping[str, Any]:
    """By workflow id; waits for late ones as long as they may take."""
    answered = {outcome.workflow_id for outcome in outcomes if not outcome.error}
    until = time.monotonic() + ROWS_WITHIN_S
    while True:
        rows = {row.workflow_id: row for row in await store.decisions(limit=2 * len(outcomes) + 1)}
        if answered <= rows.keys() or time.monotonic() > until:
            return rows
        await asyncio.sleep(1)


async def _exists(client: Client, workflow_id: str) -> bool:
    try:
        await client.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True


# --- showing --------------------------------------------------------------------------------------------------


def phase_table(found: Json) -> Table:
    table = Table(title=f"Capacity {found['capacity_per_s']} turns/s; ms, p50 / p95 / p99", title_justify="left")
    for column in ("phase", "budget", "turns", "to the answer", "late at worker", "late at host", "missed", "memory"):
        table.add_column(column, justify="left" if column in ("phase", "budget") else "right")
    for name, phase in found["phases"].items():
        for budget, part in phase["by_budget"].items():
            table.add_row(
                name,
                budget,
                str(part["turns"]),
                *(_three(part[key]) for key in ("answer_ms", "late_at_worker_ms", "late_at_host_ms")),
                str(part["missed"]),
                f"{part['with_memory']} in, {part['withheld']} withheld",
            )
        rates = f"{phase['offered_per_s']} offered, {phase['answered_per_s_while_it_lasted']} answered a second"
        table.add_row(
            name, rates, str(phase["turns"]), f"waited {_three(phase['waited_ms'])}", "", "",
            "", f"{sum(phase['errors'].values())} errors, {phase['recorded_late']} recorded late",
            end_section=True,
        )  # fmt: skip
    return table


def _three(quantiles: Json | None) -> str:
    return "" if quantiles is None else " / ".join(f"{quantiles[name]:.0f}" for name in ("p50", "p95", "p99"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, help="of the whole run but its ends (default 90; --quick: 30)")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--lengths", default="{}", help="of the models' calls, as JSON (see `Lengths`)")
    parser.add_argument(
        "--concurrent-turns", type=int, default=CONCURRENT_TURNS, help=f"of the worker (default {CONCURRENT_TURNS})"
    )
    asked = parser.parse_args()
    seconds = asked.seconds or (30.0 if asked.quick else 90.0)
    lengths, screen = Lengths.model_validate_json(asked.lengths), Console()
    before = load_average()
    with tempfile.TemporaryDirectory(prefix="retold-load-") as folder, install_tracing("retold-load"):
        settings = WorkerSettings(concurrent_turns=asked.concurrent_turns, graceful_shutdown_s=5)
        measured = asyncio.run(measure(Path(folder), seconds, lengths, settings, Console(stderr=True)))
    found = {
        "machine": machine_facts({}),
        "load_average": {"before": before, "after": load_average()},
        "lengths": lengths.model_dump(),
        "concurrent_turns": asked.concurrent_turns,
        "budgets_ms": BUDGETS_MS,
        **report(measured),
    }
    out = Path("build/load.json")
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(found, indent=2) + "\n")
    screen.print(phase_table(found))
    print(f"{found['turns']} turns, {found['rows']} rows; worker's memory {found['memory_mb']} MB")
    print(f"as usual again after {found['recovered_after_s']} s; load average before {before}")
    if not found["overloaded"]:
        print("twice the capacity was no overload: the capacity was misjudged (is the machine used by others?)")
    for what, holds in found["must_hold"].items():
        print(f"{'holds ' if holds else 'BROKEN'}  {what}")
    print(out)
    return 0 if all(found["must_hold"].values()) else 1


if __name__ == "__main__":
    end_process(main())
