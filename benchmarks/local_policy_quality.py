# ruff: noqa: T201 - a benchmark prints what it measured
"""What the local planner and judge decide on other people's data: fires, admissions, abstentions, and what they cost.

    python -m benchmarks.local_policy_quality DATA [--only planner|joint] [--sample N]

DATA holds recall, unanswerable, ordinary and preference rows and pools/ (their README says what they are). Rows are
read and measured; none is copied and none trained the weights. Candidates come from the trainer's small search (BM25
and cosine, fused, eight deep), so that this measures the policies; the retriever has a benchmark of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from retold.contracts.record import MemoryRecord, RecordType, RetrievalCategory
from retold.contracts.stages import EMPTY_PROFILE
from retold.models.embedding.minilm import MiniLmEmbedder
from retold.policy.local import LocalGapPlanner, LocalJudge
from training.search import CANDIDATES, Pool

Row = dict[str, Any]
INVENTORY = (RetrievalCategory.OTHER,)
DRAFT = "I do not know that about you."


@dataclass
class Tally:
    """What became of one group of turns."""

    turns: int = 0
    fired: int = 0
    found: int = 0
    injected: int = 0
    any_gold: int = 0
    all_gold: int = 0
    admitted: int = 0
    admitted_gold: int = 0

    def add(self, other: Tally) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def line(self) -> str:
        share = {
            "fired": self.fired / self.turns,
            "injected": self.injected / self.turns,
            "gold in candidates": self.found / self.turns,
            "any gold": self.any_gold / self.turns,
            "all gold": self.all_gold / self.turns,
            "precision": self.admitted_gold / max(self.admitted, 1),
            "mean admitted": self.admitted / max(self.injected, 1),
        }
        return f"n={self.turns:4d} " + "  ".join(f"{name} {value:.3f}" for name, value in share.items())


@dataclass
class Bench:
    embedder: MiniLmEmbedder
    planner: LocalGapPlanner
    judge: LocalJudge
    plan_ms: list[float] = field(default_factory=list)
    admit_ms: list[float] = field(default_factory=list)

    async def pool(self, records: Sequence[MemoryRecord]) -> Pool:
        return Pool(records, await self.embedder.embed_passages([record.text for record in records]))

    async def decide(self, turn: str, pool: Pool, gold: set[str], *tallies: Tally) -> None:
        outcome = await self._outcome(turn, pool, gold)
        for tally in tallies:
            tally.add(outcome)

    async def _outcome(self, turn: str, pool: Pool, gold: set[str]) -> Tally:
        tally = Tally(turns=1)
        started = time.perf_counter()
        plan = await self.planner.plan(turn, None, EMPTY_PROFILE, INVENTORY)
        self.plan_ms.append((time.perf_counter() - started) * 1e3)
        if not plan.gaps:
            return tally
        tally.fired = 1
        by_gap = [
            pool.search(gap.query, vector)
            for gap, vector in zip(
                plan.gaps, await self.embedder.embed_queries([gap.query for gap in plan.gaps]), strict=True
            )
        ]
        candidates = interleaved(by_gap)
        tally.found = int(bool(gold & {record.id for record in candidates}))
        started = time.perf_counter()
        decision = await self.judge.admit(turn, None, EMPTY_PROFILE, DRAFT, candidates)
        self.admit_ms.append((time.perf_counter() - started) * 1e3)
        admitted = set(decision.admitted)
        tally.injected = int(bool(admitted))
        tally.admitted = len(admitted)
        tally.admitted_gold = len(admitted & gold)
        tally.any_gold = int(bool(admitted & gold))
        tally.all_gold = int(bool(gold) and gold <= admitted)
        return tally


def interleaved(by_gap: Sequence[Sequence[MemoryRecord]]) -> list[MemoryRecord]:
    """The gaps' candidates by turns, each record once, as many as a judge is shown."""
    merged: dict[str, MemoryRecord] = {}
    for rank in range(CANDIDATES):
        for found in by_gap:
            if rank < len(found):
                merged.setdefault(found[rank].id, found[rank])
    return list(merged.values())[:CANDIDATES]


async def main() -> None:
    arguments = _arguments()
    embedder = MiniLmEmbedder.load()
    bench = Bench(embedder, LocalGapPlanner(embedder), LocalJudge(embedder))
    print(bench.planner.identity, bench.judge.identity)
    try:
        if arguments.only in (None, "planner"):
            await planner_alone(bench, arguments.data)
        if arguments.only in (None, "joint"):
            await joint(bench, arguments.data, arguments.sample)
            print(f"admit ms p50 {statistics.median(bench.admit_ms):.0f}, p95 {_p95(bench.admit_ms):.0f}")
        print(f"plan ms p50 {statistics.median(bench.plan_ms):.1f}, p95 {_p95(bench.plan_ms):.1f}")
    finally:
        await embedder.aclose()


