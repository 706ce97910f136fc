"""What the numbers are held against. A target that is missed is said with its number, and so is one not measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

Json = dict[str, Any]

MOST = (
    ("turn.round_trips", 4.0),
    ("turn.history_events", 12.0),
    ("stage.round_trips", 16.0),
    ("stage.history_events", 36.0),
    ("turn.overhead_ratio_50ms", 1.22),
    ("retrieval.100000.p95_ms", 20.0),
)
LEAST = (("turn.turns_per_s.32", 80.0),)
NOT_ABOVE = ("dbos-sqlite", "dbos-postgres")
ALONE_MS, CROWDED_MS = 50.0, {"turn": 50.0, "stage": 250.0}
STAGE_PROMISES_FROM_MS = 100


@dataclass(frozen=True)
class Target:
    what: str
    value: float | None
    """None: not measured in this run."""
    limit: float
    at: Literal["most", "least"]

    @property
    def verdict(self) -> Literal["met", "MISSED", "not measured"]:
        if self.value is None:
            return "not measured"
        return "met" if (self.value <= self.limit if self.at == "most" else self.value >= self.limit) else "MISSED"

    def as_json(self) -> Json:
        return {"what": self.what, "value": self.value, "limit": self.limit, "at": self.at, "verdict": self.verdict}


def targets(found: Json) -> list[Target]:
    """Every target of the turn against what a run found (the content of `bench.json`)."""
    return [
        *(Target(path, _at(found, path), limit, "most") for path, limit in MOST),
        *(Target(path, _at(found, path), limit, "least") for path, limit in LEAST),
        *_against_dbos(found),
        *_budgets(found),
    ]


def _against_dbos(found: Json) -> Iterator[Target]:
    mine = _at(found, "turn.overhead_ratio_50ms")
    for peer in NOT_ABOVE:
        theirs = _at(found, f"turn.peers.{peer}.overhead_ratio_50ms")
        if theirs is not None:
            yield Target(f"turn.overhead_ratio_50ms, not above {peer}", mine, theirs, "most")
        else:
            yield Target(f"turn.overhead_ratio_50ms, not above {peer}", None, 0.0, "most")


def _budgets(found: Json) -> Iterator[Target]:
    """The worst median over kinds of policy and store, for each budget, durability and number of turns in flight."""
    for budget_ms, each in found.get("budget", {}).items():
        groups: dict[tuple[str, int], float] = {}
        for cell in each["cells"]:
            if cell["durability"] == "stage" and int(budget_ms) < STAGE_PROMISES_FROM_MS:
                continue
            key = (cell["durability"], cell["in_flight"])
            groups[key] = max(groups.get(key, cell["median_over_ms"]), cell["median_over_ms"])
        for (durability, in_flight), worst in groups.items():
            limit = ALONE_MS if in_flight == 1 else CROWDED_MS[durability]
            yield Target(
                f"budget {budget_ms} ms, {durability}, {in_flight} in flight: median over", worst, limit, "most"
            )


def _at(found: Json, path: str) -> float | None:
    value: Any = found
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    return float(value)
