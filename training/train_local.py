# ruff: noqa: T201 - a trainer prints what it measured
"""Trains `retold/policy/local/weights/*.json` from `training/corpus` alone.

    python -m training.train_local [--out DIR]

Minutes on one core, no network, deterministic up to the embedder's rounding. Prints what cross-validation over the
authored corpus says; what the weights do on other people's data is measured by `benchmarks/local_policy_quality.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import retold.policy.local as local
from retold.models.embedding.minilm import MiniLmEmbedder
from retold.policy.local import answerability, candidate_features, turn_features
from retold.policy.local.reading import CandidateReader
from retold.policy.ports import Embedder
from retold.retrieval.text import content_words
from training import corpus
from training.judge_rows import Person, people
from training.logistic import fit, folds
from training.planner_rows import TurnRow, turn_rows
from training.search import Pool

Array = NDArray[np.float64]

VECTOR_SCALE = 3.0
TURN_RIDGE = 5.0
FRAMED_WEIGHT = 0.5
FOLDS = 5
ORDINARY_FIRES = {"recall": 0.042, "preference": 0.012}
"""Share of the authored ordinary turns on which each head may fire, out of fold. They are mostly look-alikes, written
to be mistaken: on everyday turns the two together fire about half as often."""

PEOPLE = 4
RANK_RIDGE = 1.0
UNANSWERABLE_PASSES = 0.55
"""Share of the authored unanswerable turns that the answerability gate lets through, out of fold. The authored ones are
harder than most: of other people's unanswerable turns about half are then left alone, for 3 to 4 points of recall."""
SETTINGS = {
    "turn_slack": 1.0,
    "wish_slack": 2.0,
    "attribute_topic_floor": 0.5,
    "max_admitted": 5.0,
    "recall_company_gap": 6.0,
    "preference_company_gap": 1.5,
}
"""Logits, but for the cap and one share.

`turn_slack`: how far below its threshold a head still trusts another planner's gap. `wish_slack`: how far the
preference head may be behind the recall head for preferences to be considered. `*_company_gap`: how far below the best
record another may be; one person's preferences all look a little relevant to a wish, so theirs is smaller.
`attribute_topic_floor`: how much of the thing asked about a record must cover to give one of its attributes.
"""


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(local.__file__).parent / "weights")
    out = parser.parse_args().out
    embedder = MiniLmEmbedder.load()
    try:
        planner = await train_planner(embedder)
        write(out / "planner.json", planner)
        judge = await train_judge(embedder, planner)
        write(out / "judge.json", judge)
    finally:
        await embedder.aclose()


# --- planner ----------------------------------------------------------------------------------------------


async def train_planner(embedder: Embedder) -> dict[str, Any]:
    rows = turn_rows()
    vectors = await embedder.embed_queries([row.text for row in rows])
    inputs = np.stack(
        [turn_features.turn_inputs(row.text, vector, VECTOR_SCALE) for row, vector in zip(rows, vectors, strict=True)]
    )
    kinds = np.array([row.kind for row in rows])
    weights = np.array([FRAMED_WEIGHT if row.stratum.startswith("framed") else 1.0 for row in rows])
    held_out = folds([row.group for row in rows], FOLDS)
    heads, settings, fires = {}, {"vector_scale": VECTOR_SCALE}, np.zeros(len(rows), dtype=bool)
    for head in ("recall", "preference"):
        used = (kinds == head) | (kinds == "ordinary")
        wanted = (kinds == head).astype(np.float64)
        scores = np.zeros(len(rows))
        for fold in held_out:
            train = used & ~fold
            coefficients, intercept = fit(inputs[train], wanted[train], ridge=TURN_RIDGE, weights=weights[train])
            scores[fold] = inputs[fold] @ coefficients + intercept
        threshold = float(np.quantile(scores[kinds == "ordinary"], 1 - ORDINARY_FIRES[head]))
        fires |= scores > threshold
        settings[f"{head}_threshold"] = round(threshold, 3)
        coefficients, intercept = fit(inputs[used], wanted[used], ridge=TURN_RIDGE, weights=weights[used])
        heads[head] = stored_head(coefficients, intercept, turn_features.NAMES, vector_length=vectors.shape[1])
    metrics = fire_rates(rows, fires)
    print("planner, share of turns that fire, out of fold:", json.dumps(metrics, indent=1))
    return {"header": header(embedder, len(rows), metrics), "settings": settings, "heads": heads}


