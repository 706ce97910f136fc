"""What a driver of the turn provides: stages that can be started, a clock, a deadline, and somebody who records.

Three drivers implement `TurnStages`: the Temporal workflow, the in-process orchestrator and the replay.
"""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import datetime
from typing import Protocol, TypeVar

from retold.contracts import names
from retold.contracts.answering import TurnFailure
from retold.contracts.answering import TurnStart as TurnStart
from retold.contracts.decision import TurnRecord
from retold.contracts.recording import RecordResult
from retold.contracts.stages import (
    AdmitInput,
    AdmitResult,
    DraftInput,
    DraftResult,
    Limit,
    OpenInput,
    OpenResult,
    PlanInput,
    PlanResult,
    RegenerateInput,
    RegenerateResult,
    RetrieveInput,
    RetrieveResult,
    StageFailure,
)
from retold.contracts.turn import Durability
from retold.policy.bundles import bundle_components as bundle_components
from retold.policy.ports import SessionOwnedByAnotherError, TurnConflictError


class DraftFailedError(Exception):
    """The host's draft could not be generated: there is nothing to answer with. Recorded as `failed`."""

    def __init__(self, failure: StageFailure, decision_id: str) -> None:
        super().__init__(f"the draft failed ({failure.kind.value}: {failure.error}); see decision {decision_id}")
        self.failure = failure
        self.decision_id = decision_id


def turn_failure(error: Exception) -> TurnFailure:
    """What the host hears of a turn that raised. A mistake of ours is named by its type: its message may hold text."""
    match error:
        case SessionOwnedByAnotherError():
            return TurnFailure(type=names.SESSION_OWNED_BY_ANOTHER, message=str(error), by_host=True)
        case TurnConflictError():
            return TurnFailure(type=names.TURN_CONFLICT, message=str(error), by_host=True)
        case DraftFailedError():
            details = (error.decision_id, error.failure.error)
            return TurnFailure(type=names.DRAFT_FAILED, message=str(error), details=details)
        case _:
            return TurnFailure(type=names.MISTAKE, message=type(error).__name__)


T_co = TypeVar("T_co", covariant=True)


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

    def choose(self, durability: Durability, budget_ms: int | None) -> None:
        """Which of the two durabilities the stages after `open` are started with, and the turn's budget."""

    def start_draft(self, stage: DraftInput) -> Running[DraftResult]: ...

    def start_plan(self, stage: PlanInput) -> Running[PlanResult]: ...

    async def before_deadline(self, plan: Running[PlanResult], limit: Limit) -> bool:
        """Wait for the plan, but not past the limit. Whether the plan is done; it is not abandoned here."""

    async def retrieve(self, stage: RetrieveInput) -> RetrieveResult: ...

    async def admit(self, stage: AdmitInput) -> AdmitResult: ...

    async def regenerate(self, stage: RegenerateInput) -> RegenerateResult: ...

    async def record(self, record: TurnRecord, limit_ms: float) -> RecordResult:
        """Write the record within the limit, or see to it that it is written later."""
