"""The state of one turn while it is decided, and the record made of it.

`TurnBooks` holds what the rules look at (configuration, budget, what is left of it) and what is kept of every
stage. The steps that fill it are in `retold.policy.utility_aware`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from retold.contracts.config import UtilityAwareConfig
from retold.contracts.decision import StageOutcomes, StageTiming, TurnDecision, TurnRecord
from retold.contracts.disposition import Disposition as D
from retold.contracts.disposition import Outcome, outcome
from retold.contracts.disposition import Reason as R
from retold.contracts.identity import decision_id, request_digest, turn_ref, turn_workflow_id
from retold.contracts.record import RecordRef, RetrievalCategory
from retold.contracts.stages import (
    EMPTY_PROFILE,
    AdmitResult,
    CandidateVerdict,
    Gap,
    Limit,
    ModelUse,
    OpenResult,
    PlanResult,
    ProfileBlock,
    RegenerateResult,
    RetrieveResult,
    Stage,
    StageFailure,
)
from retold.contracts.turn import BUDGET_DEFAULT, Durability, TurnRequest, TurnResult
from retold.policy.bundles import bundle_components as bundle_components
from retold.policy.driver import Running, TurnStages, TurnStart

AUTO_TURN_DURABILITY_MAX_BUDGET_MS = 2_000

RECORD_LIMIT_MS = 250.0
RECORD_FLOOR_MS = 25.0
"""An insert takes a few milliseconds, starting a workflow to do it later takes more: even with nothing left of
the budget the record gets this long before it is handed over."""


TimedResult = TypeVar("TimedResult", OpenResult, RetrieveResult, AdmitResult, RegenerateResult)


@dataclass
class TurnBooks:
    """The state of one turn while it runs."""

    request: TurnRequest
    start: TurnStart
    stages: TurnStages
    opened: OpenResult = field(init=False)
    draft: str | None = None
    final: str | None = None
    outcome: Outcome | None = None
    deadline_ms: float | None = None
    now_ms: float = 0.0
    timings: list[StageTiming] = field(default_factory=list)
    outcomes: StageOutcomes = field(default_factory=StageOutcomes)
    gaps: tuple[Gap, ...] = ()
    gaps_dropped: int = 0
    candidates: tuple[RecordRef, ...] = ()
    admitted: tuple[RecordRef, ...] = ()
    verdicts: tuple[CandidateVerdict, ...] = ()
    applied: tuple[RecordRef, ...] = ()
    gone: tuple[RecordRef, ...] = ()
    usage: list[ModelUse] = field(default_factory=list)
    durability: Durability = Durability.TURN
    plan: Running[PlanResult] | None = None

    def __post_init__(self) -> None:
        self.workflow_id = turn_workflow_id(self.request.principal, self.request.session_id, self.request.turn_id)
        self.decision_id = decision_id(self.workflow_id)
        self.digest = request_digest(self.request)
        self.opened = _nothing_opened()

    # --- what the rules look at ----------------------------------------------------------------------------

    @property
    def profile(self) -> ProfileBlock:
        on = self.opened.config.profile_enabled and self.opened.switches.profile
        return self.opened.profile if on else EMPTY_PROFILE

    @property
    def inventory(self) -> tuple[RetrievalCategory, ...] | None:
        return self.opened.inventory

    @property
    def shadow(self) -> bool:
        return self.opened.config.shadow or not self.opened.switches.regeneration

    @property
    def effective_budget_ms(self) -> int | None:
        requested = self.request.options.latency_budget_ms
        return self.opened.config.latency_budget_ms if requested == BUDGET_DEFAULT else requested

    @property
    def draft_latency_ms(self) -> float:
        draft = next(timing for timing in self.timings if timing.stage is Stage.DRAFT)
        return draft.elapsed_ms

    def record_limit_ms(self) -> float:
        left = self._left_ms()
        return RECORD_LIMIT_MS if left is None else min(RECORD_LIMIT_MS, max(RECORD_FLOOR_MS, left))

    def _chosen_durability(self) -> Durability:
        asked, budget = self.request.options.durability, self.effective_budget_ms
        if asked is not Durability.AUTO:
            return asked
        if self.request.options.host_generation is not None:
            return Durability.STAGE
        tight = budget is not None and budget <= AUTO_TURN_DURABILITY_MAX_BUDGET_MS
        return Durability.TURN if tight else Durability.STAGE

    def _path_off(self) -> Outcome | None:
        """Why no planner is asked, if so."""
        budget = self.effective_budget_ms
        if not self.opened.config.gap_enabled:
            return outcome(D.BASELINE_NO_GAPS, R.PATH_DISABLED)
        if not self.opened.switches.gap:
            return outcome(D.BASELINE_NO_GAPS, R.STAGE_SWITCHED_OFF)
        if budget == 0:
            return outcome(D.BASELINE_BUDGET_EXHAUSTED, R.BUDGET_ZERO)
        if self.start.redelivered and budget is not None and self.start.late_by_ms > budget:
            return outcome(D.BASELINE_BUDGET_EXHAUSTED, R.REDELIVERED_LATE)
        shed_after = self.opened.config.shed_after_ms
        if not self.start.redelivered and shed_after is not None and self.start.late_by_ms > shed_after:
            return outcome(D.BASELINE_BUDGET_EXHAUSTED, R.OVERLOADED)
        if self.inventory == ():
            return outcome(D.BASELINE_NO_CANDIDATES, R.INVENTORY_EMPTY)
        return None

    def _left_ms(self) -> float | None:
        return None if self.deadline_ms is None else self.deadline_ms - self.now_ms

    def _out_of_time(self) -> bool:
        left = self._left_ms()
        return left is not None and left <= 0

    def _budget_is_tighter(self, timeout_ms: float) -> bool:
        left = self._left_ms()
        return left is not None and left < timeout_ms

    def _limit(self, timeout_ms: float) -> Limit:
        left = self._left_ms()
        if left is None:
            return Limit(limit_ms=timeout_ms)
        left = max(0.0, left)
        return Limit(limit_ms=min(timeout_ms, left), deadline_at=self.stages.utc_now() + timedelta(milliseconds=left))

    # --- keeping the books ---------------------------------------------------------------------------------

    def _read_clock(self) -> float:
        self.now_ms = self.stages.elapsed_ms()
        return self.now_ms

    def _ended(self, stage: Stage, started_ms: float, failure: StageFailure | None) -> float:
        ended_ms = self._read_clock()
        self.timings.append(StageTiming(stage=stage, started_ms=started_ms, ended_ms=ended_ms, failure=failure))
        return ended_ms

    async def _timed(self, stage: Stage, running: Awaitable[TimedResult]) -> TimedResult:
        started_ms = self.now_ms
        result = await running
        self._ended(stage, started_ms, result.failure)
        return result

    def _noted(self, **what: object) -> None:
        self.outcomes = self.outcomes.model_copy(update=what)

    def _drop_plan(self) -> None:
        if self.plan is not None:
            self.plan.abandon()
            self.plan = None

    def as_record(self) -> TurnRecord:
        assert self.outcome is not None, "a turn always ends with an outcome"
        request, found = self.request, self.outcomes.retrieve
        refs = {
            role: turn_ref(request.principal, request.session_id, request.turn_id, role)
            for role in ("user", "draft", "final")
        }
        searches = found.searches if found is not None else ()
        decision = TurnDecision(
            decision_id=self.decision_id,
            workflow_id=self.workflow_id,
            principal=request.principal,
            session_id=request.session_id,
            turn_id=request.turn_id,
            request_digest=self.digest,
            at=self.start.started_at,
            disposition=self.outcome.disposition,
            reason=self.outcome.reason,
            shadow=self.shadow,
            durability=self.durability,
            redelivered=self.start.redelivered,
            late_by_ms=self.start.late_by_ms,
            requested_budget_ms=request.options.latency_budget_ms,
            effective_budget_ms=self.effective_budget_ms,
            draft_latency_ms=self.draft_latency_ms if self.draft is not None else None,
            timings=tuple(self.timings),
            profile_records=self.profile.records,
            inventory=self.inventory,
            gaps=self.gaps,
            gaps_dropped=self.gaps_dropped,
            search_ids=tuple(search.search_id for search in searches),
            candidates=self.candidates,
            verdicts=self.verdicts,
            admitted=self.admitted,
            applied=self.applied,
            gone=self.gone,
            usage=tuple(self.usage),
            failures=tuple(
                f"{timing.stage.value}:{timing.failure.kind.value}:{timing.failure.error}"
                for timing in self.timings
                if timing.failure is not None
            ),
            bundle_hash=self.opened.bundle_hash,
            bundle_retrieval_verified=self.opened.bundle_retrieval_verified,
            bundle_approval=self.opened.bundle_approval,
            config=self.opened.config,
            switches=self.opened.switches,
            user_turn_ref=refs["user"],
            draft_turn_ref=refs["draft"] if self.draft is not None else None,
            final_turn_ref=refs["final"] if self.final is not None else None,
            trace_id=self.start.trace_id,
            span_id=self.start.span_id,
            outcomes=self.outcomes,
        )
        return TurnRecord(
            decision=decision, searches=searches, user_text=request.text, draft=self.draft, final=self.final
        )

    def as_result(self, decision: TurnDecision, recorded: bool) -> TurnResult:
        assert self.draft is not None, "only a turn with a draft has a result"
        return decision.as_result(self.draft if self.final is None else self.final, recorded=recorded)


def _nothing_opened() -> OpenResult:
    """What a turn knows that is cancelled before its surroundings were read."""
    return OpenResult(config=UtilityAwareConfig())
