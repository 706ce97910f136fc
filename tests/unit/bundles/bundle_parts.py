"""The parts bundle tests are made of: a serving configuration, who decides in it, and a registry in memory."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import JsonValue

from retold.contracts.config import AdmissionMode, UtilityAwareConfig
from retold.policy.bundles import BundleRegistry, Certificate, PolicyIdentities, bundle_components, certify
from retold.policy.ports import EmbedderIdentity
from retold.retrieval.config import RetrievalConfig
from tests.scripted import FitnessInMemory

EMBEDDER = EmbedderIdentity(model="minilm", revision="r1", runtime="onnxruntime/1.20", dimension=384)
POLICIES = PolicyIdentities(
    planner="local-planner/1",
    judge="local-judge/1",
    serving_model="smollm2/1",
    embedder=EMBEDDER,
    inventory="distinct-labels-1",
    prompts={"draft": "sha256:draft"},
)
RETRIEVAL = RetrievalConfig()
LIVE = RETRIEVAL.config_hash(EMBEDDER)
NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
SERVING = UtilityAwareConfig(gap_enabled=True, admission_mode=AdmissionMode.LOCAL_JUDGE, shadow=False)


def serving(**changes: Any) -> UtilityAwareConfig:
    return UtilityAwareConfig.model_validate({**SERVING.model_dump(), **changes})


def components_of(config: UtilityAwareConfig) -> dict[str, JsonValue]:
    return bundle_components(config, RETRIEVAL, policies=POLICIES)


def registry() -> BundleRegistry:
    return BundleRegistry(FitnessInMemory(), now=lambda: NOON)


async def found(registry: BundleRegistry, config: UtilityAwareConfig, *, passed: bool) -> None:
    """The fitness suite's finding about a configuration."""
    await registry.record(
        components_of(config), passed=passed, suite_version="suite-1", evidence="report 7", recorded_by="ci"
    )


async def certified(config: UtilityAwareConfig, registry: BundleRegistry | None) -> Certificate:
    return await certify(config, components_of(config), registry)
