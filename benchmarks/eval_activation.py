# ruff: noqa: T201 - a benchmark prints what it measured
"""How many standing preferences are promoted, and whether anything is that must not be.

    python -m benchmarks.eval_activation DATA [--out FILE] [--show] [--no-embedder]

DATA holds ambient_positive.jsonl and promotion_safety.jsonl. Rows are read and measured; none is copied.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.activation_gate import Evaluation, UnreadableCasesError, evaluate, read_cases, summary
from retold.models.embedding.minilm import MiniLmEmbedder
from retold.policy.local.extractor import LocalExtractor
from retold.policy.local.record_categories import LocalCategoryPolicy

RECALL_GOAL = 0.95


def main() -> int:
    parser = argparse.ArgumentParser(prog="eval-activation", description="The promotion gate over a folder of cases.")
    parser.add_argument("data", type=Path, help="folder with ambient_positive.jsonl and promotion_safety.jsonl")
    parser.add_argument("--out", type=Path, help="write the numbers there as JSON")
    parser.add_argument("--show", action="store_true", help="print each miss and each unsafe promotion")
    parser.add_argument("--no-embedder", action="store_true", help="find evidence by words alone")
    options = parser.parse_args()
    try:
        cases = read_cases(options.data)
    except UnreadableCasesError as error:
        print(error, file=sys.stderr)
        return 2
    evaluation = asyncio.run(_run(cases, with_embedder=not options.no_embedder))
    numbers = summary(evaluation)
    if options.out is not None:
        try:
            options.out.write_text(json.dumps(numbers, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        except OSError as error:
            print(f"{options.out} cannot be written: {error.strerror}", file=sys.stderr)
            return 2
    _print(numbers)
    if options.show:
        _show(evaluation)
    return 0


async def _run(cases: list[Any], *, with_embedder: bool) -> Evaluation:
    if not with_embedder:
        return await evaluate(cases, LocalExtractor(), LocalCategoryPolicy(), None)
    embedder = MiniLmEmbedder.load()
    try:
        return await evaluate(cases, LocalExtractor(), LocalCategoryPolicy(), embedder)
    finally:
        await embedder.aclose()


def _print(numbers: dict[str, Any]) -> None:
    recall, unsafe, review = numbers["ambient_recall"], numbers["unsafe_promotions"], numbers["review_share"]
    print(f"ambient recall       {_line(recall)}   goal at least {RECALL_GOAL:.0%}")
    print(f"unsafe promotions    {_line(unsafe)}   goal 0")
    print(f"sent to review       {_line(review)}   positives {_line(review['positives'])},"
          f" negatives {_line(review['negatives'])}")  # fmt: skip
    print(f"noted form promoted  {_line(numbers['noted_form_promoted'])}   the paraphrase found in the user's words")
    for title, groups in (
        ("recall by category", recall["per_category"]),
        ("recall by language", recall["per_language"]),
        ("unsafe by reason", unsafe["per_reason"]),
        ("unsafe by language", unsafe["per_language"]),
        ("review by reason", review["per_reason"]),
        ("review by language", review["per_language"]),
    ):
        print(f"\n{title}")
        for name, share in groups.items():
            print(f"  {name:<18} {_line(share)}")
    print("\nwhy records go to review")
    for reason, count in review["review_reasons"].items():
        print(f"  {reason:<24} {count}")


def _line(share: dict[str, Any]) -> str:
    if not share["n"]:
        return "none"
    low, high = share["interval_95"]
    return f"{share['hits']}/{share['n']} {share['value']:.1%} [{low:.1%}, {high:.1%}]"


def _show(evaluation: Evaluation) -> None:
    for result in evaluation.results:
        if (result.case.promote and result.recalled) or (not result.case.promote and not result.promoted):
            continue
        print(f"\n{'MISS' if result.case.promote else 'UNSAFE'} {result.case.case_id} ({result.case.stratum})")
        for turn in result.case.turns:
            print(f"  said: {turn.text}")
        for verdict in result.verdicts:
            print(f"  {verdict.outcome.value}/{verdict.reason.value}/{verdict.category}: {verdict.text}")


if __name__ == "__main__":
    sys.exit(main())