def fire_rates(rows: Sequence[TurnRow], fires: NDArray[np.bool_]) -> dict[str, float]:
    by: dict[str, list[bool]] = defaultdict(list)
    for row, fire in zip(rows, fires, strict=True):
        by[row.kind].append(bool(fire))
        by[f"{row.kind}/{row.stratum}"].append(bool(fire))
    return {name: round(sum(each) / len(each), 3) for name, each in sorted(by.items())}


# --- judge ------------------------------------------------------------------------------------------------


async def train_judge(embedder: Embedder, planner: dict[str, Any]) -> dict[str, Any]:
    counts = word_counts()
    reader = CandidateReader(embedder, counts)
    turns = await read_people(embedder, reader, list(people(PEOPLE)))
    for turn in turns:
        turn["margin"] = recall_margin(planner, turn["case"].turn, turn["vector"])
    heads: dict[str, Any] = {}
    settings: dict[str, float] = dict(SETTINGS)
    metrics: dict[str, float] = {}
    ranked = {}
    for family in ("recall", "preference"):
        mine = [turn for turn in turns if turn["case"].kind == family and turn["gold"].any()]
        # Half the weight of the negatives comes from turns that want nothing: the best of eight must also be good.
        others = [turn for turn in turns if turn["case"].kind in OTHERS[family]]
        coefficients, intercept, scores = fit_ranker(mine, others)
        ranked[family] = scores
        heads[family] = stored_head(coefficients, intercept, candidate_features.NAMES)
        for turn in turns:
            turn[family] = turn["inputs"] @ coefficients + intercept
        settings |= floors(family, mine, scores)
    coefficients, intercept, threshold, gate_metrics = fit_gate(turns, ranked["recall"])
    heads["answerable"] = stored_head(coefficients, intercept, answerability.NAMES)
    settings["answerable_threshold"] = round(threshold, 3)
    metrics |= gate_metrics
    print("judge, out of fold:", json.dumps(metrics, indent=1), json.dumps(settings, indent=1))
    return {
        "header": header(embedder, len(turns), metrics),
        "settings": settings,
        "heads": heads,
        "word_counts": counts,
        "common_words": common_words(),
    }


COMMON_WORDS = 800
"""Embedded at start-up at about 1.3 CPU-ms each."""

OTHERS = {"recall": ("unanswerable",), "preference": ("ordinary", "unanswerable")}


async def read_people(embedder: Embedder, reader: CandidateReader, crowd: Sequence[Person]) -> list[dict[str, Any]]:
    """Every case with its retrieved candidates, their inputs and which of them are gold."""
    turns: list[dict[str, Any]] = []
    for person in crowd:
        pool = Pool(person.records, await embedder.embed_passages([record.text for record in person.records]))
        vectors = await embedder.embed_queries([case.turn for case in person.cases])
        for case, vector in zip(person.cases, vectors, strict=True):
            candidates = pool.search(case.turn, vector)
            if not candidates:
                continue
            question, read = await reader.read(case.turn, candidates)
            turns.append({
                "case": case,
                "group": case.turn,
                "vector": vector,
                "inputs": candidate_features.candidate_inputs(question, candidates, read),
                "gold": np.array([record.id in case.gold for record in candidates]),
            })  # fmt: skip
    return turns


def fit_ranker(
    mine: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]
) -> tuple[Array, float, dict[int, Array]]:
    """Candidate against candidate, with the gold there; `others` bring candidates of turns that want nothing."""
    used = [*mine, *others]
    x = np.concatenate([turn["inputs"] for turn in used])
    y = np.concatenate([turn["gold"].astype(np.float64) for turn in used])
    owner = np.concatenate([np.full(len(turn["gold"]), at) for at, turn in enumerate(used)])
    mass = {True: 1.0, False: 0.5 * len(mine) / max(len(others), 1)}
    weights = np.array([mass[at < len(mine)] for at in owner])
    scores: dict[int, Array] = {}
    for fold in folds([turn["group"] for turn in used], FOLDS):
        out = fold[owner]
        coefficients, intercept = fit(x[~out], y[~out], ridge=RANK_RIDGE, weights=weights[~out])
        for at in np.flatnonzero(fold):
            scores[id(used[at])] = used[at]["inputs"] @ coefficients + intercept
    coefficients, intercept = fit(x, y, ridge=RANK_RIDGE, weights=weights)
    return coefficients, intercept, scores


def floors(family: str, mine: Sequence[dict[str, Any]], scores: dict[int, Array]) -> dict[str, float]:
    """The first admitted must reach what all but the weakest gold turns' best reach; company a fixed probability."""
    best = np.array([scores[id(turn)].max() for turn in mine])
    floor = float(np.quantile(best, FLOOR_QUANTILE[family]))
    return {f"{family}_floor": round(floor, 3), f"{family}_company_floor": COMPANY_FLOOR[family]}


