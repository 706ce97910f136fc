"""What breaks, one generator of faults for each deployment: how it begins, how long it lasts, how it is mended.

A fault knows nothing of turns: `struck` sends them before, while and after it lasts, and says what became of them.
"""

from __future__ import annotations

import asyncio
import errno
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from temporalio.client import WorkflowFailureError
from temporalio.service import RPCError, RPCStatusCode

from benchmarks.faults_endpoints import (
    DRAFT,
    JUDGE,
    PLANNER,
    REGENERATION,
    BreakableQdrant,
    Collector,
)
from benchmarks.faults_machine import MovedClock, Postgres, loaded_from
from benchmarks.faults_report import Observed, Seen, is_normal, normal_after_s, seen, usual_ms
from benchmarks.faults_rig import ANNA, ANSWERED_WITHIN_S, UTILITY, Rig, Sent, Site, Traffic, Worker
from retold.contracts.record import RecordStatus, RecordWrite
from retold.policy.limits import utc_now
from retold.store.engine import in_a_thread
from tests.integration.index.qdrant_stand_in import Fault as SearchFault

LASTS_S = 2.0
NORMAL_WITHIN_S = 20.0
BEFORE_TURNS = 5
HOME = "Lives in Bern."

Notes = list[str]


async def nothing() -> None:
    """For what is over by itself."""


@dataclass(frozen=True)
class Fault:
    name: str
    begin: Callable[[], Awaitable[None]]
    mend: Callable[[], Awaitable[None]]
    lasts_s: float = LASTS_S
    notes: Notes = field(default_factory=list)
    """What the fault itself has to say; filled while it lasts."""
    prepare: Callable[[], Awaitable[None]] = nothing
    """What has to be there before it, and takes long."""


def skipped(name: str, why: str) -> Seen:
    return Seen(
        fault=name, lasted_s=0, turns=0, met=0, outcomes={}, usual_ms=0, slowest_ms=0, late_ms=None,
        answered_when_sent_again="", rows=0, lost=(), normal_after_s=None, skipped=why,
    )  # fmt: skip


async def struck(site: Site, fault: Fault) -> Seen:
    """Turns before, while and after the fault; turns whose host got an error are sent once more when it is over."""
    await fault.prepare()
    traffic = site.traffic()
    traffic.start()
    try:
        await _until(lambda: len(_answered(traffic)) >= BEFORE_TURNS, ANSWERED_WITHIN_S)
        usual = usual_ms(_answered(traffic))
        await _until(lambda: all(is_normal(turn, usual) for turn in traffic.ended[-3:]), NORMAL_WITHIN_S)
        began = time.time()
        await fault.begin()
        await asyncio.sleep(fault.lasts_s)
        await fault.mend()
        mended = time.time()
        await _until(lambda: normal_after_s(traffic.ended, mended, usual) is not None, NORMAL_WITHIN_S)
    finally:
        sent = await traffic.stop()
    again = await asyncio.gather(*(traffic.again(turn) for turn in sent if turn.result is None))
    unanswered = [turn for turn in again if turn.result is None]
    return seen(
        Observed(
            fault=fault.name,
            began_at=began,
            mended_at=mended,
            sent=sent,
            again=again,
            accepted={turn.workflow_id: await _accepted(site.rig, turn) for turn in unanswered},
            rows=await site.rows([*sent, *again]),
            notes=fault.notes,
        )
    )


def _answered(traffic: Traffic) -> list[Sent]:
    return [turn for turn in traffic.ended if turn.result is not None]


async def _until(holds: Callable[[], bool], within_s: float) -> None:
    """Or until there was time enough: what is missing then is for the report to say."""
    until = time.monotonic() + within_s
    while not holds() and time.monotonic() < until:
        await asyncio.sleep(0.05)


async def _accepted(rig: Rig, turn: Sent) -> bool:
    """Whether Temporal has the turn and means to answer it: one that failed with a typed error is on record as that."""
    handle = rig.client.get_workflow_handle(turn.workflow_id)
    try:
        await handle.describe()
        await handle.result(rpc_timeout=timedelta(seconds=5))
    except RPCError as error:
        return error.status is not RPCStatusCode.NOT_FOUND
    except WorkflowFailureError:
        return True
    return True


# --- workers and the server -----------------------------------------------------------------------------------


def worker_and_server_faults(site: Site, first: Worker) -> list[Fault]:
    """kill -9 of the only worker, of one of two, and of the Temporal server."""
    rig, second = site.rig, list[Worker]()

    async def another() -> None:
        second.append(await site.start_worker())

    async def kill_the_second() -> None:
        await second.pop().kill()

    return [
        Fault("the only worker killed, another started 2 s later", first.kill, another, lasts_s=2),
        Fault("Temporal killed, back 3 s later", rig.kill_server, rig.restart_server, lasts_s=3),
        Fault("one of two workers killed", kill_the_second, nothing, prepare=another),
    ]


# --- what a turn reads from and generates with ----------------------------------------------------------------


