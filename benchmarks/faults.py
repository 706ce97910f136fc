# ruff: noqa: T201 - a benchmark prints what it measured
"""Everything breaks once while turns go on: one command, a table on screen and `build/faults.json`.

    python -m benchmarks.faults [--quick] [--only PART ...] [--earlier REVISION]

On the embedded stack with real processes: `worker.py` as its settings describe it, a Temporal server, a PostgreSQL, a
model endpoint, a Qdrant server's surface and a collector, each broken and mended in mid-traffic. For every fault: what
hosts saw, what was lost, and how long it took until everything was as before; the exit code is 1 if anything was lost
or never was as before. `kill -9` of the worker in each of its stages is `benchmarks.crashes`, which runs as one of the
parts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import crashes
from benchmarks.crash_rig import crash_rig
from benchmarks.crash_scenarios import TAKES_MS
from benchmarks.crash_worker import STAGES
from benchmarks.facts import load_average, machine_facts
from benchmarks.faults_endpoints import breakable_qdrant, collector, model_endpoint
from benchmarks.faults_machine import MovedClock, earlier_checkout, postgres, small_disk
from benchmarks.faults_report import Seen
from benchmarks.faults_rig import Rig, fault_rig
from benchmarks.faults_scenarios import (
    Fault,
    clock_faults,
    collector_faults,
    disk_fault,
    model_faults,
    postgres_faults,
    qdrant_faults,
    skipped,
    struck,
    version_faults,
    worker_and_server_faults,
)  # fmt: skip
from retold.client import Durability
from retold.client.tracing import install_tracing
from retold.ending import end_process
from retold.store.engine import in_a_thread

Json = dict[str, Any]
Say = Callable[[Seen], None]

EARLIER = "HEAD~10"
DISK_MB = 24
QUICK_FAULTS = 1
"""Of each dependency, the first so many; versions and processes build on what went before, and go on to their end."""
PARTS = ("dependencies", "postgres", "disk", "clock", "versions", "processes")
STAGES_PART = "stages"
FILE_WIDTH = 150
"""Columns where the tables do not go to a terminal: 80 leave all but one of them no room."""


class Faults:
    """The parts, each with a deployment of its own on the rig's Temporal server."""

    def __init__(self, rig: Rig, say: Say, *, quick: bool, earlier: str) -> None:
        self._rig = rig
        self._say = say
        self._quick = quick
        self._earlier = earlier
        self.seen: list[Seen] = []

    @property
    def parts(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        return {name: getattr(self, name) for name in PARTS}

    async def dependencies(self) -> None:
        """Qdrant, models and the collector, around one worker that lives through all of it."""
        with breakable_qdrant() as qdrant:
            async with collector() as spans:
                site = await self._rig.site(
                    "dependencies", {"RETOLD_QDRANT_URL": qdrant.url, "OTEL_EXPORTER_OTLP_ENDPOINT": spans.url}
                )
                worker = await site.start_worker()
                for faults in (qdrant_faults(qdrant), model_faults(self._rig), collector_faults(spans)):
                    await self._strike(site, faults)
                spans.hangs = True
                stopping_s = await worker.stop()
                self._note(f"stopping the worker while the collector hangs took {stopping_s:.1f} s")

    async def postgres(self) -> None:
        async with postgres() as database:
            site = await self._rig.site("postgres", {}, store_url=database.url)
            await site.start_worker()
            await self._strike(site, postgres_faults(database))
            await site.end()

    async def disk(self) -> None:
        folder = self._rig.folder / "small"
        with small_disk(folder, DISK_MB) as why_not:
            if why_not is not None:
                self._add(skipped("disk full (SQLite)", why_not))
                return
            site = await self._rig.site("disk", {}, store_url=f"sqlite:///{folder / 'retold.db'}")
            await site.start_worker()
            await self._strike(site, [disk_fault(folder)])
            await site.end()

    async def clock(self) -> None:
        with breakable_qdrant() as qdrant:
            clock = MovedClock(self._rig.folder / "moved-clock")
            clock.by(0)
            site = await self._rig.site("clock", {"RETOLD_QDRANT_URL": qdrant.url})
            await site.start_worker(clock=clock.file)
            await self._strike(site, clock_faults(site, clock))
            await site.end()

    async def versions(self) -> None:
        checkout = self._rig.folder / "earlier"
        try:
            revision = await in_a_thread(lambda: earlier_checkout(checkout, self._earlier))
        except RuntimeError as error:
            self._add(skipped("two versions at once", str(error)))
            return
        with breakable_qdrant() as qdrant:
            site = await self._rig.site("versions", {"RETOLD_QDRANT_URL": qdrant.url})
            newer = await site.start_worker()
            faults = version_faults(site, newer, checkout)
            faults[0].notes.append(f"the earlier one is {revision[:10]}")
            await self._strike(site, faults, all_of_them=True)
            await site.end()

    async def processes(self) -> None:
        """Last: it takes the Temporal server away from everybody."""
        with breakable_qdrant() as qdrant:
            site = await self._rig.site("processes", {"RETOLD_QDRANT_URL": qdrant.url})
            await self._strike(site, worker_and_server_faults(site, await site.start_worker()), all_of_them=True)
            await site.end()

    async def _strike(self, site: Any, faults: Sequence[Fault], *, all_of_them: bool = False) -> None:
        for fault in faults if all_of_them or not self._quick else faults[:QUICK_FAULTS]:
            self._add(await struck(site, fault))

    def _add(self, seen: Seen) -> None:
        self.seen.append(seen)
        self._say(seen)

    def _note(self, what: str) -> None:
        last = self.seen[-1]
        self.seen[-1] = Seen(**{**vars(last), "notes": (*last.notes, what)})


async def measure(folder: Path, only: Sequence[str], earlier: str, *, quick: bool, say: Say) -> Sequence[Seen]:
    async with model_endpoint() as models, fault_rig(folder, models) as rig:
        faults = Faults(rig, say, quick=quick, earlier=earlier)
        for name, part in faults.parts.items():
            if not only or name in only:
                await part()
        return faults.seen


@dataclass(frozen=True)
class KilledInStages:
    turns: int
    rows: int
    measured: Mapping[Durability, crashes.Measured]

    @property
    def lost(self) -> int:
        return max(0, self.turns - self.rows)

    def as_json(self) -> Json:
        kept = {durability.value: crashes.killed_as_json(found) for durability, found in self.measured.items()}
        return {"turns": self.turns, "rows": self.rows, **kept}


async def killed_in_stages(folder: Path, *, quick: bool) -> KilledInStages:
    """One round of kills as `benchmarks.crashes` does them, both durabilities at once; quick: in two of the stages."""
    measured = {kept: crashes.Measured() for kept in crashes.KEPT}
    async with crash_rig(folder) as rig:
        lines = await asyncio.gather(*(rig.line(kept.value, TAKES_MS) for kept in crashes.KEPT))
        await asyncio.gather(
            *(
                crashes.killed_in_each_stage(rig, line, kept, measured[kept], ("draft", "admit") if quick else STAGES)
                for kept, line in zip(crashes.KEPT, lines, strict=True)
            )
        )
        turns, rows = await rig.turns_and_rows()
    return KilledInStages(turns, rows, measured)


# --- showing --------------------------------------------------------------------------------------------------


def fault_table(everything: Sequence[Seen]) -> Table:
    table = Table(title="Faults in mid-traffic (5 turns a second)", title_justify="left", show_lines=True)
    for column in ("fault", "what the hosts saw", "answers", "lost", "as before"):
        table.add_column(column, no_wrap=column == "what the hosts saw", overflow="fold")
    for seen in everything:
        table.add_row(seen.fault, *((f"skipped: {seen.skipped}", "", "", "") if seen.skipped else _cells(seen)))
    return table


def stages_table(killed: KilledInStages) -> Table:
    title, head, rows = next(crashes.tables(killed.measured))
    return crashes.on_screen(title, head, rows)


def one_line(seen: Seen) -> str:
    if seen.skipped:
        return f"{seen.fault}: skipped, {seen.skipped}"
    back = "NEVER as before" if seen.normal_after_s is None else f"as before after {seen.normal_after_s} s"
    return f"{seen.fault}: {seen.met} turns met it, {len(seen.lost)} lost, {back}"


def summary(everything: Sequence[Seen], stages: KilledInStages | None) -> Iterator[str]:
    """How many turns there were, how many are lost, and which faults were never over or not to be had here."""
    turns = sum(seen.turns for seen in everything) + (stages.turns if stages else 0)
    yield f"{turns} turns, {_lost(everything, stages)} lost"
    if never := _never_as_before(everything):
        yield f"never as before: {', '.join(never)}"
    if left_out := [seen.fault for seen in everything if seen.skipped]:
        yield f"skipped: {', '.join(left_out)}"


def exit_code(everything: Sequence[Seen], stages: KilledInStages | None) -> int:
    return 1 if _lost(everything, stages) or _never_as_before(everything) else 0


def _lost(everything: Sequence[Seen], stages: KilledInStages | None) -> int:
    return sum(len(seen.lost) for seen in everything) + (stages.lost if stages else 0)


def _never_as_before(everything: Sequence[Seen]) -> list[str]:
    return [seen.fault for seen in everything if not seen.skipped and seen.normal_after_s is None]


def _cells(seen: Seen) -> tuple[str, ...]:
    lines = [f"{count} x {outcome}" for outcome, count in seen.outcomes.items()]
    again = f"; sent again: {seen.answered_when_sent_again} answered" if seen.answered_when_sent_again else ""
    late = "" if seen.late_ms is None else f", latest {seen.late_ms} ms after draft + budget"
    return (
        "\n".join([*lines, *seen.notes]) + again,
        f"usually {seen.usual_ms} ms, slowest {seen.slowest_ms} ms{late}",
        f"{len(seen.lost)} of {seen.turns} turns ({seen.rows} rows)",
        f"after {seen.normal_after_s} s" if seen.normal_after_s is not None else "NEVER",
    )


async def _both(
    asked: argparse.Namespace, folder: Path, stages_folder: Path, progress: Console
) -> tuple[Sequence[Seen], KilledInStages | None]:
    """The kills in stages beside everything else, on a server and a store of their own: both mostly wait."""

    async def stages() -> KilledInStages | None:
        if asked.only and STAGES_PART not in asked.only:
            return None
        killed = await killed_in_stages(stages_folder, quick=asked.quick)
        progress.print(f"worker killed in its stages: {killed.turns} turns, {killed.lost} lost", soft_wrap=True)
        return killed

    def say(seen: Seen) -> None:
        progress.print(one_line(seen), soft_wrap=True)

    return await asyncio.gather(
        measure(folder, asked.only, asked.earlier, quick=asked.quick, say=say),
        stages(),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the first fault of each dependency, and fewer stages")
    parser.add_argument(
        "--only", nargs="+", default=[], choices=[*PARTS, STAGES_PART],
        help=f"parts, by name; `{STAGES_PART}` is kill -9 in each stage",
    )  # fmt: skip
    parser.add_argument("--earlier", default=EARLIER, help=f"the commit to run beside this one (default {EARLIER})")
    asked = parser.parse_args()
    screen, progress = Console(width=None if sys.stdout.isatty() else FILE_WIDTH), Console(stderr=True)
    before = load_average()
    with (
        install_tracing("retold-faults"),
        tempfile.TemporaryDirectory(prefix="retold-faults-") as folder,
        tempfile.TemporaryDirectory(prefix="retold-faults-") as stages_folder,
    ):
        seen, stages = asyncio.run(_both(asked, Path(folder), Path(stages_folder), progress))
    if seen:
        screen.print(fault_table(seen))
    if stages is not None:
        screen.print(stages_table(stages))
    found = {
        "machine": machine_facts({}),
        "load_average": {"before": before, "after": load_average()},
        "faults": [each.as_json() for each in seen],
        "worker_killed_in_stages": stages and stages.as_json(),
    }
    out = Path("build/faults.json")
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(found, indent=2, default=str) + "\n")
    for line in summary(seen, stages):
        print(line)
    print(f"load average before {before}\n{out}")
    return exit_code(seen, stages)


if __name__ == "__main__":
    end_process(main())
