# ruff: noqa: T201 - a benchmark prints what it measured
"""How often the Retriever's first eight hold a record that answers the question, and what a search costs.

    python benchmarks/retrieval_recall.py DATA [--set NAME=VALUE ...] [--latency]

DATA holds recall.jsonl, preference.jsonl and pools/ (their README says what they are). Rows are read and measured;
none is copied. Each principal gets the records of its pool, those about itself with the subject `user`, the other
person's under their name, indexed by the real embedded engine with the real embedder.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from retold.contracts.record import MemoryRecord, RecordId, RecordRef, RecordType
from retold.contracts.stages import Gap, GapCategory
from retold.contracts.turn import Principal
from retold.index.edge import EdgeIndex
from retold.index.points import passage, point
from retold.models.embedding.minilm import MiniLmEmbedder
from retold.policy.ports import SearchRequest
from retold.retrieval.config import RetrievalConfig
from retold.retrieval.pipeline import Retriever

Row = dict[str, Any]


class MemoryStore:
    """The records of this run, as a store would answer for them."""

    def __init__(self) -> None:
        self.records: dict[RecordId, MemoryRecord] = {}

    async def load_current(
        self, principal: Principal, refs: Sequence[RecordRef], at: datetime
    ) -> Mapping[RecordId, MemoryRecord]:
        found = (self.records.get(ref.id) for ref in refs)
        return {record.id: record for record in found if record is not None and record.user == principal.user}


class Bench:
    def __init__(self, index: EdgeIndex, embedder: MiniLmEmbedder) -> None:
        self.index, self.embedder, self.store = index, embedder, MemoryStore()

    async def add(self, records: Sequence[MemoryRecord]) -> None:
        for start in range(0, len(records), 256):
            part = records[start : start + 256]
            vectors = await self.embedder.embed_passages([passage(record) for record in part])
            await self.index.upsert([point(record, vector) for record, vector in zip(part, vectors, strict=True)])
        self.store.records.update((record.id, record) for record in records)

    async def found(self, retriever: Retriever, user: str, query: str, at: datetime) -> list[str]:
        response = await retriever.search(
            SearchRequest(
                decision_id="benchmark",
                principal=Principal(tenant="benchmark", user=user),
                gaps=(Gap(category=GapCategory.RELATIONSHIP_OR_EVENT, query=query[:400]),),
                context=query,
                max_candidates=8,
                at=at,
            )
        )
        return [candidate.ref.id.split("|")[1] for candidate in response.candidates]


async def main() -> None:
    arguments = _arguments()
    config = RetrievalConfig.model_validate(dict(pair.split("=", 1) for pair in arguments.set), strict=False)
    embedder = MiniLmEmbedder.load()
    with tempfile.TemporaryDirectory() as folder:
        index = EdgeIndex(Path(folder) / "index")
        await index.ensure(embedder.identity)
        bench = Bench(index, embedder)
        retriever = Retriever(index, embedder, bench.store, config)
        print(f"embedder {embedder.identity.model} {embedder.identity.revision}, config {retriever.config_hash}")
        await _recall(bench, retriever, arguments.data)
        await _preferences(bench, retriever, arguments.data)
        if arguments.latency:
            await _latency(bench, retriever)
        await index.aclose()
    await embedder.aclose()


async def _recall(bench: Bench, retriever: Retriever, data: Path) -> None:
    pools: dict[str, list[Row]] = defaultdict(list)
    for row in _rows(data / "pools" / "locomo_facts.jsonl"):
        pools[row["pool"]].append(row)
    questions = [
        row for row in _rows(data / "recall.jsonl") if row["answer_support"] in ("lexical", "partial")
    ]  # fmt: skip
    numbers: dict[tuple[str, str], str] = {}
    records: list[MemoryRecord] = []
    for principal, pool in sorted({(row["principal"], row["pool"]) for row in questions}):
        for fact in pools[pool]:
            record = _fact(principal, fact, f"{len(records)}|{len(records)}")
            numbers[principal, fact["id"]] = record.id.split("|")[1]
            records.append(record)
    await bench.add(records)
    for form in ("question", "question_third_person", "question_no_pronoun"):
        scored = []
        for row in questions:
            if not row[form]:
                continue
            found = await bench.found(retriever, row["principal"], row[form], datetime(2024, 1, 1, tzinfo=UTC))
            gold = {numbers[row["principal"], id] for id in row["gold_record_ids"]}
            scored.append((len(gold & set(found)) / len(gold), len(found)))
        _print_recall(form, scored)


async def _preferences(bench: Bench, retriever: Retriever, data: Path) -> None:
    records: list[MemoryRecord] = []
    for at, row in enumerate(_rows(data / "pools" / "prefeval.jsonl")):
        records.append(_fact(row["pool"], row, f"p{at}|{row['id']}"[:64]))
    await bench.add(records)
    scored = []
    for row in _rows(data / "preference.jsonl"):
        found = await bench.found(retriever, row["pool"], row["question"], datetime(2026, 1, 1, tzinfo=UTC))
        gold = {id[:50] for id in row["gold_record_ids"]}
        scored.append((len(gold & {id[:50] for id in found}) / len(gold), len(found)))
    _print_recall("preference", scored)


async def _latency(bench: Bench, retriever: Retriever) -> None:
    """One principal with 300, 1,000 and 10,000 records in a collection that holds everything indexed so far."""
    texts = [record.text for record in bench.store.records.values()]
    for size in (300, 1_000, 10_000):
        user = f"latency-{size}"
        at = datetime(2025, 1, 1, tzinfo=UTC)
        await bench.add(
            [
                MemoryRecord(
                    id=f"{user}-{number}|{number}",
                    tenant="benchmark",
                    user=user,
                    type=RecordType.SEMANTIC,
                    subject="user",
                    text=f"{texts[number % len(texts)]} Note {number}.",
                    created_at=at - timedelta(hours=number),
                )
                for number in range(size)
            ]
        )
        for gaps in (1, 3):
            queries = ["Where did I go on holiday?", "Who is my manager at work?", "What food do I like best?"][:gaps]
            request = SearchRequest(
                decision_id="benchmark",
                principal=Principal(tenant="benchmark", user=user),
                gaps=tuple(Gap(category=GapCategory.PREFERENCE, query=query) for query in queries),
                context="latency",
                max_candidates=8,
                at=at,
            )
            walls: list[float] = []
            cpus: list[float] = []
            for _ in range(100):
                wall, cpu = time.perf_counter(), time.process_time()
                await retriever.search(request)
                walls.append((time.perf_counter() - wall) * 1_000)
                cpus.append((time.process_time() - cpu) * 1_000)
            cut = statistics.quantiles(walls, n=20)
            print(
                f"{size:>6} records, {gaps} gap(s): p50 {cut[9]:.1f} ms, p95 {cut[18]:.1f} ms, "
                f"CPU p50 {statistics.median(cpus):.1f} ms"
            )


def _fact(principal: str, row: Row, id: str) -> MemoryRecord:
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


def _print_recall(name: str, scored: Sequence[tuple[float, int]]) -> None:
    shares = [share for share, _ in scored]
    print(
        f"{name:<24} n={len(shares):<4} all {_mean(share == 1 for share in shares):.3f}  "
        f"any {_mean(share > 0 for share in shares):.3f}  mean {_mean(shares):.3f}  "
        f"candidates {_mean(count for _, count in scored):.1f}"
    )


def _mean(values: Iterable[float]) -> float:
    return statistics.fmean(map(float, values))


def _rows(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="override a setting")
    parser.add_argument("--latency", action="store_true", help="also measure the latency of a search")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
