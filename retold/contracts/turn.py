"""What a host sends and gets back: the request of one turn and its result (specification sections 3 and 4)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from retold.contracts._base import AnswerText, ContextText, Contract, Milliseconds, Name, TurnText
from retold.contracts.disposition import Disposition, Reason, outcome
from retold.contracts.record import RecordRef

BUDGET_MAX_MS = 600_000

BUDGET_DEFAULT: Literal["default"] = "default"
"""The budget a host gets when it does not say: the configured default of the deployment."""


class Principal(Contract):
    """Whose memory is in play. Both names are matched exactly; neither is ever a prefix or a pattern."""

    tenant: Name
    user: Name


class Durability(StrEnum):
    """What of a turn survives the death of a worker (design section 3.1).

    `turn`: the turn is repeated as a whole. `stage`: each finished model stage is kept. `auto`: `turn` when the
    effective budget is set and at most 2,000 ms, else `stage`.
    """

    AUTO = "auto"
    TURN = "turn"
    STAGE = "stage"


def _whole_milliseconds(value: object) -> object:
    if value is None or value == BUDGET_DEFAULT:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= BUDGET_MAX_MS:
        return value
    raise ValueError(
        f'must be a whole number of milliseconds from 0 to {BUDGET_MAX_MS}, null for no budget, or "default"'
    )


RequestedBudget = Annotated[int | Literal["default"] | None, BeforeValidator(_whole_milliseconds)]
"""`"default"`: the configured default. `null`: per-stage timeouts only. 0: draft only. N: a deadline N ms after
the draft completes (specification section 3.3)."""

BudgetMs = Annotated[int | None, BeforeValidator(_whole_milliseconds)]


class HostGeneration(Contract):
    """A host that generates on its own worker (design section 3.8). Its turns run in durability `stage`."""

    task_queue: Name
    """Where the host's worker serves `generate_draft` and `regenerate`."""
    pickup_timeout_ms: Annotated[int, Field(strict=True, ge=1, le=60_000)] = 5_000
    """How long a call may wait for a worker on that queue. The server's clock may add up to a second."""
    heartbeat_timeout_ms: Annotated[int, Field(strict=True, ge=500, le=60_000)] | None = None
    """Set it only if the host's activities heartbeat: then their worker's death is noticed this soon."""


class TurnOptions(Contract):
    latency_budget_ms: RequestedBudget = BUDGET_DEFAULT
    durability: Durability = Durability.AUTO
    host_generation: HostGeneration | None = None
    """None: the service's own serving model."""

    @model_validator(mode="after")
    def _host_generation_is_by_stage(self) -> Self:
        if self.host_generation is not None and self.durability is Durability.TURN:
            raise ValueError(
                "durability: turns of a host that generates on its own worker run in `stage`; ask for stage or auto"
            )
        return self


class TurnRequest(Contract):
    """One user turn. The tuple (tenant, user, session, turn) identifies it: sent again, it gets the first answer."""

    schema_version: Literal[1] = 1
    principal: Principal
    session_id: Name
    turn_id: Name
    text: TurnText
    public_context: ContextText | None = None
    options: TurnOptions = TurnOptions()


class TurnResult(Contract):
    """The answer, and what became of the turn. `request_digest` lets a caller see whose answer it got."""

    schema_version: Literal[1] = 1
    decision_id: str
    request_digest: str
    answer: AnswerText
    disposition: Disposition
    reason: Reason
    delivered: tuple[RecordRef, ...] = ()
    """Records whose text reached the answer, so that a user can ask to forget one."""
    shadow: bool = False
    redelivered: bool = False
    durability: Durability
    effective_budget_ms: BudgetMs = None
    timings_ms: dict[str, Milliseconds] = {}
    recorded: bool = True
    """False: the store was slow or away; the decision is being recorded by a workflow of its own."""

    @model_validator(mode="after")
    def _in_the_table(self) -> Self:
        outcome(self.disposition, self.reason)
        return self
