"""From what the sections measured to `bench.json`: its keys are the interface of other tools and never renamed."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.budget import Cell
from benchmarks.measures import median_of_rounds, pooled, quantile, ratio_of_rounds
from benchmarks.retrieval import SearchTimes
from benchmarks.round_trips import ServerCost
from benchmarks.throughput import Throughput
from benchmarks.turn_overhead import EVERYDAY, FLOOR, IN_PROCESS, STAGE, TURN, Overhead

Json = dict[str, Any]

KEYS = {FLOOR: "floor", IN_PROCESS: "in_process", TURN: "turn", STAGE: "stage", EVERYDAY: "everyday"}
RATIO_STAGE_MS = 50


@dataclass
class Results:
    """What was measured; a section that was not run is None."""

    machine: Json
    run: Json
    overhead: Overhead | None = None
    server: Mapping[str, ServerCost] | None = None
    throughput: Mapping[int, Throughput] | None = None
    budget: Sequence[Cell] | None = None
    retrieval: Mapping[int, SearchTimes] | None = None
    notes: list[str] = field(default_factory=list)


def as_json(results: Results) -> Json:
    """Milliseconds to two decimals, ratios and counts to three. Peers stand under `turn.peers`."""
    found: Json = {"machine": results.machine, "run": results.run}
    if results.overhead is not None:
        _put_overhead(found, results.overhead)
    for name, cost in (results.server or {}).items():
        _part(found, KEYS[name]).update(
            round_trips=round(cost.round_trips, 3),
            history_events=round(cost.events, 3),
            history_events_least=cost.least_events,
            calls={operation: round(count, 3) for operation, count in cost.calls.items()},
        )
    if results.throughput is not None:
        _put_throughput(_part(found, "turn"), results.throughput)
    if results.budget is not None:
        found["budget"] = _budget(results.budget)
    if results.retrieval is not None:
        found["retrieval"] = {str(size): _searches(times) for size, times in results.retrieval.items()}
    if results.notes:
        found["notes"] = results.notes
    return found


def promised_alone(cells: Sequence[Cell]) -> list[Cell]:
    """The cells that `budget.<ms>` is about: one turn at a time, where something is promised."""
    return [cell for cell in cells if cell.in_flight == 1 and cell.promised]


def _put_overhead(found: Json, overhead: Overhead) -> None:
    for length, walls in overhead.walls.items():
        for name, rounds in walls.items():
            part = _part(found, KEYS[name]) if name in KEYS else _part(_part(_part(found, "turn"), "peers"), name)
            _part(part, "p50_ms")[str(length)] = round(median_of_rounds(rounds), 2)
            _part(part, "p95_ms")[str(length)] = round(quantile(pooled(rounds), 0.95), 2)
            if length == RATIO_STAGE_MS and name != FLOOR:
                part[f"overhead_ratio_{RATIO_STAGE_MS}ms"] = round(ratio_of_rounds(rounds, walls[FLOOR]), 3)


def _put_throughput(turn: Json, throughput: Mapping[int, Throughput]) -> None:
    turn["turns_per_s"] = {str(number): round(each.turns_per_s, 2) for number, each in throughput.items()}
    turn["load"] = {
        str(number): {
            "p50_ms": round(statistics.median(each.walls_ms), 2) if each.walls_ms else None,
            "cpu_ms_a_turn": round(each.cpu_ms_a_turn, 2),
            "cut_short": each.cut_short,
            "unreached": each.unreached,
            "recorded_late": each.recorded_late,
        }
        for number, each in throughput.items()
    }


def _budget(cells: Sequence[Cell]) -> Json:
    """Of each budget the worst median and the worst p95 among the promised cells, and every cell beside them."""
    found: Json = {}
    for budget_ms in dict.fromkeys(cell.budget_ms for cell in cells):
        mine = [cell for cell in cells if cell.budget_ms == budget_ms]
        alone = promised_alone(mine)
        found[str(budget_ms)] = {
            "median_over_ms": round(max(cell.median_ms for cell in alone), 2),
            "p95_over_ms": round(max(cell.p95_ms for cell in alone), 2),
            "cells": [_cell(cell) for cell in mine],
        }
    return found


def _cell(cell: Cell) -> Json:
    return {
        "durability": cell.durability,
        "policies": cell.style,
        "in_flight": cell.in_flight,
        "slow_store": cell.slow_store,
        "median_over_ms": round(cell.median_ms, 2),
        "p95_over_ms": round(cell.p95_ms, 2),
        "host_median_over_ms": round(quantile(cell.host_over_ms, 0.5), 2),
        "turns": len(cell.over_ms),
        "answered_before_the_deadline": cell.early,
    }


def _searches(times: SearchTimes) -> Json:
    return {
        "p50_ms": round(times.p50_ms, 2),
        "p95_ms": round(times.p95_ms, 2),
        "embedding_p50_ms": round(quantile(times.embedding_ms, 0.5), 2),
        "searches": len(times.walls_ms),
        "candidates": round(times.candidates, 2),
    }


def _part(found: Json, name: str) -> Json:
    part: Json = found.setdefault(name, {})
    return part