async def planner_alone(bench: Bench, data: Path) -> None:
    groups: dict[str, list[str]] = defaultdict(list)
    for row in _rows(data / "recall.jsonl"):
        groups["recall as is" if row["question_rewrite"] == "none" else "recall first person"].append(row["question"])
        groups["recall third person"].append(row["question_third_person"])
        if row["question_no_pronoun"]:
            groups["recall no pronoun"].append(row["question_no_pronoun"])
    groups["unanswerable"] = [row["question"] for row in _rows(data / "unanswerable.jsonl")]
    groups["preference"] = [row["question"] for row in _rows(data / "preference.jsonl")]
    groups["ambiguous (no gate)"] = [row["turn"] for row in _rows(data / "ordinary_ambiguous.jsonl")]
    for row in _rows(data / "ordinary.jsonl"):
        groups["ordinary, all"].append(row["turn"])
        groups[f"ordinary, {row.get('hard') or 'easy'}"].append(row["turn"])
    print("planner alone")
    for name, turns in groups.items():
        fired = 0
        for turn in turns:
            started = time.perf_counter()
            fired += bool((await bench.planner.plan(turn, None, EMPTY_PROFILE, INVENTORY)).gaps)
            bench.plan_ms.append((time.perf_counter() - started) * 1e3)
        print(f"  {name:22s} {fired:4d} of {len(turns):4d} fire: {fired / len(turns):.3f}")


async def joint(bench: Bench, data: Path, sample: int) -> None:
    facts: dict[str, list[Row]] = defaultdict(list)
    for row in _rows(data / "pools" / "locomo_facts.jsonl"):
        facts[row["pool"]].append(row)
    pools: dict[str, Pool] = {}
    tallies: dict[str, Tally] = defaultdict(Tally)

    async def pool_of(row: Row) -> Pool:
        if row["principal"] not in pools:
            pools[row["principal"]] = await bench.pool([_record(row["principal"], fact) for fact in facts[row["pool"]]])
        return pools[row["principal"]]

    recall = [row for row in _rows(data / "recall.jsonl") if row["answer_support"] in ("lexical", "partial")]
    for row in recall[::sample]:
        gold = set(row["gold_record_ids"])
        for form in ("question", "question_third_person", "question_no_pronoun"):
            if row[form]:
                await bench.decide(row[form], await pool_of(row), gold, tallies[f"recall, {form}"])
    for row in list(_rows(data / "unanswerable.jsonl"))[::sample]:
        await bench.decide(row["question"], await pool_of(row), set(), tallies["unanswerable"])
    wishes: dict[str, list[Row]] = defaultdict(list)
    for row in _rows(data / "pools" / "prefeval.jsonl"):
        wishes[row["pool"]].append(row)
    wish_pools = {pool: await bench.pool([_record(pool, row) for row in rows]) for pool, rows in wishes.items()}
    for row in list(_rows(data / "preference.jsonl"))[::sample]:
        await bench.decide(row["question"], wish_pools[row["pool"]], set(row["gold_record_ids"]), tallies["preference"])
    for at, row in enumerate(_rows(data / "ordinary.jsonl")):
        stratum = row.get("hard") or "easy"
        groups = tallies["ordinary, all"], tallies[f"ordinary, {stratum}"]
        await bench.decide(row["turn"], await pool_of(row), set(), *groups)
        wish_pool = list(wish_pools.values())[at % len(wish_pools)]
        await bench.decide(row["turn"], wish_pool, set(), tallies["ordinary against preferences"])
    for row in _rows(data / "ordinary_ambiguous.jsonl"):
        await bench.decide(row["turn"], await pool_of(row), set(), tallies["ambiguous (no gate)"])
    print("planner, eight candidates and judge together")
    for name, tally in tallies.items():
        print(f"  {name:30s} {tally.line()}")


def _record(principal: str, row: Row) -> MemoryRecord:
    own = row["subject"] in ("user", principal.rsplit("/", 1)[-1])
    return MemoryRecord(
        id=row["id"],
        tenant="benchmark",
        user=principal,
        type=RecordType.SEMANTIC,
        subject="user" if own else row["subject"],
        text=row["text"],
        created_at=datetime.fromisoformat(row["created_at"]),
    )


def _rows(path: Path) -> Iterable[Row]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _p95(values: Sequence[float]) -> float:
    return sorted(values)[int(0.95 * (len(values) - 1))]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", choices=("planner", "joint"))
    parser.add_argument("--sample", type=int, default=1, help="every Nth recall, unanswerable and preference row")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main())
