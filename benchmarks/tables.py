"""What a run found, as tables on a terminal. Everything here reads the content of `bench.json` and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.results import RATIO_STAGE_MS
from benchmarks.targets import Target

Json = dict[str, Any]

RETOLD = {
    "floor": "plain asyncio, five stages and nothing else",
    "in_process": "Retold in process (store, spans)",
    "turn": "Retold, durability turn",
    "stage": "Retold, durability stage",
    "everyday": "what everyone writes: regular activities, workflow timers",
}
TURN_NOTE = (
    "Draft and plan together, then retrieve, admit, regenerate. p50: median of the rounds' medians; the ratio is to the"
    " floor of the same round. Retold's turns read and write its SQLite store and make spans; peers persist what their"
    " runtimes persist (DBOS every step, LangGraph a checkpoint a step, synchronously) and neither hold a budget nor"
    " keep a decision log."
)
CALLS_NOTE = (
    "Means over turns with 50 ms stages, one at a time: all calls of the SDK by its request metrics, client and worker"
    " together, without polls that came back empty and a worker's idle traffic."
)
BUDGET_NOTE = (
    "ms from draft + budget to the workflow's code returning the answer, median / p95 over turns that the deadline"
    " ended; stages that never return, in rotation. Budgets from 1,000 ms wait side by side, started 250 ms apart."
)
RETRIEVAL_NOTE = (
    "One query at a time, its embedding included; 50 tenants; made-up texts, vectors moved at random from real ones."
)
LOAD_NOTE = (
    "Closed loop, durability turn, stages of 0 ms, real retrieval on the embedded index (words hashed, no model), store"
    " and spans on. CPU is this process's: host, worker, store and index, not the server."
)


def section_tables(found: Json) -> Iterator[RenderableType]:
    """The tables of whatever was measured, each followed by how to read it."""
    if "floor" in found:
        yield from (_overhead(found), Text(TURN_NOTE, style="dim"))
    if "round_trips" in found.get("turn", {}):
        yield from (_server(found), Text(CALLS_NOTE, style="dim"))
    if "turns_per_s" in found.get("turn", {}):
        yield from (_load(found["turn"]), Text(LOAD_NOTE, style="dim"))
    if "budget" in found:
        yield from (_budget(found["budget"]), Text(BUDGET_NOTE, style="dim"))
    if "retrieval" in found:
        yield from (_retrieval(found["retrieval"]), Text(RETRIEVAL_NOTE, style="dim"))


def target_table(targets: list[Target]) -> Table:
    table = Table(title="Targets", title_justify="left")
    for column in ("what", "measured", "target", ""):
        table.add_column(column, justify="left" if column in ("what", "") else "right")
    colours = {"met": "green", "MISSED": "bold red", "not measured": "yellow"}
    for target in targets:
        measured = "-" if target.value is None else _number(target.value)
        limit = "-" if target.value is None and target.limit == 0 else _number(target.limit)
        sign = "<=" if target.at == "most" else ">="
        table.add_row(target.what, measured, f"{sign} {limit}", Text(target.verdict, style=colours[target.verdict]))
    return table


def _overhead(found: Json) -> Table:
    table = Table(title="A turn of five stages, ms", title_justify="left")
    lengths = list(found["floor"]["p50_ms"])
    table.add_column("")
    for length in lengths:
        table.add_column(f"{length} ms stages p50", justify="right")
        table.add_column("p95", justify="right")
    table.add_column("ratio to floor", justify="right")
    rows = {title: found[key] for key, title in RETOLD.items() if "p50_ms" in found.get(key, {})}
    rows.update(found.get("turn", {}).get("peers", {}))
    for title, row in rows.items():
        cells = [_number(row[quantile][length]) for length in lengths for quantile in ("p50_ms", "p95_ms")]
        ratio = row.get(f"overhead_ratio_{RATIO_STAGE_MS}ms")
        table.add_row(title, *cells, "" if ratio is None else f"{ratio:.3f}")
    return table


def _server(found: Json) -> Table:
    table = Table(title="Server round trips and history events a turn", title_justify="left")
    for column in ("", "round trips", "events", "of which"):
        table.add_column(column, justify="right" if column in ("round trips", "events") else "left")
    for key, title in RETOLD.items():
        if "round_trips" in (row := found.get(key, {})):
            calls = ", ".join(f"{_short(operation)} {count:.1f}" for operation, count in row["calls"].items())
            events = f"{row['history_events']:.1f} (least {row['history_events_least']})"
            table.add_row(title, f"{row['round_trips']:.1f}", events, calls)
    return table


def _load(turn: Json) -> Table:
    table = Table(title="Turns a second with everything on this machine", title_justify="left")
    for column in ("in flight", "turns/s", "p50 ms", "CPU ms a turn", "recorded late", "cut short", "unreached"):
        table.add_column(column, justify="right")
    for number, per_s in turn["turns_per_s"].items():
        load = turn["load"][number]
        counts = [str(load[name]) for name in ("recorded_late", "cut_short", "unreached")]
        p50 = "-" if load["p50_ms"] is None else _number(load["p50_ms"])
        table.add_row(number, _number(per_s), p50, _number(load["cpu_ms_a_turn"]), *counts)
    return table


def _budget(budgets: Json) -> Table:
    table = Table(title="Answer after draft + budget, ms: median / p95", title_justify="left")
    kinds = list(
        dict.fromkeys((cell["policies"], cell["slow_store"]) for each in budgets.values() for cell in each["cells"])
    )
    for column in ("budget", "durability", "in flight"):
        table.add_column(column, justify="right")
    for policies, slow_store in kinds:
        table.add_column(f"{policies}, slow store" if slow_store else policies, justify="right")
    for budget_ms, each in budgets.items():
        rows: dict[tuple[str, int], dict[tuple[str, bool], str]] = {}
        for cell in each["cells"]:
            row = rows.setdefault((cell["durability"], cell["in_flight"]), {})
            shown = f"{cell['median_over_ms']:.0f} / {cell['p95_over_ms']:.0f}"
            row[cell["policies"], cell["slow_store"]] = shown
        for (durability, in_flight), row in rows.items():
            table.add_row(budget_ms, durability, str(in_flight), *(row.get(kind, "") for kind in kinds))
    return table


def _retrieval(retrieval: Json) -> Table:
    table = Table(title="Hybrid, tenant-filtered retrieval on the embedded index, ms", title_justify="left")
    for column in ("records", "p50", "p95", "of which embedding", "searches"):
        table.add_column(column, justify="right")
    for size, row in retrieval.items():
        numbers = [_number(row[name]) for name in ("p50_ms", "p95_ms", "embedding_p50_ms")]
        table.add_row(f"{int(size):,}", *numbers, str(row["searches"]))
    return table


def _short(operation: str) -> str:
    """`RespondWorkflowTaskCompleted` and its like, readable six a line."""
    for long, short in (("WorkflowExecution", ""), ("WorkflowTask", "WT"), ("ActivityTask", "AT"), ("Queue", "")):
        operation = operation.replace(long, short)
    return operation


def _number(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
