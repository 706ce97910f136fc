"""The collector keeps the traces that explain something. A disposition nobody has thought about fails here."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from retold.contracts.disposition import Disposition
from retold.telemetry.names import DISPOSITION, REVIEW_ID
from retold.telemetry.traced import CAPTURED

COLLECTOR = yaml.safe_load((Path(__file__).parents[3] / "infra" / "collector" / "collector.yaml").read_text())
SAMPLING = COLLECTOR["processors"]["tail_sampling"]

ORDINARY = {
    Disposition.BASELINE_NO_GAPS,
    Disposition.BASELINE_NO_CANDIDATES,
    Disposition.BASELINE_EMPTY_ADMISSION,
    Disposition.CANCELLED,
}
"""Memory had nothing to say, or the host gave up: a sample of these is enough. Every other one is kept."""


@dataclass(frozen=True)
class Seen:
    """A span, as far as sampling looks at it."""

    attributes: dict[str, str] = field(default_factory=dict)
    status: str = "UNSET"
    elapsed_ms: float = 100


def _status(policy: dict[str, Any], spans: Sequence[Seen]) -> bool:
    return any(span.status in policy["status_codes"] for span in spans)


def _attribute(policy: dict[str, Any], spans: Sequence[Seen]) -> bool:
    found = [span.attributes[policy["key"]] for span in spans if policy["key"] in span.attributes]
    if policy.get("enabled_regex_matching", False):
        return any(re.search(pattern, value) for pattern in policy["values"] for value in found)
    return any(value in policy["values"] for value in found)


def _latency(policy: dict[str, Any], spans: Sequence[Seen]) -> bool:
    return max(span.elapsed_ms for span in spans) > float(policy["threshold_ms"])


CERTAIN: dict[str, Callable[[dict[str, Any], Sequence[Seen]], bool]] = {
    "status_code": _status,
    "string_attribute": _attribute,
    "latency": _latency,
}


def kept_for_certain(*spans: Seen) -> bool:
    """A trace is kept if any policy keeps it. What only chance would keep does not count."""
    policies = [policy for policy in SAMPLING["policies"] if policy["type"] != "probabilistic"]
    return any(CERTAIN[policy["type"]](policy[policy["type"]], spans) for policy in policies)


@pytest.mark.parametrize("disposition", list(Disposition))
def test_failures_withholds_and_what_memory_changed_are_kept(disposition: Disposition) -> None:
    turn = (Seen(), Seen({DISPOSITION: disposition.value}), Seen())
    assert kept_for_certain(*turn) == (disposition not in ORDINARY)


def test_a_span_that_failed_or_a_slow_turn_is_kept_and_an_ordinary_one_is_left_to_chance() -> None:
    ordinary = Seen({DISPOSITION: Disposition.BASELINE_NO_GAPS.value})
    assert kept_for_certain(ordinary, Seen(status="ERROR"))
    assert kept_for_certain(ordinary, Seen(elapsed_ms=6_000))
    assert kept_for_certain(Seen({REVIEW_ID: "6f1c"}))
    assert not kept_for_certain(ordinary)
    chances = [each for each in SAMPLING["policies"] if each["type"] == "probabilistic"]
    assert [0 < each["probabilistic"]["sampling_percentage"] <= 10 for each in chances] == [True]


def test_what_comes_late_shares_the_fate_of_its_trace() -> None:
    remembered = SAMPLING["decision_cache"]
    assert min(remembered["sampled_cache_size"], remembered["non_sampled_cache_size"]) > 2 * SAMPLING["num_traces"]


def test_only_dispositions_there_are_get_named() -> None:
    named = [
        value
        for policy in SAMPLING["policies"]
        if policy["type"] == "string_attribute" and policy["string_attribute"]["key"] == DISPOSITION
        for value in policy["string_attribute"]["values"]
    ]
    assert len(named) == len(set(named)) and set(named) <= {each.value for each in Disposition}


def test_traces_are_looked_at_after_the_private_was_taken_off_and_nothing_is_sampled_twice() -> None:
    steps = COLLECTOR["service"]["pipelines"]["traces"]["processors"]
    assert steps.index("attributes/private") < steps.index("tail_sampling") < steps.index("batch")
    deleted = {each["key"] for each in COLLECTOR["processors"]["attributes/private"]["actions"]}
    assert set(CAPTURED) <= deleted, "text that was captured on purpose does not leave through the collector"