FLOOR_QUANTILE = {"recall": 0.01, "preference": 0.05}
COMPANY_FLOOR = {"recall": round(math.log(0.04 / 0.96), 3), "preference": round(math.log(0.1 / 0.9), 3)}


def fit_gate(turns: Sequence[dict[str, Any]], scores: dict[int, Array]) -> tuple[Array, float, float, dict[str, float]]:
    used = [turn for turn in turns if id(turn) in scores and turn["case"].kind in ("recall", "unanswerable")]
    x = np.stack([answerability.inputs(turn["inputs"], scores[id(turn)], turn["margin"]) for turn in used])
    y = np.array([float(turn["case"].kind == "recall") for turn in used])
    out = np.zeros(len(used))
    for fold in folds([turn["group"] for turn in used], FOLDS):
        coefficients, intercept = fit(x[~fold], y[~fold], ridge=RANK_RIDGE)
        out[fold] = x[fold] @ coefficients + intercept
    threshold = float(np.quantile(out[y == 0], 1 - UNANSWERABLE_PASSES))
    coefficients, intercept = fit(x, y, ridge=RANK_RIDGE)
    metrics = {
        "answerable_auc": round(auc(out, y), 3),
        "answerable_passes": round(float((out[y == 1] >= threshold).mean()), 3),
        "unanswerable_passes": round(float((out[y == 0] >= threshold).mean()), 3),
        "best_is_gold": round(float(np.mean([t["gold"][scores[id(t)].argmax()] for t in used if t["gold"].any()])), 3),
    }
    return coefficients, intercept, threshold, metrics


def recall_margin(planner: dict[str, Any], turn: str, vector: NDArray[np.float32]) -> float:
    head = planner["heads"]["recall"]
    inputs = turn_features.turn_inputs(turn, vector, VECTOR_SCALE)
    coefficients = np.array([*head["vector"], *head["coefficients"]])
    return float(inputs @ coefficients + head["intercept"] - planner["settings"]["recall_threshold"])


def word_counts() -> dict[str, int]:
    """In how many authored lines a stem occurs. Only the common ones are kept; all others count as once seen."""
    lines = [
        line
        for file in ("facts.txt", "preferences.txt", "ordinary.en.txt", "recall.en.txt")
        for _, line in corpus.lines(file)
    ]
    counts = Counter(word for line in lines for part in line.split("|") for word in set(content_words(part)))
    return {"": len(lines), **{word: count for word, count in sorted(counts.items()) if count >= 4}}


def common_words() -> list[str]:
    """The most frequent content words of the corpus's English, for the judge to embed before its first turn."""
    counts: Counter[str] = Counter()
    for file in ("facts.txt", "preferences.txt", "recall.en.txt", "preference_turns.en.txt"):
        for _, line in corpus.lines(file):
            plain = re.sub(r"[{<]\w+[}>]", " ", line)
            counts.update(candidate_features.content_tokens(plain, 100))
    ranked = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return [word for word, _ in ranked[:COMMON_WORDS]]


# --- files ------------------------------------------------------------------------------------------------


def auc(scores: Array, wanted: Array) -> float:
    ranks = scores.argsort().argsort() + 1.0
    positives = wanted.sum()
    return float((ranks[wanted == 1].sum() - positives * (positives + 1) / 2) / (positives * (len(wanted) - positives)))


def stored_head(
    coefficients: Array, intercept: float, names: tuple[str, ...], *, vector_length: int = 0
) -> dict[str, Any]:
    head = {
        "features": list(names),
        "coefficients": rounded(coefficients[vector_length:]),
        "intercept": round(intercept, 4),
    }
    return {"vector": rounded(coefficients[:vector_length]), **head} if vector_length else head


def rounded(values: Array) -> list[float]:
    return [round(float(value), 4) for value in values]


def header(embedder: Embedder, rows: int, metrics: dict[str, float]) -> dict[str, Any]:
    return {
        "trained_on": f"{rows} turns rendered from training/corpus, written for this project",
        "licence": "Apache-2.0",
        "trained_at": datetime.now(UTC).date().isoformat(),
        "embedder": embedder.identity.model_dump(),
        "metrics_out_of_fold": metrics,
    }


def write(path: Path, weights: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(weights, ensure_ascii=False, indent=None, separators=(",", ":")) + "\n", encoding="utf-8"
    )
    print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    asyncio.run(main())
