"""A whole turn answered by one activity (durability `turn`): what it is asked, and what comes of it."""

from __future__ import annotations

from retold.contracts._base import Contract, Milliseconds, UtcTime
from retold.contracts.stages import OpenResult
from retold.contracts.turn import TurnRequest, TurnResult


class TurnStart(Contract):
    """What a driver knows of a turn beside the request."""

    started_at: UtcTime
    late_by_ms: Milliseconds = 0.0
    """How long the turn waited for the worker that has it now."""
    redelivered: bool = False
    """The turn is being repeated because the worker that had it died or was stopped."""
    given_up: bool = False
    """The host gave up before this attempt began. It is recorded so, unless an earlier attempt has an answer."""
    trace_id: str | None = None
    span_id: str | None = None
    """Of the turn's span in that trace: what later traces link to."""


class AnswerInput(Contract):
    request: TurnRequest
    start: TurnStart


class TurnFailure(Contract):
    """Why a turn has no answer, as the host will hear it: one of the error types in `retold.contracts.names`."""

    type: str
    message: str
    details: tuple[str, ...] = ()
    by_host: bool = False
    """It asked for what cannot be: nothing of ours failed."""


class AnswerResult(Contract):
    """One of: the answer, why there is none, that the host gave up, or what was opened of a turn in `stage`."""

    result: TurnResult | None = None
    failure: TurnFailure | None = None
    given_up: bool = False
    opened: OpenResult | None = None
