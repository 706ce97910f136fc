# ruff: noqa: T201 - a benchmark prints what it measured
"""What the local planner and judge decide on other people's data: fires, admissions, abstentions, and what they cost.

    python -m benchmarks.local_policy_quality DATA [--only planner|joint] [--sample N] [--retriever trainer|real]

DATA holds recall, unanswerable, ordinary and preference rows and pools/ (their README says what they are). Rows are
read and measured; none is copied and none trained the weights. Candidates come from the product's Retriever over the
embedded index in a temporary folder, or, quicker, from the trainer's small search (BM25 and cosine, fused, eight deep).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from benchmarks.retrieval_recall import MemoryStore
from retold.contracts.record import MemoryRecord, RecordType, RetrievalCategory
from retold.contracts.stages import EMPTY_PROFILE, ProposedGap
from retold.contracts.turn import Principal
from retold.index.edge import EdgeIndex
from retold.index.points import passage, point
from retold.models.embedding.minilm import MiniLmEmbedder
from retold.policy.local import LocalGapPlanner, LocalJudge
from retold.policy.ports import SearchRequest
from retold.policy.rules import clean_gaps
from retold.retrieval.config import RetrievalConfig
from retold.retrieval.pipeline import Retriever
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


class Source(Protocol):
    """Where a turn's candidates come from."""

    async def add(self, user: str, records: Sequence[MemoryRecord]) -> None: ...

    async def candidates(self, user: str, turn: str, gaps: Sequence[ProposedGap]) -> list[MemoryRecord]: ...


class TrainerSearch:
    """The search the judge was trained with, each gap's finds by turns."""

    def __init__(self, embedder: MiniLmEmbedder) -> None:
        self._embedder = embedder
        self._pools: dict[str, Pool] = {}

    async def add(self, user: str, records: Sequence[MemoryRecord]) -> None:
        vectors = await self._embedder.embed_passages([record.text for record in records])
        self._pools[user] = Pool(records, vectors)

    async def candidates(self, user: str, turn: str, gaps: Sequence[ProposedGap]) -> list[MemoryRecord]:
        vectors = await self._embedder.embed_queries([gap.query for gap in gaps])
        found = [self._pools[user].search(gap.query, vector) for gap, vector in zip(gaps, vectors, strict=True)]
        merged: dict[str, MemoryRecord] = {}
        for rank in range(CANDIDATES):
            for each in found:
                if rank < len(each):
                    merged.setdefault(each[rank].id, each[rank])
        return list(merged.values())[:CANDIDATES]


class RealRetriever:
    """The product's pipeline over the embedded index, as a turn would use it."""

    def __init__(self, embedder: MiniLmEmbedder, index: EdgeIndex) -> None:
        self._embedder, self._index, self._store = embedder, index, MemoryStore()
        self._retriever = Retriever(index, embedder, self._store, RetrievalConfig())

    async def add(self, user: str, records: Sequence[MemoryRecord]) -> None:
        vectors = await self._embedder.embed_passages([passage(record) for record in records])
        await self._index.upsert([point(record, vector) for record, vector in zip(records, vectors, strict=True)])
        self._store.records.update((record.id, record) for record in records)

    async def candidates(self, user: str, turn: str, gaps: Sequence[ProposedGap]) -> list[MemoryRecord]:
        response = await self._retriever.search(
            SearchRequest(
                decision_id="benchmark",
                principal=Principal(tenant="benchmark", user=user),
                gaps=tuple(clean_gaps(gaps, max_gaps=3).gaps),
                context=turn,
                max_candidates=CANDIDATES,
                at=datetime(2026, 1, 1, tzinfo=UTC),
            )
        )
        return [self._store.records[candidate.ref.id] for candidate in response.candidates]


@asynccontextmanager
async def source(name: str, embedder: MiniLmEmbedder) -> AsyncIterator[Source]:
    if name == "trainer":
        yield TrainerSearch(embedder)
        return
    with tempfile.TemporaryDirectory() as folder:
        index = EdgeIndex(Path(folder) / "index")
        await index.ensure(embedder.identity)
        try:
            yield RealRetriever(embedder, index)
        finally:
            await index.aclose()


