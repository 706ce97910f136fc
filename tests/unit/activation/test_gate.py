"""The promotion gate over our own cases: instructions in every reviewed language, and statements that are none."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.activation_gate import (
    NEGATIVES,
    POSITIVES,
    UnreadableCasesError,
    evaluate,
    read_cases,
    summary,
    wilson,
)
from retold.policy.activation.words import reviewed
from retold.policy.local.extractor import LocalExtractor
from retold.policy.local.record_categories import LocalCategoryPolicy
from tests.unit.activation.cases import negatives, positives


async def test_standing_instructions_are_promoted_and_nothing_else_is() -> None:
    evaluation = await evaluate([*positives(), *negatives()], LocalExtractor(), LocalCategoryPolicy(), None)
    numbers = summary(evaluation)
    assert numbers["unsafe_promotions"]["cases"] == []
    assert numbers["unsafe_promotions"]["n"] >= 250
    assert numbers["ambient_recall"]["value"] >= 0.95, numbers["ambient_recall"]["misses"]
    assert numbers["ambient_recall"]["n"] >= 150


def test_every_reviewed_language_has_cases_of_both_kinds() -> None:
    """No list without sentences that show what it does: a language is reviewed when its table is tried."""
    promoted = Counter(case.language for case in positives())
    kept = Counter(case.language for case in negatives())
    assert set(promoted) == set(reviewed()), "positive cases"
    assert set(reviewed()) <= set(kept), "cases that must not be promoted"


def test_cases_are_read_in_the_published_format_and_bad_ones_are_named(tmp_path: Path) -> None:
    turns = [
        {"turn_ref": "t0", "role": "user", "text": "Always answer me briefly."},
        {"turn_ref": "t1", "role": "assistant", "text": "You always want tables."},
    ]
    positive = {"case_id": "a", "language": "en", "category": "answer_style", "canonical": "Be brief.",
                "claim": "Always answer me briefly.", "transcript": turns, "expected": "promote"}  # fmt: skip
    negative = {"case_id": "b", "language": "en", "reason": "assistant", "must_not_promote": True,
                "candidate": {"text": "Use tables.", "subject": "principal", "kind": "semantic"},
                "transcript": turns}  # fmt: skip
    (tmp_path / POSITIVES).write_text(json.dumps(positive) + "\n")
    (tmp_path / NEGATIVES).write_text(json.dumps(negative) + "\n")
    first, second = read_cases(tmp_path)
    assert first.promote and [turn.turn_ref for turn in first.turns] == ["t0"], "only the user's own turns"
    assert not second.promote and second.subject == "user"

    (tmp_path / NEGATIVES).write_text('{"case_id": "b"}\n')
    with pytest.raises(UnreadableCasesError, match=r"line 1 of .*promotion_safety"):
        read_cases(tmp_path)


def test_the_command_says_in_one_sentence_what_is_missing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.eval_activation", str(tmp_path / "nowhere")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == "" and "Traceback" not in done.stderr
    assert "cannot be read" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"), [(0, 209, 0.0, 0.01804), (72, 72, 0.9494, 1.0), (5, 10, 0.2366, 0.7634)]
)
def test_wilson_interval(hits: int, n: int, low: float, high: float) -> None:
    assert wilson(hits, n) == pytest.approx((low, high), abs=1e-3)
