"""Serving is earned: what a bundle is, what is on record about it, and who may therefore put memory into an answer.

A bundle is everything that changes what the path does (specification section 5): models, prompts, taxonomy,
inventory builder, retrieval, stage timeouts, caps and the default budget. Any change of any of them is another
hash, and a hash serves only while the latest result on record for it is a pass. Switches are no part of it:
shadow, the profile switch, kill switches and a request's own budget.

`certify` is the only way to a `Certificate`, and without one no driver has a configuration to run.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass
from datetime import datetime
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, Field, JsonValue

from retold.contracts._base import Contract
from retold.contracts.bundle import ApprovalKind, FitnessRecord
from retold.contracts.config import UtilityAwareConfig
from retold.contracts.record import RetrievalCategory
from retold.contracts.stages import GapCategory, Verdict
from retold.policy.limits import utc_now
from retold.policy.ports import EmbedderIdentity

logger = logging.getLogger(__name__)

PATH_REVISION = 1
"""Raised when the code of the turn (rules, profile bounds, retries) decides otherwise from the same components."""

DECLARED_RETRIEVAL = "retrieval_config_sha256"
"""Key of `UtilityAwareConfig.bundle` under which a host claims what it retrieves with."""

_SWITCHES = frozenset({"shadow", "profile_enabled", "shed_after_ms"})
"""Fields of the configuration that are no components: they can only take away. Any other, also one added later, makes
a new bundle."""


class BundleNotApprovedError(RuntimeError):
    """A host tries to serve with a bundle that has no passing result on record."""


class BundleMismatchError(RuntimeError):
    """A bundle's declared components do not describe the runtime that would serve them."""


# --- what a bundle is ---------------------------------------------------------------------------------------


def _hash_of(value: Any) -> str:
    """First 16 hex digits of SHA-256 over canonical JSON."""
    try:
        canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"only plain JSON has the same hash everywhere: {error}") from error
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


TAXONOMY = _hash_of([[label.value for label in labels] for labels in (RetrievalCategory, GapCategory, Verdict)])
"""The labels planner, judge and inventory speak in, in their order."""


Identity = Annotated[str, Field(min_length=1, max_length=1_000)]
"""Long enough to be given whole: of two that were cut to the same length one would borrow the other's approval."""


class PolicyIdentities(Contract):
    """Who decides and answers. Together they name everything that changes what is said: model, weights, prompts,
    endpoint, sampling. They are kept with every result, so no key or password belongs in them.
    """

    planner: Identity
    judge: Identity
    serving_model: Identity
    embedder: EmbedderIdentity
    inventory: Identity
    """Which builder the planner's view of stored memory comes from."""
    prompts: dict[str, str] = {}
    """Version of what is really rendered, by role; roles without a prompt are left out."""
    model_settings: dict[str, JsonValue] = {}
    """How a role's model is asked, by role: endpoint, token limit, temperature."""
    taxonomy: Identity = TAXONOMY


def bundle_components(
    config: UtilityAwareConfig, retrieval_config: Any = None, *, policies: PolicyIdentities | None = None
) -> dict[str, JsonValue]:
    """Everything that changes what the path does. Hashing this identifies a bundle.

    Args:
        config: its switches are left out, what it declares about itself is taken along.
        retrieval_config: what this deployment retrieves with; see `retrieval_config_hash`. Without it nothing is
            known about retrieval, and what the host declares about it stays a claim.
        policies: who decides. Without it the bundle is what the host declares and no more.

    Raises:
        BundleMismatchError: the host declares another retrieval than the live one.
    """
    live = None
    if retrieval_config is not None:
        live = retrieval_config_hash(retrieval_config, policies.embedder if policies is not None else None)
        _refuse_another_retrieval(config, live)
    return {
        "path": PATH_REVISION,
        "policies": policies.model_dump(mode="json") if policies is not None else None,
        "retrieval_config_sha256": live,
        **_of_the_host(config, live),
    }


def bundle_hash(components: Mapping[str, Any]) -> str:
    """Stable hash of a bundle's components; key order and whitespace do not matter.

    Raises:
        ValueError: they hold something that is not JSON.
    """
    return _hash_of(dict(components))


