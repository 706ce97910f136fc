"""What makes a bundle: every component is in its hash, no switch is, and how it is written does not matter."""

from __future__ import annotations

import inspect
import json
import math
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retold.contracts.config import UtilityAwareConfig
from retold.contracts.record import RecordType
from retold.policy import bundles, utility_aware
from retold.policy.bundles import PolicyIdentities, bundle_components, bundle_hash, retrieval_config_hash
from retold.retrieval.config import RetrievalConfig
from tests.unit.bundles.bundle_parts import EMBEDDER, LIVE, POLICIES, RETRIEVAL, SERVING, components_of, serving

HASH = bundle_hash(components_of(SERVING))

SETTINGS: dict[str, Any] = {
    "gap_enabled": False,
    "admission_mode": "hosted_judge",
    "max_gaps": 2,
    "max_candidates": 7,
    "draft_timeout_ms": 29_999,
    "profile_timeout_ms": 249,
    "gap_timeout_ms": 3_999,
    "retrieval_timeout_ms": 999,
    "admission_timeout_ms": 7_999,
    "regeneration_timeout_ms": 29_999,
    "latency_budget_ms": 2_000,
    "bundle": {"classifier": "none"},
}
SWITCHES: dict[str, Any] = {"shadow": True, "profile_enabled": False, "shed_after_ms": 500}
POLICY_CHANGES: dict[str, Any] = {
    "planner": "local-planner/2",
    "judge": "local-judge/2",
    "serving_model": "smollm2/2",
    "embedder": EMBEDDER.model_copy(update={"runtime": "onnxruntime/1.21"}),
    "inventory": "distinct-labels-2",
    "prompts": {"draft": "sha256:reworded"},
    "model_settings": {"judge": {"temperature": 0.7}},
    "taxonomy": "another",
}


def test_every_field_of_the_configuration_is_a_component_or_a_switch_below() -> None:
    fixed = {"trigger_mode"}  # has one value
    assert set(UtilityAwareConfig.model_fields) == {*SETTINGS, *SWITCHES, *fixed}
    assert set(PolicyIdentities.model_fields) == set(POLICY_CHANGES)


@pytest.mark.parametrize("field", SETTINGS)
def test_another_setting_is_another_bundle(field: str) -> None:
    assert bundle_hash(components_of(serving(**{field: SETTINGS[field]}))) != HASH


@pytest.mark.parametrize("field", SWITCHES)
def test_a_switch_is_no_component(field: str) -> None:
    assert bundle_hash(components_of(serving(**{field: SWITCHES[field]}))) == HASH


@pytest.mark.parametrize("field", POLICY_CHANGES)
def test_another_policy_model_prompt_or_runtime_is_another_bundle(field: str) -> None:
    policies = POLICIES.model_copy(update={field: POLICY_CHANGES[field]})
    assert bundle_hash(bundle_components(SERVING, RETRIEVAL, policies=policies)) != HASH


@pytest.mark.parametrize(
    "change", [{"rrf_k": 11}, {"max_tokens": 1_499}, {"dense_floors": dict.fromkeys(RecordType, 0.2)}], ids=str
)
def test_another_retrieval_setting_is_another_bundle(change: dict[str, Any]) -> None:
    retrieval = RetrievalConfig.model_validate({**RETRIEVAL.model_dump(), **change})
    assert bundle_hash(bundle_components(SERVING, retrieval, policies=POLICIES)) != HASH


def test_a_change_of_the_turns_code_is_another_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "PATH_REVISION", bundles.PATH_REVISION + 1)
    assert bundle_hash(components_of(SERVING)) != HASH


def test_declaring_the_live_retrieval_hash_changes_nothing_and_claiming_one_unseen_does() -> None:
    declaring = serving(bundle={"retrieval_config_sha256": LIVE})
    assert bundle_hash(components_of(declaring)) == HASH
    claimed = bundle_components(declaring, policies=POLICIES)
    assert bundle_hash(claimed) not in (HASH, bundle_hash(bundle_components(SERVING, policies=POLICIES)))


def test_the_retrieval_hash_is_the_one_a_running_retriever_names() -> None:
    assert retrieval_config_hash(RETRIEVAL, EMBEDDER) == LIVE == components_of(SERVING)["retrieval_config_sha256"]
    assert retrieval_config_hash(RETRIEVAL) == retrieval_config_hash(RETRIEVAL.model_dump(mode="json")) != LIVE
    with pytest.raises(ValueError, match="RetrievalConfig or a mapping as retrieval_config, not str"):
        retrieval_config_hash(LIVE)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=50)
@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_key_order_and_whitespace_do_not_matter(components: dict[str, Any]) -> None:
    assert bundle_hash(_reversed(components)) == bundle_hash(components)
    assert bundle_hash(json.loads(json.dumps(components, indent=3))) == bundle_hash(components)


def test_the_hash_is_the_published_one() -> None:
    # First 16 hex digits of the SHA-256 of {"a":[true,null],"b":1.5}: what any other language must arrive at.
    assert bundle_hash({"b": 1.5, "a": (True, None)}) == "10ab843e0579ffa7"


@pytest.mark.parametrize("value", [object(), {1, 2}, math.nan, math.inf], ids=["object", "set", "nan", "inf"])
def test_what_is_not_json_has_no_hash(value: object) -> None:
    with pytest.raises(ValueError, match="only plain JSON"):
        bundle_hash({"threshold": value})


def test_the_names_and_signatures_of_the_specification_are_there() -> None:
    assert utility_aware.bundle_components is bundle_components
    assert list(inspect.signature(bundle_components).parameters)[:2] == ["config", "retrieval_config"]
    assert issubclass(bundles.BundleNotApprovedError, RuntimeError)
    assert issubclass(bundles.BundleMismatchError, RuntimeError)
    assert inspect.isclass(bundles.BundleRegistry)
    assert bundle_components(UtilityAwareConfig())["settings"] is not None


def test_the_turn_can_be_loaded_where_numpy_cannot() -> None:
    # Workflows import this module, and Temporal's sandbox loads no numpy.
    code = "import sys; sys.modules['numpy'] = None; import retold.policy.utility_aware"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def _reversed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _reversed(value[key]) for key in reversed(value)}
    return [_reversed(item) for item in value] if isinstance(value, list) else value
