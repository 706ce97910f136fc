"""What each stage of a turn does, once, for every driver: load what it needs, call its port, answer with a value.

Each body enforces its own limit and turns every failure into a `StageFailure`; only cancellation passes through.
Record text is loaded here, by id, with scope and lifecycle checked at that moment (design section 3.5).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from retold.contracts.config import Switches, UtilityAwareConfig
from retold.contracts.host_generation import AdmittedMemory
from retold.contracts.record import MemoryRecord, RecordRef
from retold.contracts.stages import (
    AdmitInput,
    AdmitResult,
    DraftInput,
    DraftResult,
    OpenInput,
    OpenResult,
    PlanInput,
    PlanResult,
    ProfileBlock,
    RegenerateInput,
    RegenerateResult,
    RetrieveInput,
    RetrieveResult,
    Stage,
)
from retold.contracts.turn import Principal
from retold.policy.blocking import BlockingPool, call_policy
from retold.policy.bundles import BundleNotApprovedError, Certificate
from retold.policy.limits import failure_of, left_ms, utc_now, within
from retold.policy.ports import (
    AdmissionPolicy,
    CandidateRetriever,
    GapPolicy,
    Generation,
    SearchRequest,
    ServingModel,
    SessionOwnedByAnotherError,
    TurnStore,
)
from retold.policy.profile import ProfileAssembler
from retold.policy.prompts import ChatPrompt
from retold.policy.rules import surviving_admission
from retold.telemetry.names import RETRIED, note, stage_span

DRAFT_ATTEMPTS = 2
"""A draft that fails quickly is tried again inside its own timeout; every other stage is tried once."""


def no_switches(principal: Principal) -> Switches:
    """For drivers without kill switches: everything is on."""
    return Switches()


@dataclass(frozen=True, kw_only=True)
class OpenStage:
    """The turn's surroundings. What comes from the store has one short limit together.

    In every driver a turn gets its configuration from here, and it comes out of a certificate: a bundle that has
    not earned serving has no driver to serve in.
    """

    certificate: Certificate
    store: TurnStore
    profiles: ProfileAssembler
    switches: Callable[[Principal], Switches] = field(default=no_switches)

    def __post_init__(self) -> None:
        """Raises:
        BundleNotApprovedError: there is no certificate.
        """
        if not isinstance(self.certificate, Certificate):
            raise BundleNotApprovedError("turns run on a certificate: `await certify(config, components, registry)`")

    @property
    def config(self) -> UtilityAwareConfig:
        return self.certificate.config

    async def __call__(self, stage: OpenInput) -> OpenResult:
        """Raises:
        SessionOwnedByAnotherError: the turn is refused, nothing is drafted or recorded.
        """
        with stage_span(Stage.OPEN, stage.decision_id, limit_ms=self.config.profile_timeout_ms) as span:
            switches = self.switches(stage.principal)
            surroundings = OpenResult(
                config=self.config,
                switches=switches,
                bundle_hash=self.certificate.bundle_hash,
                bundle_retrieval_verified=self.certificate.retrieval_verified,
                bundle_approval=self.certificate.approval,
            )
            try:
                found = await within(self.config.profile_timeout_ms, self._from_store(stage, switches))
            except SessionOwnedByAnotherError:
                raise
            except Exception as error:  # noqa: BLE001 - a store that fails in any way costs the profile, not the turn
                return surroundings.model_copy(update={"failure": span.failed(failure_of(error))})
            return surroundings.model_copy(update=found)

    async def _from_store(self, stage: OpenInput, switches: Switches) -> dict[str, object]:
        opened = await self.store.open_turn(
            stage.principal,
            stage.session_id,
            stage.decision_id,
            stage.at,
            want_inventory=self.config.gap_enabled and switches.gap,
        )
        if opened.already is not None:
            return {"already": opened.already}
        profile = ProfileBlock()
        if self.config.profile_enabled and switches.profile:
            profile = opened.profile or await self.profiles.build(stage.principal, stage.session_id, stage.at)
        return {"profile": profile, "inventory": opened.inventory}


@dataclass(frozen=True, kw_only=True)
class GenerateStages:
    """The two generations of a turn: the draft, and the same prompt with the admitted records in it."""

    model: ServingModel
    store: TurnStore
    delimiter: Callable[[], str] = field(default=lambda: secrets.token_hex(8))

    async def draft(self, stage: DraftInput) -> DraftResult:
        with stage_span(Stage.DRAFT, stage.decision_id, limit_ms=stage.limit.limit_ms) as span:
            try:
                answer = await within(left_ms(stage.limit), self._draft(stage))
                return DraftResult(text=answer.text, usage=(answer.use(Stage.DRAFT, self.model.style.version),))
            except Exception as error:  # noqa: BLE001 - every failure of a model is an outcome of the stage
                return DraftResult(failure=span.failed(failure_of(error)))

    async def regenerate(self, stage: RegenerateInput) -> RegenerateResult:
        """Once more from the same inputs plus the admitted records that are still there."""
        with stage_span(Stage.REGENERATE, stage.decision_id, limit_ms=stage.limit.limit_ms) as span:
            try:
                return await within(left_ms(stage.limit), self._regenerate(stage))
            except Exception as error:  # noqa: BLE001 - every failure of a model is an outcome of the stage
                return RegenerateResult(failure=span.failed(failure_of(error)))

    async def load_admitted(self, stage: RegenerateInput) -> AdmittedMemory:
        """For a host that generates itself: the admitted records that are still there, as a block for its prompt."""
        with stage_span(Stage.REGENERATE, stage.decision_id, limit_ms=stage.limit.limit_ms) as span:
            try:
                return await within(left_ms(stage.limit), self._load_admitted(stage))
            except Exception as error:  # noqa: BLE001 - a store that fails costs the regeneration, not the turn
                return AdmittedMemory(failure=span.failed(failure_of(error)))

    async def _load_admitted(self, stage: RegenerateInput) -> AdmittedMemory:
        records, gone = await self._still_admitted(stage)
        if not records:
            return AdmittedMemory(gone=gone)
        memory = ChatPrompt().memory(records, self.delimiter())
        return AdmittedMemory(memory=memory, applied=tuple(record.ref for record in records), gone=gone)

    async def _still_admitted(self, stage: RegenerateInput) -> tuple[list[MemoryRecord], tuple[RecordRef, ...]]:
        """Scope and lifecycle once more, now: what may still be applied, and what is gone."""
        present = await self.store.load_current(stage.principal, stage.admitted, utc_now())
        applied = surviving_admission(stage.admitted, stage.verdicts, present)
        gone = tuple(ref for ref in stage.admitted if ref.id not in present)
        return [present[ref.id] for ref in applied], gone

    async def _draft(self, stage: DraftInput) -> Generation:
        for attempt in range(1, DRAFT_ATTEMPTS + 1):
            try:
                return await self._generate(stage.text, stage.public_context, stage.profile, ())
            except Exception as error:
                if attempt == DRAFT_ATTEMPTS:
                    raise
                note(RETRIED, attempt=attempt + 1, error_type=type(error).__name__)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _regenerate(self, stage: RegenerateInput) -> RegenerateResult:
        records, gone = await self._still_admitted(stage)
        if not records:
            return RegenerateResult(gone=gone)
        answer = await self._generate(stage.text, stage.public_context, stage.profile, records)
        return RegenerateResult(
            text=answer.text,
            applied=tuple(record.ref for record in records),
            gone=gone,
            usage=(answer.use(Stage.REGENERATE, self.model.style.version),),
        )

    async def _generate(
        self, text: str, public_context: str | None, profile: ProfileBlock, admitted: Sequence[MemoryRecord]
    ) -> Generation:
        messages = self.model.style.render(text, public_context, profile, admitted, self.delimiter())
        return await self.model.generate(messages)


@dataclass(frozen=True, kw_only=True)
class PlanStage:
    policy: GapPolicy
    pool: BlockingPool

    async def __call__(self, stage: PlanInput) -> PlanResult:
        with stage_span(Stage.PLAN, limit_ms=stage.limit.limit_ms) as span:
            try:
                plan = await within(
                    left_ms(stage.limit),
                    call_policy(
                        self.policy.plan,
                        stage.text,
                        stage.public_context,
                        stage.profile,
                        stage.inventory,
                        pool=self.pool,
                    ),
                )
                return PlanResult(gaps=plan.gaps, usage=plan.usage)
            except Exception as error:  # noqa: BLE001 - fail closed on whatever a policy raises
                return PlanResult(failure=span.failed(failure_of(error)))


@dataclass(frozen=True, kw_only=True)
class RetrieveStage:
    retriever: CandidateRetriever

    async def __call__(self, stage: RetrieveInput) -> RetrieveResult:
        with stage_span(Stage.RETRIEVE, stage.decision_id, limit_ms=stage.limit.limit_ms) as span:
            request = SearchRequest(
                decision_id=stage.decision_id,
                principal=stage.principal,
                gaps=stage.gaps,
                context=stage.text,
                max_candidates=stage.max_candidates,
                at=stage.at,
            )
            try:
                found = await within(left_ms(stage.limit), self.retriever.search(request))
                return RetrieveResult(candidates=found.candidates, searches=found.searches)
            except Exception as error:  # noqa: BLE001 - a failed retrieval is a failure, not "nothing found"
                return RetrieveResult(failure=span.failed(failure_of(error)))


@dataclass(frozen=True, kw_only=True)
class AdmitStage:
    """The judge, over the candidates that are still current and this principal's when it is asked."""

    policy: AdmissionPolicy
    store: TurnStore
    pool: BlockingPool

    async def __call__(self, stage: AdmitInput) -> AdmitResult:
        with stage_span(Stage.ADMIT, limit_ms=stage.limit.limit_ms) as span:
            try:
                return await within(left_ms(stage.limit), self._judge(stage))
            except Exception as error:  # noqa: BLE001 - fail closed on whatever a policy raises
                return AdmitResult(failure=span.failed(failure_of(error)))

    async def _judge(self, stage: AdmitInput) -> AdmitResult:
        refs = [candidate.ref for candidate in stage.candidates]
        present = await self.store.load_current(stage.principal, refs, utc_now())
        shown = tuple(ref for ref in refs if ref.id in present)
        if not shown:
            return AdmitResult()
        decision = await call_policy(
            self.policy.admit,
            stage.text,
            stage.public_context,
            stage.profile,
            stage.draft,
            [present[ref.id] for ref in shown],
            pool=self.pool,
        )
        return AdmitResult(judged=shown, admitted=decision.admitted, verdicts=decision.verdicts, usage=decision.usage)


@dataclass(frozen=True, kw_only=True)
class TurnStageBodies:
    """All stages of a turn, assembled: what `retold.composition` builds and every driver runs."""

    open: OpenStage
    generate: GenerateStages
    plan: PlanStage
    retrieve: RetrieveStage
    admit: AdmitStage
