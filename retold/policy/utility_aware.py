"""The turn, written once: specification section 3 from user text to answer, over any driver.

`run_turn` is the whole algorithm. It knows stages, a clock and rules; it knows neither Temporal nor asyncio's
timers. `workflows/turn.py` drives it with activities, `UtilityAwareOrchestrator` (retold.policy.orchestrator)
with plain awaits, and `retold.policy.replay` with the stored outcomes of a turn that already happened. The same
outcomes at the same times lead to the same decision in all of them.

The clock is read once after each stage and never between, so the times in the decision are exactly the times
the rules saw.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from retold.contracts.config import AdmissionMode, UtilityAwareConfig
from retold.contracts.decision import StageOutcomes, StageTiming, TurnDecision, TurnRecord
from retold.contracts.disposition import Disposition as D
from retold.contracts.disposition import Outcome, outcome
from retold.contracts.disposition import Reason as R
from retold.contracts.identity import decision_id, request_digest, turn_ref, turn_workflow_id
from retold.contracts.record import RecordRef, RetrievalCategory
from retold.contracts.stages import (
    EMPTY_PROFILE,
    AdmitInput,
    AdmitResult,
    CandidateVerdict,
    DraftInput,
    DraftResult,
    FailureKind,
    Gap,
    Limit,
    ModelUse,
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
    StageFailure,
)
from retold.contracts.turn import BUDGET_DEFAULT, Durability, TurnRequest, TurnResult
from retold.policy.bundles import bundle_components as bundle_components
from retold.policy.ports import TurnConflictError
from retold.policy.rules import MalformedError, check_admission, clean_gaps

AUTO_TURN_DURABILITY_MAX_BUDGET_MS = 2_000


class DraftFailedError(Exception):
    """The host's draft could not be generated: there is nothing to answer with. Recorded as `failed`."""

    def __init__(self, failure: StageFailure, decision_id: str) -> None:
        super().__init__(f"the draft failed ({failure.kind.value}: {failure.error}); see decision {decision_id}")
        self.failure = failure
        self.decision_id = decision_id


T_co = TypeVar("T_co", covariant=True)
TimedResult = TypeVar("TimedResult", OpenResult, RetrieveResult, AdmitResult, RegenerateResult)


class Running(Awaitable[T_co], Protocol[T_co]):
    """A stage that was started and is awaited later."""

    def done(self) -> bool: ...

    @property
    def finished_ms(self) -> float | None:
        """When it ended, on the driver's clock."""

    def abandon(self) -> None:
        """Stop waiting for it, for good. Its late result or error goes nowhere."""


class TurnStages(Protocol):
    """How one driver does what the algorithm orders. A stage's failure is a value; only cancellation raises."""

    def elapsed_ms(self) -> float:
        """Milliseconds since the turn started."""

    def utc_now(self) -> datetime: ...

    async def open(self, stage: OpenInput) -> OpenResult: ...

    def choose(self, durability: Durability) -> None:
        """Which of the two durabilities the stages after `open` are started with."""

    def start_draft(self, stage: DraftInput) -> Running[DraftResult]: ...

    def start_plan(self, stage: PlanInput) -> Running[PlanResult]: ...

    async def before_deadline(self, plan: Running[PlanResult], limit: Limit) -> bool:
        """Wait for the plan, but not past the limit. Whether the plan is done; it is not abandoned here."""

    async def retrieve(self, stage: RetrieveInput) -> RetrieveResult: ...

    async def admit(self, stage: AdmitInput) -> AdmitResult: ...

    async def regenerate(self, stage: RegenerateInput) -> RegenerateResult: ...

    async def record(self, record: TurnRecord, limit_ms: float) -> bool:
        """Write the record within the limit, or see to it that it is written later. Whether it is written now."""


@dataclass(frozen=True, kw_only=True)
class TurnStart:
    """What a driver knows of a turn beside the request."""

    started_at: datetime
    late_by_ms: float = 0.0
    redelivered: bool = False
    """The turn is being repeated because the worker that had it died."""
    trace_id: str | None = None


RECORD_LIMIT_MS = 250.0
RECORD_FLOOR_MS = 25.0
"""An insert takes a few milliseconds, starting a workflow to do it later takes more: even with nothing left of
the budget the record gets this long before it is handed over."""


