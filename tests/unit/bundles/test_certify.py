"""Who may serve: the independence matrix, approval and revocation, and a retrieval hash nobody checked."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import logging
from typing import Any

import pytest
from pydantic import ValidationError

from retold.contracts.config import AdmissionMode, UtilityAwareConfig
from retold.contracts.disposition import Disposition, Reason
from retold.contracts.stages import ProfileBlock
from retold.policy.bundles import (
    BundleMismatchError,
    BundleNotApprovedError,
    BundleRegistry,
    Certificate,
    bundle_components,
    bundle_hash,
    certify,
)
from retold.policy.orchestrator import UtilityAwareOrchestrator
from retold.policy.recording import TurnRecorder
from tests.scripted import ANNA, DRAFT, FINAL, FitnessInMemory, Script, Step, scripted
from tests.unit.bundles.bundle_parts import (
    LIVE,
    NOON,
    POLICIES,
    RETRIEVAL,
    SERVING,
    certified,
    components_of,
    found,
    registry,
    serving,
)

MATRIX = list(itertools.product([True, False], [True, False], AdmissionMode, [True, False]))
"""Profile, gap, admission mode, shadow."""


# --- the independence matrix (specification section 5) --------------------------------------------------------


@pytest.mark.parametrize(("profile", "gap", "admission", "shadow"), MATRIX)
async def test_a_cell_of_the_matrix(profile: bool, gap: bool, admission: AdmissionMode, shadow: bool) -> None:
    """Each cell, through a turn in which a planner, a helpful record and a profile are all there."""
    cell: dict[str, Any] = {
        "profile_enabled": profile,
        "gap_enabled": gap,
        "admission_mode": admission,
        "shadow": shadow,
    }
    admitting = admission is not AdmissionMode.DISABLED
    if gap and not admitting and not shadow:
        with pytest.raises(ValidationError, match="may only run in shadow"):
            UtilityAwareConfig(**cell)
        return
    config = UtilityAwareConfig(**cell)
    serves = gap and admitting and not shadow
    if serves:
        with pytest.raises(BundleNotApprovedError):
            await certified(config, registry())
    else:
        assert (await certified(config, None)).approval is None

    stack = scripted(Script(config=config, profile=Step(ProfileBlock(text="Be brief."))))
    decided = await UtilityAwareOrchestrator(stack.bodies, TurnRecorder(stack.store)).prepare_turn(
        ANNA, "s1", "t1", "what can I eat?"
    )
    asked = set(stack.called.ports)
    assert ("Be brief." in stack.called.prompts[0][0].content) is profile
    assert ({"plan", "retrieve"} <= asked) is gap
    assert ("admit" in asked) is (gap and admitting)
    assert decided.response == (FINAL if serves else DRAFT)
    expected = {
        (False, False): (Disposition.BASELINE_NO_GAPS, Reason.PATH_DISABLED),
        (False, True): (Disposition.BASELINE_NO_GAPS, Reason.PATH_DISABLED),
        (True, False): (Disposition.BASELINE_EMPTY_ADMISSION, Reason.ADMISSION_DISABLED),
        (True, True): (
            Disposition.REGENERATED if serves else Disposition.SHADOW_WOULD_REGENERATE,
            Reason.ADMITTED,
        ),
    }[gap, admitting]
    assert (stack.decision.disposition, stack.decision.reason) == expected


@pytest.mark.parametrize("mode", ["auto", "hybrid", ""])
async def test_host_issued_search_is_refused_also_when_it_went_around_validation(mode: str) -> None:
    with pytest.raises(ValidationError, match="trigger_mode"):
        serving(trigger_mode=mode)
    slipped_in = SERVING.model_copy(update={"trigger_mode": mode, "shadow": True})
    with pytest.raises(ValidationError, match="trigger_mode"):
        await certify(slipped_in, components_of(SERVING), None)


# --- approval -------------------------------------------------------------------------------------------------


async def test_serving_needs_a_pass_and_the_refusal_names_the_bundle_and_what_to_do() -> None:
    with pytest.raises(BundleNotApprovedError) as refused:
        await certified(SERVING, registry())
    said = str(refused.value)
    assert bundle_hash(components_of(SERVING)) in said
    assert "no fitness result" in said and "run the fitness suite" in said and "shadow=True" in said
    with pytest.raises(BundleNotApprovedError, match="without a registry"):
        await certified(SERVING, None)


async def test_a_pass_approves_a_later_fail_revokes_and_a_later_pass_restores() -> None:
    on_record = registry()
    await found(on_record, SERVING, passed=True)
    certificate = await certified(SERVING, on_record)
    assert (certificate.approval, certificate.retrieval_verified) == ("fitness", True)
    assert certificate.bundle_hash == bundle_hash(components_of(SERVING))
    await found(on_record, SERVING, passed=False)
    with pytest.raises(BundleNotApprovedError, match=r"failed fitness suite suite-1 on 2026-11-30.*report 7"):
        await certified(SERVING, on_record)
    await found(on_record, SERVING, passed=True)
    assert (await certified(SERVING, on_record)).approval == "fitness"


async def test_a_pass_earned_in_shadow_is_about_the_same_bundle() -> None:
    on_record = registry()
    await found(on_record, serving(shadow=True), passed=True)
    assert (await certified(SERVING, on_record)).approval == "fitness"


async def test_a_result_is_about_one_bundle_only() -> None:
    on_record = registry()
    await found(on_record, SERVING, passed=True)
    await found(on_record, serving(max_gaps=1), passed=False)
    assert (await certified(SERVING, on_record)).approval == "fitness"
    with pytest.raises(BundleNotApprovedError):
        await certified(serving(gap_timeout_ms=3_999), on_record)


class NoLog(FitnessInMemory):
    async def latest_fitness(self, bundle_hash: str) -> None:
        raise AssertionError("a bundle that does not serve needs nobody's approval")


@pytest.mark.parametrize("off", [{"shadow": True}, {"gap_enabled": False}, {"profile_enabled": False, "shadow": True}])
async def test_turning_something_off_never_asks_even_for_a_failed_bundle_and_a_store_that_is_away(
    off: dict[str, Any],
) -> None:
    certificate = await certified(serving(**off), BundleRegistry(NoLog()))
    assert certificate.approval is None
    assert not certificate.config.serving


async def test_turning_it_on_again_needs_the_same_pass_still_to_stand() -> None:
    on_record = registry()
    await found(on_record, SERVING, passed=True)
    await certified(serving(gap_enabled=False), on_record)
    assert (await certified(SERVING, on_record)).approval == "fitness"
    await found(on_record, SERVING, passed=False)
    await certified(serving(gap_enabled=False), on_record)
    with pytest.raises(BundleNotApprovedError):
        await certified(SERVING, on_record)


# --- approval for development ---------------------------------------------------------------------------------


async def test_a_development_approval_serves_and_is_visible_in_registry_log_and_every_decision(
    caplog: pytest.LogCaptureFixture,
) -> None:
    on_record = registry()
    row = await on_record.approve_for_development(components_of(SERVING), reason="retold dev", recorded_by="ada")
    assert (row.kind, row.passed, row.recorded_by, row.recorded_at) == ("development", True, "ada", NOON)
    assert "not measured by any fitness suite: retold dev" in row.evidence
    with caplog.at_level(logging.WARNING):
        certificate = await certified(SERVING, on_record)
    assert f"bundle {row.bundle_hash} serves by a development approval" in caplog.text

    stack = scripted(Script(config=SERVING))
    opened = dataclasses.replace(stack.bodies.open, certificate=certificate)
    bodies = dataclasses.replace(stack.bodies, open=opened)
    decided = await UtilityAwareOrchestrator(bodies, TurnRecorder(stack.store)).prepare_turn(ANNA, "s1", "t1", "hi")
    assert decided.response == FINAL
    assert stack.decision.bundle_approval == "development"
    assert stack.decision.bundle_hash == row.bundle_hash
    assert stack.decision.bundle_retrieval_verified


async def test_a_development_approval_neither_replaces_a_pass_nor_overrules_a_fail() -> None:
    on_record, components = registry(), components_of(SERVING)
    for _ in range(2):
        approved = await on_record.approve_for_development(components, reason="again", recorded_by="ada")
    assert approved.kind == "development"
    await found(on_record, SERVING, passed=True)
    kept = await on_record.approve_for_development(components, reason="again", recorded_by="ada")
    assert kept.kind == "fitness"
    assert (await certified(SERVING, on_record)).approval == "fitness"
    await found(on_record, SERVING, passed=False)
    with pytest.raises(BundleNotApprovedError, match="does not overrule"):
        await on_record.approve_for_development(components, reason="again", recorded_by="ada")
    with pytest.raises(BundleNotApprovedError):
        await certified(SERVING, on_record)


async def test_a_reason_is_needed() -> None:
    with pytest.raises(ValidationError, match="evidence"):
        await registry().record(
            components_of(SERVING), passed=True, suite_version="suite-1", evidence=" ", recorded_by="ci"
        )
    with pytest.raises(ValueError, match="reason"):
        await registry().approve_for_development(components_of(SERVING), reason=" ", recorded_by="ada")


# --- a declared retrieval hash --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [{}, {"shadow": True}, {"gap_enabled": False}], ids=["serving", "shadow", "off"])
async def test_declaring_another_retrieval_is_refused_serving_or_not(mode: dict[str, Any]) -> None:
    on_record = registry()
    await found(on_record, SERVING, passed=True)
    wrong = serving(bundle={"retrieval_config_sha256": "e8c8c3309ab121de"}, **mode)
    of_another = bundle_components(serving(**mode), RETRIEVAL, policies=POLICIES)
    with pytest.raises(BundleMismatchError, match=f"e8c8c3309ab121de.*{LIVE}"):
        bundle_components(wrong, RETRIEVAL, policies=POLICIES)
    with pytest.raises(BundleMismatchError, match=f"e8c8c3309ab121de.*{LIVE}"):
        await certify(wrong, of_another, on_record)


async def test_a_declared_hash_that_nothing_verified_may_not_serve_and_is_marked_in_shadow(
    caplog: pytest.LogCaptureFixture,
) -> None:
    on_record, declaring = registry(), serving(bundle={"retrieval_config_sha256": LIVE})
    claimed = bundle_components(declaring, policies=POLICIES)
    await on_record.record(claimed, passed=True, suite_version="suite-1", evidence="report 7", recorded_by="ci")
    with pytest.raises(BundleMismatchError, match="no live retrieval configuration"):
        await certify(declaring, claimed, on_record)
    with caplog.at_level(logging.WARNING):
        certificate = await certify(serving(bundle=declaring.bundle, shadow=True), claimed, on_record)
    assert not certificate.retrieval_verified
    assert "bundle_retrieval_verified=False" in caplog.text


async def test_a_verified_hash_serves_and_one_that_is_neither_declared_nor_derived_claims_nothing() -> None:
    on_record, declaring = registry(), serving(bundle={"retrieval_config_sha256": LIVE})
    await found(on_record, declaring, passed=True)
    assert (await certified(declaring, on_record)).retrieval_verified
    unknown = bundle_components(SERVING, policies=POLICIES)
    await on_record.record(unknown, passed=True, suite_version="suite-1", evidence="report 8", recorded_by="ci")
    assert not (await certify(SERVING, unknown, on_record)).retrieval_verified


# --- no way around --------------------------------------------------------------------------------------------


async def test_components_of_another_configuration_do_not_lend_their_approval() -> None:
    on_record = registry()
    await found(on_record, SERVING, passed=True)
    for other in (serving(max_candidates=32), serving(bundle={"planner": "mine"})):
        with pytest.raises(BundleMismatchError, match="another configuration"):
            await certify(other, components_of(SERVING), on_record)


async def test_only_certify_makes_a_certificate_and_no_driver_runs_without_one() -> None:
    shadow = await certified(serving(shadow=True), None)
    with pytest.raises(TypeError, match="not made by hand"):
        Certificate(config=SERVING, bundle_hash="0" * 16, approval="fitness", retrieval_verified=True, seal=None)
    with pytest.raises((TypeError, ValueError)):
        dataclasses.replace(shadow, config=SERVING)  # type: ignore[call-arg]
    assert not copy.deepcopy(shadow).config.serving
    stack = scripted(Script())
    for no_proof in (None, SERVING, object()):
        with pytest.raises(BundleNotApprovedError, match="certify"):
            dataclasses.replace(stack.bodies.open, certificate=no_proof)  # type: ignore[arg-type]


async def test_what_the_host_changes_afterwards_does_not_reach_the_certificate() -> None:
    bundle: dict[str, Any] = {"classifier": {"version": 1}}
    config = serving(shadow=True, bundle=bundle)
    certificate = await certified(config, None)
    config.bundle["classifier"]["version"] = 2  # type: ignore[index,call-overload]
    assert certificate.config.bundle == {"classifier": {"version": 1}}
