"""What is on record about a bundle: one result of the fitness suite, or one approval for development."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue

from retold.contracts._base import Contract, Name, UtcTime

EVIDENCE_MAX_CHARS = 4_000

ApprovalKind = Literal["fitness", "development"]
"""`fitness`: the suite measured this bundle. `development`: nobody did, somebody wanted to see it run."""

BundleHash = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
"""`retold.policy.bundles.bundle_hash` of a bundle's components."""


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must say where the result comes from: a report, a run, a reason")
    return value


class FitnessRecord(Contract):
    """One row of the registry. Rows are only ever added; the latest one of a hash says whether it may serve."""

    bundle_hash: BundleHash
    passed: bool
    kind: ApprovalKind
    suite_version: Name
    evidence: Annotated[str, Field(max_length=EVIDENCE_MAX_CHARS), AfterValidator(_not_blank)]
    """Where the result can be looked up. Nothing checks it, and it never holds text of a turn or a record."""
    components: dict[str, JsonValue]
    """What the hash is of, so that two hashes can be told apart by what differs."""
    recorded_by: Name
    recorded_at: UtcTime
