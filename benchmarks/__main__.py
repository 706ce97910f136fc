"""The benchmarks of the turn, side by side in one run: `python -m benchmarks [--quick] [--only SECTION]`.

Tables on the screen, `build/bench.json` for other tools, the log of everything that ran beside it. About twelve
minutes on two cores, two with `--quick`. With `--only` the file is `bench.SECTION.json`, so that a part never
replaces a whole run. Whatever was started is stopped when this ends, however it ends.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.status import Status

from benchmarks.budget import BUDGETS_MS, KINDS, measure_budgets
from benchmarks.facts import load_average, machine_facts
from benchmarks.results import Results, as_json
from benchmarks.retrieval import SIZES, measure_retrieval
from benchmarks.round_trips import count_round_trips
from benchmarks.stack import Stack, measured_stack
from benchmarks.tables import section_tables, target_table
from benchmarks.targets import targets
from benchmarks.throughput import measure_throughput
from benchmarks.turn_overhead import contenders, measure_overhead
from retold.ending import end_process

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PEERS_PYTHON = BUILD / "bench-venv" / "bin" / "python"
SECTIONS = ("turn", "throughput", "budget", "retrieval")


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How much is run."""

    rounds: int
    turns: dict[int, int]
    """Stage length in milliseconds -> turns of each contender a round."""
    counted_turns: int
    load_s: float
    budgets_ms: tuple[int, ...]
    budget_runs: int
    kinds: tuple[tuple[str, bool], ...]
    sizes: tuple[int, ...]
    searches: int


FULL = Extent(
    rounds=5, turns={0: 20, 50: 10}, counted_turns=20, load_s=12,
    budgets_ms=BUDGETS_MS, budget_runs=20, kinds=KINDS,
    sizes=SIZES, searches=300,
)  # fmt: skip
QUICK = Extent(
    rounds=3, turns={0: 6, 50: 4}, counted_turns=8, load_s=3,
    budgets_ms=(50, 400, 1_000), budget_runs=4, kinds=(("async", False), ("blocking", False), ("async", True)),
    sizes=SIZES[:2], searches=60,
)  # fmt: skip


def main() -> int:
    arguments = _arguments()
    BUILD.mkdir(exist_ok=True)
    logging.basicConfig(filename=BUILD / "bench.log", filemode="w", level=logging.WARNING)
    logging.captureWarnings(True)
    console = Console(width=None if sys.stdout.isatty() else 130)
    sections = SECTIONS if arguments.only is None else (arguments.only,)
    file = BUILD / ("bench.json" if arguments.only is None else f"bench.{arguments.only}.json")
    try:
        results = asyncio.run(_until_told_to_stop(console, QUICK if arguments.quick else FULL, sections))
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("interrupted; nothing was written and nothing is left running")
        return 130
    found = as_json(results)
    against = targets(found)
    found["targets"] = [target.as_json() for target in against]
    for table in section_tables(found):
        console.print(table)
    console.print(target_table(against))
    for note in results.notes:
        console.print(note, style="bold yellow")
    file.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    console.print(f"written to {file.relative_to(ROOT)}; logs of this run are in build/bench.log")
    return 0


async def _until_told_to_stop(console: Console, extent: Extent, sections: tuple[str, ...]) -> Results:
    """Ctrl-C and SIGTERM cancel the run, so that it ends through every `finally` on the way out."""
    running = asyncio.current_task()
    assert running is not None
    for asked in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(asked, running.cancel)
    started = time.monotonic()
    before = load_average()
    with console.status("starting") as status, tempfile.TemporaryDirectory(dir=BUILD, prefix="bench-") as folder:
        results = await _measured(Path(folder), extent, sections, status)
    results.run.update(
        quick=extent is QUICK,
        sections=list(sections),
        seconds=round(time.monotonic() - started),
        load_average_before=before,
        load_average_after=load_average(),
    )
    if before > 0.5:
        results.notes.append(f"the machine was not quiet when this began (load {before}): latencies are too high")
    return results


async def _measured(folder: Path, extent: Extent, sections: tuple[str, ...], status: Status) -> Results:
    results = Results(machine={}, run={})
    if "retrieval" in sections:
        results.retrieval = await measure_retrieval(
            folder, extent.sizes, extent.searches, _progress(status, "retrieval")
        )
    if set(sections) - {"retrieval"}:
        async with measured_stack(folder) as stack:
            if "turn" in sections:
                await _turn(stack, extent, results, status)
            if "throughput" in sections:
                results.throughput = await measure_throughput(stack, extent.load_s, _progress(status, "throughput"))
            if "budget" in sections:
                results.budget = await measure_budgets(
                    stack, extent.budgets_ms, extent.budget_runs, _progress(status, "budget"), kinds=extent.kinds
                )
    results.machine = machine_facts(results.overhead.versions if results.overhead is not None else {})
    return results


async def _turn(stack: Stack, extent: Extent, results: Results, status: Status) -> None:
    progress = _progress(status, "turn")
    results.server = await count_round_trips(stack, extent.counted_turns, progress)
    peers = PEERS_PYTHON if PEERS_PYTHON.exists() else None
    if peers is None:
        results.notes.append("peers were not measured: `make bench` installs them into build/bench-venv")
    progress("starting the contenders")
    async with contenders(stack, peers) as (everybody, versions):
        results.overhead = await measure_overhead(everybody, extent.turns, extent.rounds, progress)
        results.overhead.versions = versions


def _progress(status: Status, section: str) -> Callable[[str], None]:
    started = time.monotonic()

    def say(what: str) -> None:
        status.update(f"{section}, {time.monotonic() - started:.0f} s: {what}")

    return say


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and sizes: to see that everything runs")
    parser.add_argument("--only", choices=SECTIONS, help="one section, into build/bench.SECTION.json")
    return parser.parse_args()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        end_process(main())