@dataclass
class Bench:
    planner: LocalGapPlanner
    judge: LocalJudge
    source: Source
    plan_ms: list[float] = field(default_factory=list)
    admit_ms: list[float] = field(default_factory=list)

    async def decide(self, turn: str, user: str, gold: set[str], *tallies: Tally) -> None:
        outcome = await self._outcome(turn, user, gold)
        for tally in tallies:
            tally.add(outcome)

    async def _outcome(self, turn: str, user: str, gold: set[str]) -> Tally:
        tally = Tally(turns=1)
        started = time.perf_counter()
        plan = await self.planner.plan(turn, None, EMPTY_PROFILE, INVENTORY)
        self.plan_ms.append((time.perf_counter() - started) * 1e3)
        if not plan.gaps:
            return tally
        tally.fired = 1
        candidates = await self.source.candidates(user, turn, plan.gaps)
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


async def main() -> None:
    arguments = _arguments()
    embedder = MiniLmEmbedder.load()
    try:
        async with source(arguments.retriever, embedder) as found:
            bench = Bench(LocalGapPlanner(embedder), LocalJudge(embedder), found)
            print(bench.planner.identity, bench.judge.identity)
            if arguments.only in (None, "planner"):
                await planner_alone(bench, arguments.data)
            if arguments.only in (None, "joint"):
                await joint(bench, arguments.data, arguments.sample, f"{arguments.retriever} retriever")
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


async def joint(bench: Bench, data: Path, sample: int, title: str) -> None:
    facts: dict[str, list[Row]] = defaultdict(list)
    for row in _rows(data / "pools" / "locomo_facts.jsonl"):
        facts[row["pool"]].append(row)
    wishes: dict[str, list[Row]] = defaultdict(list)
    for row in _rows(data / "pools" / "prefeval.jsonl"):
        wishes[row["pool"]].append(row)
    ids: dict[tuple[str, str], str] = {}
    tallies: dict[str, Tally] = defaultdict(Tally)

    async def user_of(row: Row) -> str:
        """The row's principal, with the records of its pool stored on first use."""
        user = row["principal"] if row["pool"] in facts else row["pool"]
        if (user, "") not in ids:
            ids[user, ""] = user
            records = []
            for stored in facts.get(row["pool"]) or wishes[row["pool"]]:
                ids[user, stored["id"]] = str(len(ids))
                records.append(_record(user, stored, ids[user, stored["id"]]))
            await bench.source.add(user, records)
        return str(user)

    async def decide(row: Row, turn: str, *groups: str) -> None:
        user = await user_of(row)
        gold = {ids[user, id] for id in row.get("gold_record_ids") or ()}
        await bench.decide(turn, user, gold, *(tallies[group] for group in groups))

    recall = [row for row in _rows(data / "recall.jsonl") if row["answer_support"] in ("lexical", "partial")]
    for row in recall[::sample]:
        for form in ("question", "question_third_person", "question_no_pronoun"):
            if row[form]:
                await decide(row, row[form], f"recall, {form}")
    for row in list(_rows(data / "unanswerable.jsonl"))[::sample]:
        await decide(row, row["question"], "unanswerable")
    for row in list(_rows(data / "preference.jsonl"))[::sample]:
        await decide(row, row["question"], "preference")
    for at, row in enumerate(_rows(data / "ordinary.jsonl")):
        await decide(row, row["turn"], "ordinary, all", f"ordinary, {row.get('hard') or 'easy'}")
        await decide({"pool": list(wishes)[at % len(wishes)]}, row["turn"], "ordinary against preferences")
    for row in _rows(data / "ordinary_ambiguous.jsonl"):
        await decide(row, row["turn"], "ambiguous (no gate)")
    print(f"planner, eight candidates ({title}) and judge together")
    for name, tally in sorted(tallies.items()):
        print(f"  {name:30s} {tally.line()}")


def _record(principal: str, row: Row, id: str) -> MemoryRecord:
    own = row["subject"] in ("user", principal.rsplit("/", 1)[-1])
    return MemoryRecord(
        id=id,
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
    parser.add_argument("--retriever", choices=("trainer", "real"), default="trainer")
    parser.add_argument("--sample", type=int, default=1, help="every Nth recall, unanswerable and preference row")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main())
