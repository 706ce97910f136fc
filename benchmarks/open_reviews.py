"""Thousands of reviews open at once, on the embedded stack: `make bench-reviews [N=10000]`.

Opening an item, the first page and one decision must stay fast however long the queue is, so each is measured twice:
with few items open, and with all of them. A table on screen and `build/reviews.json`; whatever was started is stopped
when this ends. About six minutes for 10,000 items on two cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from benchmarks.facts import load_average, machine_facts
from benchmarks.measures import quantile
from benchmarks.review_rig import Rig, principal_of, review_rig
from retold.contracts.review import ReviewFilter
from retold.ending import end_process
from retold.policy.limits import utc_now

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
FEW = 100
CALLS = 40
RESOLVED = 100
AT_ONCE = 16
PAGE = 20
DRAINED_WITHIN_S = 900

T = TypeVar("T")
Say = Callable[[str], None]

ROWS = {
    "first_page": "first page of 20, from the store",
    "tenant_page": "first page of one tenant",
    "item": "one item with texts and profiles",
    "backlog": "how full the queue is",
    "open": "opening one more item",
    "sweep": "a sweep that finds nothing to do",
    "temporal_page": "first page of 20, from Temporal",
    "state": "the workflow's own state (query)",
    "resolve": "a decision, one after another",
    "resolve_at_once": f"a decision, {AT_ONCE} at a time",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.open_reviews")
    parser.add_argument("--items", type=int, default=10_000, help="how many reviews are open (at least 500)")
    number = max(500, parser.parse_args().items)
    BUILD.mkdir(exist_ok=True)
    logging.basicConfig(filename=BUILD / "reviews.log", filemode="w", level=logging.WARNING)
    console = Console(highlight=False)
    with console.status("starting") as status, tempfile.TemporaryDirectory(dir=BUILD, prefix="reviews-") as folder:
        found = asyncio.run(_measured(Path(folder), number, status.update))
    _show(console, found)
    (BUILD / "reviews.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    console.print("written to build/reviews.json; the log of the run is build/reviews.log")
    return 0


async def _measured(folder: Path, number: int, say: Say) -> dict[str, Any]:
    found: dict[str, Any] = {"items": number, "machine": machine_facts({}), "load_average_before": load_average()}
    async with review_rig(folder, bound=2 * number) as rig:
        say(f"a queue of {FEW}")
        await _fill(rig, FEW)
        await rig.workflows.sweep()
        empty = rig.memory()
        found["few"] = await _what_somebody_waits_for(rig)
        found["opening"] = await _opening(rig, number, say)
        full = rig.memory()
        more = len(rig.opened) - FEW
        found["memory"] = {
            "server_mb": [empty[0], full[0]],
            "worker_mb": [empty[1], full[1]],
            "server_kb_an_item": (full[0] - empty[0]) * 1e3 / more,
            "worker_kb_an_item": (full[1] - empty[1]) * 1e3 / more,
        }
        say(f"a queue of {number}")
        found["many"] = await _what_somebody_waits_for(rig)
    found["load_average_after"] = load_average()
    return found


async def _opening(rig: Rig, number: int, say: Say) -> dict[str, float]:
    """All the items at once: as rows, as workflows, and until a worker has looked at each."""
    more = number - len(rig.opened)
    say(f"opening {more} items")
    rows_s = await _fill(rig, more)
    say(f"starting {more} workflows")
    began = time.perf_counter()
    await rig.workflows.sweep()
    started_s = time.perf_counter() - began
    say("waiting for the worker to look at each")
    async with asyncio.timeout(DRAINED_WITHIN_S):
        while await rig.first_tasks_waiting() > 0:
            await asyncio.sleep(0.5)
    drained_s = time.perf_counter() - began
    return {"rows_a_second": more / rows_s, "starts_a_second": more / started_s, "drained_after_s": drained_s}


async def _fill(rig: Rig, number: int) -> float:
    """Open this many items, one transaction each; the seconds that took, their records not counted."""
    numbers = await rig.write_records(number)
    began = time.perf_counter()
    for at in numbers:
        await rig.open(at)
    return time.perf_counter() - began


async def _what_somebody_waits_for(rig: Rig) -> dict[str, Any]:
    """Milliseconds, at p50 and p95, with the queue as long as it is."""
    desk, shown = rig.store.reviews, rig.opened[len(rig.opened) // 2]
    bound, owner = rig.settings.backlog_bound, rig.settings.owner
    tenant = ReviewFilter(limit=PAGE, tenants=(principal_of(1).tenant,))
    found: dict[str, Any] = {"open_items": (await desk.backlog(bound=bound, owner=owner)).open}
    found["first_page"] = await _repeated(CALLS, lambda: desk.page(ReviewFilter(limit=PAGE)))
    found["tenant_page"] = await _repeated(CALLS, lambda: desk.page(tenant))
    found["item"] = await _repeated(CALLS, lambda: desk.item(shown.review_id, utc_now()))
    found["backlog"] = await _repeated(CALLS, lambda: desk.backlog(bound=bound, owner=owner))
    found["sweep"] = await _repeated(10, rig.workflows.sweep)
    found["temporal_page"] = await _repeated(10, lambda: _page_of_temporal(rig))
    found["state"] = await _repeated(CALLS, lambda: rig.reviews.state(shown.review_id))
    found["resolve"] = _spread(await _each(rig.take(_some(rig)), rig.resolve))
    began, taken = time.perf_counter(), rig.take(_some(rig))
    found["resolve_at_once"] = _spread(await _each(taken, rig.resolve, at_once=AT_ONCE))
    found["resolved_a_second"] = len(taken) / (time.perf_counter() - began)
    found["open"] = _spread(await _each(list(await rig.write_records(CALLS)), rig.open))
    await rig.workflows.sweep()
    return found


def _some(rig: Rig) -> int:
    return min(RESOLVED, len(rig.opened) // 4)


async def _page_of_temporal(rig: Rig) -> None:
    listed = rig.client.list_workflows("ReviewStatus = 'open'", page_size=PAGE)
    await listed.fetch_next_page()
    if not listed.current_page:
        raise RuntimeError("Temporal lists no open review: a measured page would look fast")


async def _repeated(times: int, call: Callable[[], Awaitable[object]]) -> dict[str, float]:
    await call()  # the first one prepares statements and caches

    async def once(_: int) -> None:
        await call()

    return _spread(await _each(range(times), once))


async def _each(items: Sequence[T], call: Callable[[T], Awaitable[object]], *, at_once: int = 1) -> list[float]:
    """The milliseconds of each call, so many at a time."""
    slots = asyncio.Semaphore(at_once)

    async def timed(item: T) -> float:
        async with slots:
            began = time.perf_counter()
            await call(item)
            return (time.perf_counter() - began) * 1e3

    return list(await asyncio.gather(*(timed(item) for item in items)))


def _spread(milliseconds: Sequence[float]) -> dict[str, float]:
    return {
        "n": len(milliseconds),
        "p50_ms": quantile(milliseconds, 0.5),
        "p95_ms": quantile(milliseconds, 0.95),
        "max_ms": max(milliseconds),
    }


def _show(console: Console, found: dict[str, Any]) -> None:
    few, many = found["few"], found["many"]
    table = Table(title="Milliseconds, p50 / p95", title_justify="left")
    table.add_column("")
    table.add_column(f"{few['open_items']} open", justify="right")
    table.add_column(f"{many['open_items']} open", justify="right")
    for key, title in ROWS.items():
        table.add_row(title, *(f"{state[key]['p50_ms']:.1f} / {state[key]['p95_ms']:.1f}" for state in (few, many)))
    console.print(table)
    opening, memory = found["opening"], found["memory"]
    console.print(
        f"opened {opening['rows_a_second']:.0f} items/s, started {opening['starts_a_second']:.0f} workflows/s; "
        f"the worker had looked at all of them {opening['drained_after_s']:.0f} s after the first start"
    )
    console.print(f"{AT_ONCE} reviewers at once: {many['resolved_a_second']:.0f} decisions/s")
    console.print(
        f"memory an open review: Temporal server {memory['server_kb_an_item']:.0f} KB "
        f"({memory['server_mb'][0]:.0f} -> {memory['server_mb'][1]:.0f} MB), worker and client "
        f"{memory['worker_kb_an_item']:.0f} KB ({memory['worker_mb'][0]:.0f} -> {memory['worker_mb'][1]:.0f} MB; it "
        "keeps at most 1,000 workflows in memory)"
    )


if __name__ == "__main__":
    end_process(main())
