"""The one record a turn leaves behind (specification section 6), whole enough to replay the decision from it."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from retold.contracts._base import AnswerText, Contract, Milliseconds, Name, TurnText, UtcTime
from retold.contracts.bundle import ApprovalKind
from retold.contracts.config import Switches, UtilityAwareConfig
from retold.contracts.disposition import Disposition, Reason, outcome
from retold.contracts.record import RecordRef, RetrievalCategory
from retold.contracts.stages import (
    AdmitResult,
    CandidateVerdict,
    Gap,
    ModelUse,
    PlanResult,
    RegenerateResult,
    RetrieveResult,
    SearchEntry,
    Stage,
    StageFailure,
)  # fmt: skip
from retold.contracts.turn import BudgetMs, Durability, Principal, RequestedBudget, TurnResult


class StageTiming(Contract):
    """When a stage started and ended, in milliseconds since the turn started (the driver's clock)."""

    stage: Stage
    started_ms: Milliseconds
    ended_ms: Milliseconds
    failure: StageFailure | None = None

    @property
    def elapsed_ms(self) -> float:
        return self.ended_ms - self.started_ms


class StageOutcomes(Contract):
    """What the stages said, without any text of turn, profile, draft or answer: the input of a replay.

    A stage that was never started has no result here.
    """

    open_failure: StageFailure | None = None
    draft_failure: StageFailure | None = None
    plan: PlanResult | None = None
    plan_cut_off: bool = False
    retrieve: RetrieveResult | None = None
    admit: AdmitResult | None = None
    regenerate: RegenerateResult | None = None
    """Without its text: a result that neither failed nor lost its records had one."""
    cancelled: bool = False


class TurnDecision(Contract):
    """One row of the turn-decision log. It refers to texts (session turns, records) and never repeats them."""

    schema_version: Literal[1] = 1
    decision_id: str
    workflow_id: str
    principal: Principal
    session_id: Name
    turn_id: Name
    request_digest: str
    at: UtcTime
    disposition: Disposition
    reason: Reason
    shadow: bool
    durability: Durability
    redelivered: bool = False
    late_by_ms: Milliseconds = 0.0
    """How long after the host's start the first workflow task ran."""
    requested_budget_ms: RequestedBudget
    effective_budget_ms: BudgetMs
    draft_latency_ms: Milliseconds | None = None
    """Observed latency of this turn's draft: the estimate a regeneration is tested against."""
    timings: tuple[StageTiming, ...] = ()
    profile_records: tuple[RecordRef, ...] = ()
    inventory: tuple[RetrievalCategory, ...] | None = None
    """None: unknown, the store did not answer in time."""
    gaps: tuple[Gap, ...] = ()
    gaps_dropped: Annotated[int, Field(ge=0)] = 0
    """Gaps of an unknown category, blank, repeated or over the cap."""
    search_ids: tuple[str, ...] = ()
    candidates: tuple[RecordRef, ...] = ()
    verdicts: tuple[CandidateVerdict, ...] = ()
    admitted: tuple[RecordRef, ...] = ()
    applied: tuple[RecordRef, ...] = ()
    gone: tuple[RecordRef, ...] = ()
    usage: tuple[ModelUse, ...] = ()
    failures: tuple[str, ...] = ()
    """`stage:kind:error`, the profile's among them; noted beside the reason, never instead of it."""
    bundle_hash: str = ""
    bundle_retrieval_verified: bool = False
    """Whether the hash covers retrieval as it ran; False: at most the host's word for it."""
    bundle_approval: ApprovalKind | None = None
    """What the bundle served by; None: it did not serve, so it needed nothing."""
    config: UtilityAwareConfig
    switches: Switches
    user_turn_ref: str
    draft_turn_ref: str | None = None
    final_turn_ref: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    """Of the turn's span in that trace, so that what the turn led to can be linked back to it."""
    outcomes: StageOutcomes

    @model_validator(mode="after")
    def _in_the_table(self) -> Self:
        outcome(self.disposition, self.reason)
        return self

    def as_result(self, answer: str, *, recorded: bool = True) -> TurnResult:
        """What the host gets: this decision, and the text it decided for."""
        return TurnResult(
            decision_id=self.decision_id,
            request_digest=self.request_digest,
            answer=answer,
            disposition=self.disposition,
            reason=self.reason,
            delivered=self.applied,
            shadow=self.shadow,
            redelivered=self.redelivered,
            durability=self.durability,
            effective_budget_ms=self.effective_budget_ms,
            timings_ms=self.timings_ms(),
            recorded=recorded,
        )

    def timings_ms(self) -> dict[str, float]:
        """Elapsed milliseconds per stage; the plan's also as the part that outlasted the draft."""
        elapsed = {timing.stage.value: round(timing.elapsed_ms, 3) for timing in self.timings}
        ended = {timing.stage: timing.ended_ms for timing in self.timings}
        if Stage.PLAN in ended and Stage.DRAFT in ended:
            elapsed["plan_overhang"] = round(max(0.0, ended[Stage.PLAN] - ended[Stage.DRAFT]), 3)
        return elapsed


class TurnRecord(Contract):
    """All that one turn writes, in one SQL transaction: the decision, its searches and the session's turns."""

    decision: TurnDecision
    searches: tuple[SearchEntry, ...] = ()
    user_text: TurnText
    draft: AnswerText | None = None
    final: AnswerText | None = None
    """Set only when the draft was replaced."""