def qdrant_faults(qdrant: BreakableQdrant) -> list[Fault]:
    def searches(name: str, how: SearchFault) -> Fault:
        async def begin() -> None:
            qdrant.searches = how

        async def mend() -> None:
            qdrant.searches = None

        return Fault(f"Qdrant {name}", begin, mend)

    async def empty() -> None:
        qdrant.finds_nothing = True

    async def full() -> None:
        qdrant.finds_nothing = False

    return [
        searches("fails (500)", SearchFault.SERVER_ERROR),
        searches("is slow (5 s)", SearchFault.SLOW),
        Fault("Qdrant is empty", empty, full),
        searches("has another dimension (400)", SearchFault.WRONG_DIMENSION),
    ]


def model_faults(rig: Rig) -> list[Fault]:
    def hanging(name: str, role: str) -> Fault:
        async def begin() -> None:
            rig.models.hangs.add(role)

        async def mend() -> None:
            rig.models.hangs.discard(role)

        return Fault(f"{name} hangs", begin, mend)

    async def refuse() -> None:
        rig.models.refuses = True

    async def serve() -> None:
        rig.models.refuses = False

    return [
        hanging("planner's endpoint", PLANNER),
        hanging("judge's endpoint", JUDGE),
        hanging("regeneration", REGENERATION),
        hanging("the draft (limit 3 s)", DRAFT),
        Fault("every model answers 503", refuse, serve),
    ]


def collector_faults(collector: Collector) -> list[Fault]:
    async def hang() -> None:
        collector.hangs = True

    async def answer() -> None:
        collector.hangs = False

    refusing = Fault("collector refuses", collector.be_gone, collector.listen)
    return [refusing, Fault("collector hangs", hang, answer, lasts_s=6)]


# --- PostgreSQL -----------------------------------------------------------------------------------------------


def postgres_faults(database: Postgres) -> list[Fault]:
    return [Fault("PostgreSQL killed, back 4 s later", database.kill, database.restart, lasts_s=4)]


# --- a full disk ----------------------------------------------------------------------------------------------


def disk_fault(folder: Path) -> Fault:
    """Every byte of the file system taken by somebody else's file."""
    filler = folder / "filler"

    async def fill() -> None:
        with filler.open("wb", buffering=0) as file:
            for size in (1 << 16, 1 << 10, 1):
                try:
                    while True:
                        file.write(b"\0" * size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    async def free() -> None:
        filler.unlink()

    return Fault("disk full (SQLite)", fill, free, lasts_s=4)


# --- a clock that moves ---------------------------------------------------------------------------------------


def clock_faults(site: Site, clock: MovedClock) -> list[Fault]:
    """The worker's clock jumps while everybody else's goes on: an hour each way, and past a day."""

    def moved(name: str, seconds: int, lasts_s: float = LASTS_S) -> Fault:
        async def begin() -> None:
            clock.by(seconds)

        async def mend() -> None:
            clock.by(0)

        return Fault(name, begin, mend, lasts_s)

    notes: Notes = []
    known = dict[str, object]()

    async def a_day_ahead() -> None:
        """A worker that starts with a wrong clock sweeps at once: what does it take for due?"""
        async with site.store() as store:
            for write in (
                RecordWrite(text=HOME, attribute="home_city"),
                RecordWrite(text="Lives in Rome.", attribute="home_city", valid_from=utc_now() + timedelta(minutes=30)),
            ):
                await store.lifecycle.remember(ANNA, [write], actor="faults", at=utc_now())
        ahead = MovedClock(clock.file.with_name("a-day-ahead"))
        ahead.by(25 * 3600)
        known["worker"] = await site.start_worker(clock=ahead.file)

    async def looked_at() -> None:
        async with site.store() as store:
            (home,) = (each for each in await store.records(ANNA) if each.text == HOME)
        replaced = home.status is RecordStatus.SUPERSEDED
        notes.append(f"a record with a successor in half an hour {'was replaced today' if replaced else 'still holds'}")
        worker = known["worker"]
        assert isinstance(worker, Worker)
        await worker.kill()

    return [
        moved("worker's clock an hour ahead", 3600),
        moved("worker's clock an hour behind", -3600),
        Fault("a second worker is a day ahead", nothing, looked_at, notes=notes, prepare=a_day_ahead),
    ]


# --- two versions ---------------------------------------------------------------------------------------------


def version_faults(site: Site, newer: Worker, checkout: Path) -> list[Fault]:
    """An earlier version of everything beside this one, with another bundle: together, and taking over from it."""
    together: Notes = []
    over: Notes = []
    earlier = list[Worker]()

    async def both() -> None:
        earlier.append(
            await site.start_worker(
                checkout=checkout,
                PYTHONPATH=str(checkout),
                RETOLD_UTILITY=json.dumps({**UTILITY, "gap_timeout_ms": 3_900}),
            )
        )
        together.append(await in_a_thread(lambda: loaded_from(checkout)))

    async def count() -> None:
        async with site.store() as store:
            rows = await store.decisions(ANNA.tenant, limit=20)
        by_bundle: dict[str, int] = {}
        for row in rows:
            by_bundle[row.bundle_hash[:14]] = by_bundle.get(row.bundle_hash[:14], 0) + 1
        together.append(f"the last 20 turns by bundle: {by_bundle}")

    async def take_over() -> None:
        await newer.kill()

    async def back() -> None:
        await site.start_worker()
        await earlier[0].stop()

    return [
        Fault("an earlier version beside this one", nothing, count, lasts_s=4, notes=together, prepare=both),
        Fault("this version killed, the earlier one goes on", take_over, back, lasts_s=3, notes=over),
    ]