def retrieval_config_hash(retrieval_config: Any, embedder: EmbedderIdentity | None = None) -> str:
    """The retrieval half of a bundle hash, derived from the configuration a host actually retrieves with.

    With `embedder` this is `RetrievalConfig.config_hash`, the hash a running retriever names and a bundle may
    declare: vectors of another model select other records under the same settings. Without it the settings, or a
    mapping of a host that retrieves with something else, are hashed as they are.

    Raises:
        ValueError: it is neither a mapping nor a model of settings, or holds something that is not JSON.
    """
    if embedder is not None and hasattr(retrieval_config, "config_hash"):
        return str(retrieval_config.config_hash(embedder))
    if isinstance(retrieval_config, BaseModel):
        return _hash_of(retrieval_config.model_dump(mode="json"))
    if isinstance(retrieval_config, Mapping):
        return _hash_of(dict(retrieval_config))
    raise ValueError(f"give a RetrievalConfig or a mapping as retrieval_config, not {type(retrieval_config).__name__}")


def _of_the_host(config: UtilityAwareConfig, live_retrieval: JsonValue) -> dict[str, JsonValue]:
    """The components a configuration brings. A declared hash that the live one confirms adds nothing."""
    confirmed = {DECLARED_RETRIEVAL} if live_retrieval is not None else set()
    return {
        "settings": config.model_dump(mode="json", exclude={*_SWITCHES, "bundle"}),
        "declared": {key: value for key, value in config.bundle.items() if key not in confirmed},
    }


# --- what is on record --------------------------------------------------------------------------------------


class FitnessLog(Protocol):
    """Where results are kept. It can be added to and read; there is nothing to change or remove one with."""

    async def append_fitness(self, record: FitnessRecord) -> None: ...

    async def latest_fitness(self, bundle_hash: str) -> FitnessRecord | None:
        """The result of this hash that was added last."""

    async def fitness_history(self, bundle_hash: str | None = None, *, limit: int = 100) -> Sequence[FitnessRecord]:
        """Results of one bundle, or of all, newest first."""


class BundleRegistry:
    """Records fitness results and answers whether a bundle may serve: the latest result of its hash decides.

    A later fail revokes, a later pass restores. A driver asks when it is built, so a revocation reaches a running
    worker with its next start; until then the kill switches are what stops it.
    """

    def __init__(self, log: FitnessLog, *, now: Callable[[], datetime] = utc_now) -> None:
        self._log = log
        self._now = now

    async def record(
        self, components: Mapping[str, JsonValue], *, passed: bool, suite_version: str, evidence: str, recorded_by: str
    ) -> FitnessRecord:
        """Add what the fitness suite found about this bundle."""
        return await self._append(components, "fitness", passed, suite_version, evidence, recorded_by)

    async def approve_for_development(
        self, components: Mapping[str, JsonValue], *, reason: str, recorded_by: str
    ) -> FitnessRecord:
        """Let a bundle serve that nobody measured, and say so in the registry and in every decision it makes.

        A bundle that may serve already keeps the approval it has.

        Raises:
            BundleNotApprovedError: the fitness suite failed this bundle. Wanting to see it run is no answer to that.
            ValueError: `reason` is blank.
        """
        if not reason.strip():
            raise ValueError("reason: say why an unmeasured bundle should serve")
        latest = await self.latest(bundle_hash(components))
        if latest is None:
            evidence = f"development approval, not measured by any fitness suite: {reason}"
            return await self._append(components, "development", True, "none", evidence, recorded_by)
        if not latest.passed:
            raise BundleNotApprovedError(
                f"{_found(latest)} A development approval does not overrule that: run in shadow, or change the bundle"
            )
        return latest

    async def latest(self, bundle_hash: str) -> FitnessRecord | None:
        return await self._log.latest_fitness(bundle_hash)

    async def approval(self, bundle_hash: str) -> ApprovalKind:
        """What this bundle may serve by.

        Raises:
            BundleNotApprovedError: nothing, or a fail that came after it; the message says which and what to do.
        """
        latest = await self.latest(bundle_hash)
        if latest is None:
            raise _not_approved(f"bundle {bundle_hash} has no fitness result on record.")
        if not latest.passed:
            raise _not_approved(_found(latest))
        return latest.kind

    async def _append(
        self,
        components: Mapping[str, JsonValue],
        kind: ApprovalKind,
        passed: bool,
        suite_version: str,
        evidence: str,
        recorded_by: str,
    ) -> FitnessRecord:
        record = FitnessRecord(
            bundle_hash=bundle_hash(components),
            passed=passed,
            kind=kind,
            suite_version=suite_version,
            evidence=evidence,
            components=dict(components),
            recorded_by=recorded_by,
            recorded_at=self._now(),
        )
        await self._log.append_fitness(record)
        return record


