"""`retold import`: a file of records and past turns into a running stack, batch by batch."""

from __future__ import annotations

import asyncio
import getpass
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from retold.cli import options
from retold.cli.failures import CommandError, sentence
from retold.cli.import_lines import BadLine, Batch, GoodLine, batch_id, read_batches
from retold.cli.running_stack import RunningStack, Whereabouts, connected, read_settings
from retold.cli.terminal import complain, err, out, watched, write_json
from retold.contracts import names
from retold.contracts.importing import ImportReport
from retold.contracts.operations import ImportInput
from retold.contracts.turn import Principal


def import_file(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE.jsonl", help="One JSON object a line; - reads stdin.")],
    tenant: options.Tenant,
    user: options.User,
    actor: options.Actor = None,
    as_json: options.AsJson = False,
) -> None:
    """Import records and past turns.

    A line is a record (kind "record", the default) or a past turn (kind "turn"); `retold schema` has their fields.
    A bad line is reported with its number and does not stop the rest; the exit code is then 1. Importing the same
    file again changes nothing.
    """
    principal = options.principal(tenant, user)
    outcome = asyncio.run(_import(options.whereabouts(context), file, principal, actor or getpass.getuser()))
    if as_json:
        write_json(
            {
                "file": file,
                "complete": outcome.stopped is None,
                **outcome.counts(),
                "refused": [asdict(bad) for bad in outcome.bad],
            }
        )
    else:
        _show(outcome)
    if outcome.stopped is not None:
        complain(outcome.stopped)
    if outcome.bad or outcome.stopped is not None:
        raise typer.Exit(1)


@dataclass
class _Outcome:
    """What became of the file so far. Every line read is counted in exactly one of the four."""

    written: int = 0
    turns_written: int = 0
    unchanged: int = 0
    bad: list[BadLine] = field(default_factory=list)
    stopped: str | None = None
    """Why the rest of the file was not imported."""

    def counts(self) -> dict[str, int]:
        bad_lines = len({bad.line for bad in self.bad})
        return {
            "lines": self.written + self.turns_written + self.unchanged + bad_lines,
            "written": self.written,
            "turns_written": self.turns_written,
            "unchanged": self.unchanged,
            "bad_lines": bad_lines,
        }

    def add(self, batch: Batch, report: ImportReport) -> list[BadLine]:
        """Count a batch; its bad lines in the order of the file, those of this side and those of the store."""
        refused = (BadLine(batch.good[line.index].line, line.field, line.message) for line in report.refused)
        bad = sorted((*batch.bad, *refused), key=lambda line: line.line)
        self.written += report.written
        self.turns_written += report.turns_written
        self.unchanged += report.unchanged
        self.bad += bad
        return bad


async def _import(where: Whereabouts, file: str, principal: Principal, actor: str) -> _Outcome:
    outcome = _Outcome()
    # Reading has a thread of its own: a disk may take its time, and whoever writes into a pipe even more.
    with _opened(file) as opened, _progress(opened) as advance, ThreadPoolExecutor(1) as reader:
        batches = read_batches(opened)
        async with connected(where, read_settings()) as stack:
            await stack.expect_worker(stack.operations_queue)
            while batch := await asyncio.get_running_loop().run_in_executor(reader, next, batches, None):
                report, outcome.stopped = await _try_to_send(stack, principal, batch, actor)
                for bad in outcome.add(batch, report):
                    complain(f"line {bad.line}: {bad.field}: {bad.message}")
                if outcome.stopped is not None:
                    break
                advance(batch.end_bytes)
    return outcome


async def _try_to_send(
    stack: RunningStack, principal: Principal, batch: Batch, actor: str
) -> tuple[ImportReport, str | None]:
    """What the store made of the batch; or why it did not come to it, so that going on makes no sense."""
    try:
        return await _send(stack, principal, batch.good, actor), None
    except Exception as error:
        if (why := sentence(error)) is None:
            raise
        return ImportReport(), (
            f"stopped before line {batch.good[0].line}: {why}; lines before it are stored, "
            "and the same command goes on from there"
        )


async def _send(stack: RunningStack, principal: Principal, lines: tuple[GoodLine, ...], actor: str) -> ImportReport:
    if not lines:
        return ImportReport()
    return await stack.operate(
        names.IMPORT_WORKFLOW,
        ImportInput(principal=principal, lines=tuple(line.content for line in lines), actor=actor),
        ImportReport,
        workflow_id=batch_id(principal, lines),
    )


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        if sys.stdin.isatty():
            raise CommandError("there is no file on stdin", "retold import - < FILE.jsonl")
        yield sys.stdin.buffer
        return
    with Path(file).open("rb") as opened:
        yield opened


@contextmanager
def _progress(file: BinaryIO) -> Iterator[Callable[[int], None]]:
    """A bar over the file's bytes, where somebody is watching and the size is known."""
    if not watched() or not file.seekable():
        yield lambda _: None
        return
    columns = (TextColumn("importing"), BarColumn(), TextColumn("{task.percentage:3.0f} %"), TimeRemainingColumn())
    with Progress(*columns, console=err(), transient=True) as progress:
        total = file.seek(0, 2)
        file.seek(0)
        task = progress.add_task("importing", total=total)
        yield lambda done: progress.update(task, completed=done)


def _show(outcome: _Outcome) -> None:
    console, counts = out(), outcome.counts()
    for label, name in (
        ("lines read", "lines"),
        ("records written", "written"),
        ("turns written", "turns_written"),
        ("already stored", "unchanged"),
        ("bad lines", "bad_lines"),
    ):
        console.print(f"{label:<16} {counts[name]:>9,}")
    if outcome.bad:
        console.print("Bad lines were left out, the others are stored. Correct them and import again.", soft_wrap=True)
