"""What import-linter cannot hold: the composition root is nobody's dependency, and the names others rely on exist."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from retold.contracts.disposition import SERVING_DISPOSITIONS, TABLE, Disposition, Reason, outcome

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("retold", "workflows", "activities")


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from (ROOT / folder).rglob("*.py")


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_nothing_imports_the_composition_root() -> None:
    assert [path for path in sources(*PACKAGES) if "worker" in set(imported(path))] == []


def test_workflows_wait_with_the_deterministic_calls() -> None:
    """`asyncio.wait` and `wait_for` use sets and server timers; a workflow's own `wait` is ordered."""
    forbidden = re.compile(r"asyncio\.(wait|wait_for|as_completed|timeout|sleep)\b")
    assert [path.name for path in sources("workflows") if forbidden.search(path.read_text())] == []


@pytest.mark.parametrize(
    "name",
    [
        "retold.policy.orchestrator.UtilityAwareOrchestrator",
        "retold.policy.utility_aware.bundle_components",
        "retold.policy.utility_aware.render_decision",
        "retold.policy.profile.ProfileAssembler",
        "retold.contracts.stages.ProfileBlock",
        "retold.policy.bundles.BundleNotApprovedError",
        "retold.policy.bundles.BundleMismatchError",
        "retold.policy.bundles.BundleRegistry",
        "retold.policy.bundles.bundle_hash",
        "retold.policy.bundles.retrieval_config_hash",
        "retold.policy.ports.GapPolicy",
        "retold.policy.ports.AdmissionPolicy",
        "retold.contracts.turn.TurnOptions",
        "retold.contracts.config.UtilityAwareConfig",
    ],
)
def test_public_name(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    assert hasattr(importlib.import_module(module), attribute)


def test_the_table_is_closed_every_pair_accepted_and_every_other_refused() -> None:
    assert set(TABLE) == set(Disposition)
    assert {reason for reasons in TABLE.values() for reason in reasons} == set(Reason)
    assert len(SERVING_DISPOSITIONS) == 7
    for disposition in Disposition:
        for reason in Reason:
            if reason in TABLE[disposition]:
                assert outcome(disposition, reason) == (disposition, reason)
            else:
                with pytest.raises(ValueError, match="does not belong"):
                    outcome(disposition, reason)