def _found(failed: FitnessRecord) -> str:
    return (
        f"bundle {failed.bundle_hash} failed fitness suite {failed.suite_version} on {failed.recorded_at:%Y-%m-%d}"
        f" (recorded by {failed.recorded_by}: {failed.evidence})."
    )


def _not_approved(found: str) -> BundleNotApprovedError:
    return BundleNotApprovedError(
        f"{found} Serving needs a pass for exactly this bundle: run the fitness suite and record its result, or set"
        " shadow=True to decide and log without serving"
    )


# --- who may serve ------------------------------------------------------------------------------------------

_SEAL = object()


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """A configuration that may run as it is, and by what right. Only `certify` makes one.

    Every driver takes its configuration from here, so there is no way to serve around the registry by accident.
    """

    config: UtilityAwareConfig
    bundle_hash: str
    approval: ApprovalKind | None
    """What the bundle serves by. None: it does not serve, so it needs nothing."""
    retrieval_verified: bool
    """Whether the hash covers retrieval as it is, and not as somebody says it is."""
    seal: InitVar[object]

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError("a Certificate is not made by hand: `await certify(config, components, registry)`")


async def certify(
    config: UtilityAwareConfig, components: Mapping[str, JsonValue], registry: BundleRegistry | None
) -> Certificate:
    """Check that this configuration may run with these components. Every driver is built from what this returns.

    Shadow and a path that is off need no approval and no registry: turning something off always works.

    Args:
        config: what is to run.
        components: `bundle_components` of the same configuration.
        registry: what is on record; it is asked only about a bundle that would serve.

    Raises:
        BundleNotApprovedError: it would serve, and its latest result is missing or a fail.
        BundleMismatchError: the components are of another configuration or declare another retrieval than the live
            one; or it would serve with a declared retrieval that nothing verified.
        pydantic.ValidationError: the configuration went around its own validation.
    """
    config = UtilityAwareConfig.model_validate(config.model_dump())
    live, declared = components.get("retrieval_config_sha256"), config.bundle.get(DECLARED_RETRIEVAL)
    if not _of_the_host(config, live).items() <= components.items():
        raise BundleMismatchError("the components are those of another configuration: derive them from the one to run")
    if live is not None:
        _refuse_another_retrieval(config, live)
    elif declared is not None:
        _unverified(config, declared)
    identity = bundle_hash(components)
    approval = await _approval(identity, registry) if config.serving else None
    return Certificate(
        config=config, bundle_hash=identity, approval=approval, retrieval_verified=live is not None, seal=_SEAL
    )


async def _approval(identity: str, registry: BundleRegistry | None) -> ApprovalKind:
    if registry is None:
        raise _not_approved(f"bundle {identity} cannot be looked up without a registry.")
    approval = await registry.approval(identity)
    if approval == "development":
        logger.warning("bundle %s serves by a development approval: no fitness suite has measured it", identity)
    return approval


def _refuse_another_retrieval(config: UtilityAwareConfig, live: object) -> None:
    declared = config.bundle.get(DECLARED_RETRIEVAL)
    if declared is not None and declared != live:
        raise BundleMismatchError(
            f"bundle.{DECLARED_RETRIEVAL} declares {declared}, but settings and embedder of this deployment give"
            f" {live}: a result earned with one retrieval says nothing about another. Restore the declared retrieval,"
            " or drop the field and have this bundle measured"
        )


def _unverified(config: UtilityAwareConfig, declared: object) -> None:
    claim = (
        f"bundle.{DECLARED_RETRIEVAL} declares {declared}, but no live retrieval configuration was given to check it by"
    )
    if config.serving:
        raise BundleMismatchError(f"{claim}: pass one to bundle_components, or drop the field and claim nothing")
    logger.warning("%s; every decision will say bundle_retrieval_verified=False", claim)