async def run_turn(request: TurnRequest, start: TurnStart, stages: TurnStages) -> TurnResult:
    """Decide one turn and answer it (specification section 3). One decision row is recorded whatever happens.

    Raises:
        DraftFailedError: there is no draft, hence no answer.
        TurnConflictError: this turn was already answered for another text.
        asyncio.CancelledError: the host gave up; recorded as `cancelled`.
    """
    turn = _Turn(request, start, stages)
    try:
        if (earlier := await turn.open()) is not None:
            return earlier
        await turn.draft_and_plan()
        if turn.draft is not None:
            await turn.improve()
    except asyncio.CancelledError:
        turn.cancelled()
        await stages.record(turn.as_record(), RECORD_LIMIT_MS)
        raise
    record = turn.as_record()
    recorded = await stages.record(record, turn.record_limit_ms())
    if turn.draft is None:
        assert turn.outcomes.draft_failure is not None
        raise DraftFailedError(turn.outcomes.draft_failure, turn.decision_id)
    return turn.as_result(record.decision, recorded)


@dataclass
class _Turn:
    """The state of one turn while it runs; every step ends by settling an outcome or leaving it to the next."""

    request: TurnRequest
    start: TurnStart
    stages: TurnStages
    opened: OpenResult = field(init=False)
    draft: str | None = None
    final: str | None = None
    outcome: Outcome | None = None
    deadline_ms: float | None = None
    drafted_ms: float | None = None
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
    _plan: Running[PlanResult] | None = None

    def __post_init__(self) -> None:
        self.workflow_id = turn_workflow_id(self.request.principal, self.request.session_id, self.request.turn_id)
        self.decision_id = decision_id(self.workflow_id)
        self.digest = request_digest(self.request)
        self.opened = _nothing_opened()

    # --- the steps of the turn, in order ------------------------------------------------------------------

    async def open(self) -> TurnResult | None:
        """Configuration, switches, profile and inventory; the earlier answer if this turn already has one."""
        request = self.request
        self.opened = await self._timed(
            Stage.OPEN,
            self.stages.open(
                OpenInput(
                    principal=request.principal,
                    session_id=request.session_id,
                    turn_id=request.turn_id,
                    decision_id=self.decision_id,
                    request_digest=self.digest,
                    at=self.start.started_at,
                )
            ),
        )
        if (already := self.opened.already) is not None:
            if already.request_digest != self.digest:
                raise TurnConflictError(f"turn {request.turn_id!r} was already answered for another request")
            return TurnResult.model_validate(already.result)
        self._noted(open_failure=self.opened.failure)
        self.durability = self._chosen_durability()
        self.stages.choose(self.durability)
        return None

    async def draft_and_plan(self) -> None:
        """Draft and plan together; the plan's budget starts when the draft is there (section 3.3)."""
        request, config = self.request, self.opened.config
        started_ms = self.now_ms
        draft = self.stages.start_draft(
            DraftInput(
                decision_id=self.decision_id,
                text=request.text,
                public_context=request.public_context,
                profile=self.profile,
                limit=Limit(limit_ms=config.draft_timeout_ms),
            )
        )
        self.outcome = self._path_off()
        if self.outcome is None:
            self._plan = self.stages.start_plan(
                PlanInput(
                    text=request.text,
                    public_context=request.public_context,
                    profile=self.profile,
                    # Unknown is not empty: a planner that was told nothing is stored would be silent.
                    inventory=tuple(RetrievalCategory) if self.inventory is None else self.inventory,
                    max_gaps=config.max_gaps,
                    limit=Limit(limit_ms=config.gap_timeout_ms),
                )
            )
        result: DraftResult = await draft
        self.drafted_ms = self._ended(Stage.DRAFT, started_ms, result.failure)
        self.usage += result.usage
        self.draft = result.text
        if self.draft is None:
            failure = result.failure or StageFailure(kind=FailureKind.MALFORMED, error="empty_draft")
            self._noted(draft_failure=failure)
            self.outcome = outcome(D.FAILED, R(f"draft_{failure.kind.value}"))
            self._drop_plan()
            return
        if (budget := self.effective_budget_ms) is not None:
            self.deadline_ms = self.drafted_ms + budget
        if self._plan is not None:
            await self._await_plan(self._plan, started_ms)

    async def improve(self) -> None:
        """Retrieve, admit, regenerate: each step goes on only while nothing has settled the outcome."""
        for step in (self._retrieve, self._admit, self._regenerate):
            if self.outcome is not None:
                return
            await step()

    async def _await_plan(self, plan: Running[PlanResult], started_ms: float) -> None:
        outlasts_draft = not plan.done()
        if (
            outlasts_draft
            and self.deadline_ms is not None
            and not await self.stages.before_deadline(plan, self._limit(self.deadline_ms - self.now_ms))
        ):
            self._noted(plan_cut_off=True)
            self._ended(Stage.PLAN, started_ms, None)
            self._drop_plan()
            self.outcome = outcome(D.BASELINE_BUDGET_EXHAUSTED, R.PLANNER_CUT_OFF)
            return
        result: PlanResult = await plan
        self._plan = None
        if outlasts_draft:
            self._ended(Stage.PLAN, started_ms, result.failure)
        else:
            finished_ms = self.now_ms if plan.finished_ms is None else plan.finished_ms
            self.timings.append(
                StageTiming(stage=Stage.PLAN, started_ms=started_ms, ended_ms=finished_ms, failure=result.failure)
            )
        self._noted(plan=result)
        self.usage += result.usage
        if result.failure is not None:
            self.outcome = _policy_failure("planner", result.failure)
            return
        try:
            self.gaps, self.gaps_dropped = clean_gaps(result.gaps, max_gaps=self.opened.config.max_gaps)
        except MalformedError:
            self.gaps_dropped = len(result.gaps)
            self.outcome = outcome(D.BASELINE_POLICY_FAILURE, R.PLANNER_MALFORMED)
            return
        if not self.gaps:
            self.outcome = outcome(D.BASELINE_NO_GAPS, R.PLANNER_SILENT)

    async def _retrieve(self) -> None:
        config = self.opened.config
        if self._out_of_time():
            self.outcome = outcome(D.BASELINE_BUDGET_EXHAUSTED, R.BEFORE_RETRIEVAL)
            return
        cut_off = self._budget_is_tighter(config.retrieval_timeout_ms)
        result = await self._timed(
            Stage.RETRIEVE,
            self.stages.retrieve(
                RetrieveInput(
                    decision_id=self.decision_id,
                    principal=self.request.principal,
                    gaps=self.gaps,
                    text=self.request.text,
                    max_candidates=config.max_candidates,
                    at=self.start.started_at,
                    limit=self._limit(config.retrieval_timeout_ms),
                )
            ),
        )
        self._noted(retrieve=result)
        if result.failure is not None:
            self.outcome = _cut_off_or_failed("retrieval", R.RETRIEVAL_CUT_OFF, result.failure, cut_off)
            return
        self.candidates = tuple(candidate.ref for candidate in result.candidates)[: config.max_candidates]
        if not self.candidates:
            self.outcome = outcome(D.BASELINE_NO_CANDIDATES, R.NOTHING_FOUND)

    async def _admit(self) -> None:
        config, found = self.opened.config, self.outcomes.retrieve
        assert self.draft is not None and found is not None
        if config.admission_mode is AdmissionMode.DISABLED or not self.opened.switches.admission:
            switched = config.admission_mode is not AdmissionMode.DISABLED
            self.outcome = outcome(
                D.BASELINE_EMPTY_ADMISSION, R.STAGE_SWITCHED_OFF if switched else R.ADMISSION_DISABLED
            )
            return
        if self._out_of_time():
            self.outcome = outcome(D.BASELINE_BUDGET_EXHAUSTED, R.BEFORE_ADMISSION)
            return
        cut_off = self._budget_is_tighter(config.admission_timeout_ms)
        result = await self._timed(
            Stage.ADMIT,
            self.stages.admit(
                AdmitInput(
                    principal=self.request.principal,
                    text=self.request.text,
                    public_context=self.request.public_context,
                    profile=self.profile,
                    draft=self.draft,
                    gaps=self.gaps,
                    candidates=found.candidates[: config.max_candidates],
                    limit=self._limit(config.admission_timeout_ms),
                )
            ),
        )
        self._noted(admit=result)
        self.usage += result.usage
        if result.failure is not None:
            self.outcome = _cut_off_or_failed("judge", R.JUDGE_CUT_OFF, result.failure, cut_off)
            return
        if not result.judged:
            self.gone = self.candidates
            self.outcome = outcome(D.BASELINE_NO_CANDIDATES, R.CANDIDATES_GONE)
            return
        try:
            self.admitted, self.verdicts = check_admission(result.judged, result.admitted, result.verdicts)
        except MalformedError as error:
            self.timings[-1] = self.timings[-1].model_copy(
                update={"failure": StageFailure(kind=FailureKind.MALFORMED, error=str(error))}
            )
            self.outcome = outcome(D.BASELINE_POLICY_FAILURE, R.JUDGE_MALFORMED)
            return
        if not self.admitted:
            self.outcome = outcome(D.BASELINE_EMPTY_ADMISSION, R.JUDGE_REJECTED_ALL)

    async def _regenerate(self) -> None:
        config = self.opened.config
        left = self._left_ms()
        if left is not None and (left <= 0 or left < self.draft_latency_ms):
            # The draft's own latency is the best estimate of a second generation. Shadow takes the same test.
            self.outcome = outcome(D.ADMITTED_NOT_APPLIED, R.BUDGET_EXHAUSTED)
            return
        if self.shadow:
            self.outcome = outcome(D.SHADOW_WOULD_REGENERATE, R.ADMITTED)
            return
        cut_off = self._budget_is_tighter(config.regeneration_timeout_ms)
        result = await self._timed(
            Stage.REGENERATE,
            self.stages.regenerate(
                RegenerateInput(
                    decision_id=self.decision_id,
                    principal=self.request.principal,
                    text=self.request.text,
                    public_context=self.request.public_context,
                    profile=self.profile,
                    admitted=self.admitted,
                    verdicts=self.verdicts,
                    limit=self._limit(config.regeneration_timeout_ms),
                )
            ),
        )
        self._noted(regenerate=result.model_copy(update={"text": None}))
        self.usage += result.usage
        self.gone = result.gone
        if result.failure is not None:
            if result.failure.kind is FailureKind.TIMEOUT and cut_off:
                self.outcome = outcome(D.ADMITTED_NOT_APPLIED, R.REGENERATION_CUT_OFF)
            else:
                self.outcome = _policy_failure("regeneration", result.failure)
        elif not result.applied:
            self.outcome = outcome(D.BASELINE_EMPTY_ADMISSION, R.ADMITTED_RECORD_GONE)
        else:
            self.final, self.applied = result.text, result.applied
            self.outcome = outcome(D.REGENERATED, R.ADMITTED)

    def cancelled(self) -> None:
        self._drop_plan()
        self._noted(cancelled=True)
        self.final, self.applied = None, ()
        self.outcome = outcome(D.CANCELLED, R.BY_HOST)

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
        if self._plan is not None:
            self._plan.abandon()
            self._plan = None

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
            outcomes=self.outcomes,
        )
        return TurnRecord(
            decision=decision, searches=searches, user_text=request.text, draft=self.draft, final=self.final
        )

    def as_result(self, decision: TurnDecision, recorded: bool) -> TurnResult:
        assert self.draft is not None, "only a turn with a draft has a result"
        return TurnResult(
            decision_id=self.decision_id,
            request_digest=self.digest,
            answer=self.final if self.final is not None else self.draft,
            disposition=decision.disposition,
            reason=decision.reason,
            delivered=self.applied,
            shadow=self.shadow,
            redelivered=self.start.redelivered,
            durability=self.durability,
            effective_budget_ms=self.effective_budget_ms,
            timings_ms=decision.timings_ms(),
            recorded=recorded,
        )


def render_decision(decision: TurnDecision) -> str:
    """One line of JSON with sorted keys, for logs and tests: admitted ids, counts, and what became of the turn."""
    return json.dumps(
        {
            "admitted": [ref.id for ref in decision.admitted],
            "candidates": len(decision.candidates),
            "disposition": decision.disposition.value,
            "gaps": len(decision.gaps),
            "reason": decision.reason.value,
        },
        sort_keys=True,
    )


def _nothing_opened() -> OpenResult:
    """What a turn knows that is cancelled before its surroundings were read."""
    return OpenResult(config=UtilityAwareConfig())


def _policy_failure(who: str, failure: StageFailure) -> Outcome:
    return outcome(D.BASELINE_POLICY_FAILURE, R(f"{who}_{failure.kind.value}"))


def _cut_off_or_failed(who: str, cut_off_reason: R, failure: StageFailure, cut_off: bool) -> Outcome:
    """A stage that ran into the budget is not a stage that failed."""
    if failure.kind is FailureKind.TIMEOUT and cut_off:
        return outcome(D.BASELINE_BUDGET_EXHAUSTED, cut_off_reason)
    return _policy_failure(who, failure)
