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
import contextlib
import json
from collections.abc import Awaitable

from retold.contracts.config import AdmissionMode
from retold.contracts.decision import StageTiming, TurnDecision
from retold.contracts.disposition import Disposition as D
from retold.contracts.disposition import Outcome, outcome
from retold.contracts.disposition import Reason as R
from retold.contracts.record import RetrievalCategory
from retold.contracts.recording import RecordResult
from retold.contracts.stages import (
    AdmitInput,
    DraftInput,
    DraftResult,
    FailureKind,
    Limit,
    OpenInput,
    PlanInput,
    PlanResult,
    RegenerateInput,
    RetrieveInput,
    Stage,
    StageFailure,
    StoredAnswer,
)
from retold.contracts.turn import TurnRequest, TurnResult
from retold.policy.bundles import bundle_components as bundle_components
from retold.policy.driver import DraftFailedError, Running, TurnStages, TurnStart
from retold.policy.ports import TurnConflictError
from retold.policy.rules import MalformedError, check_admission, clean_gaps
from retold.policy.turn_books import RECORD_LIMIT_MS, TurnBooks


async def run_turn(request: TurnRequest, start: TurnStart, stages: TurnStages) -> TurnResult:
    """Decide one turn and answer it (specification section 3). One decision row is recorded whatever happens.

    Raises:
        DraftFailedError: there is no draft, hence no answer.
        TurnConflictError: this turn was already answered for another text.
        asyncio.CancelledError: the host gave up before the turn was decided; recorded as `cancelled`.
    """
    turn = _Turn(request, start, stages)
    try:
        if start.given_up:
            raise asyncio.CancelledError
        if (earlier := await turn.open()) is not None:
            return earlier
        await turn.draft_and_plan()
        if turn.draft is not None:
            await turn.improve()
    except asyncio.CancelledError:
        turn.cancelled()
        recorded = await _come_what_may(stages.record(turn.as_record(), RECORD_LIMIT_MS))
        if recorded.earlier is None:
            raise
        # Another attempt had decided this turn before its host gave up.
        return turn.answered_before(recorded.earlier)
    record = turn.as_record()
    recorded = await _come_what_may(stages.record(record, turn.record_limit_ms()))
    if turn.draft is None:
        assert turn.outcomes.draft_failure is not None
        raise DraftFailedError(turn.outcomes.draft_failure, turn.decision_id)
    if recorded.earlier is not None:
        return turn.answered_before(recorded.earlier)
    return turn.as_result(record.decision, recorded.written)


async def _come_what_may(recording: Awaitable[RecordResult]) -> RecordResult:
    """A host that gives up while its turn is recorded comes too late: the turn is decided, and the answer is its."""
    task = asyncio.ensure_future(recording)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    return task.result()


class _Turn(TurnBooks):
    """The steps of a turn; every step ends by settling an outcome or leaving it to the next."""

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
            return self.answered_before(already)
        self._noted(open_failure=self.opened.failure)
        self.durability = self._chosen_durability()
        self.stages.choose(self.durability, self.effective_budget_ms)
        return None

    def answered_before(self, stored: StoredAnswer) -> TurnResult:
        """What another attempt at this turn answered. The log and the host never know different answers."""
        if stored.request_digest != self.digest:
            raise TurnConflictError(f"turn {self.request.turn_id!r} was already answered for another request")
        return TurnResult.model_validate(stored.result)

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
            self.plan = self.stages.start_plan(
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
        drafted_ms = self._ended(Stage.DRAFT, started_ms, result.failure)
        self.usage += result.usage
        self.draft = result.text
        if self.draft is None:
            failure = result.failure or StageFailure(kind=FailureKind.MALFORMED, error="empty_draft")
            self._noted(draft_failure=failure)
            self.outcome = outcome(D.FAILED, R(f"draft_{failure.kind.value}"))
            self._drop_plan()
            return
        if (budget := self.effective_budget_ms) is not None:
            self.deadline_ms = drafted_ms + budget
        if self.plan is not None:
            await self._await_plan(self.plan, started_ms)

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
        self.plan = None
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
        if result.overloaded:
            self.outcome = outcome(D.BASELINE_BUDGET_EXHAUSTED, R.OVERLOADED)
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


def _policy_failure(who: str, failure: StageFailure) -> Outcome:
    return outcome(D.BASELINE_POLICY_FAILURE, R(f"{who}_{failure.kind.value}"))


def _cut_off_or_failed(who: str, cut_off_reason: R, failure: StageFailure, cut_off: bool) -> Outcome:
    """A stage that ran into the budget is not a stage that failed."""
    if failure.kind is FailureKind.TIMEOUT and cut_off:
        return outcome(D.BASELINE_BUDGET_EXHAUSTED, cut_off_reason)
    return _policy_failure(who, failure)
