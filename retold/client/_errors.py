"""What can go wrong between a host and its answer, as types a host can catch."""

from __future__ import annotations

from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError, CancelledError, TerminatedError, TimeoutError
from temporalio.service import RPCError, RPCStatusCode

from retold.contracts import names


class RetoldError(Exception):
    """Any refusal or failure of the service."""


class InvalidTurnError(RetoldError, ValueError):
    """The request was refused before or at its start; the message names field and limit."""


class SessionOwnedByAnotherError(RetoldError):
    """The session belongs to another user of this tenant."""


class TurnConflictError(RetoldError):
    """This turn was already sent with another text or public context. Use a new turn id."""


class DraftFailedError(RetoldError):
    """The draft could not be generated, so there is no answer. Sending the same turn again tries again."""


class HostNotServingError(DraftFailedError):
    """Nobody serves the task queue that was named for the host's own generation."""


class TurnCancelledError(RetoldError):
    """The turn was cancelled by its host."""


class TurnDeadlineError(RetoldError):
    """No answer within the caller's own deadline. The turn goes on; sending it again picks up its answer."""


class UnreachableError(RetoldError):
    """Temporal could not be reached, and no fallback was given."""


class OperationRefusedError(RetoldError, ValueError):
    """An operation that will not become right by repeating it; the message says what to do."""


class UnknownRecordError(OperationRefusedError):
    """The principal has no such record. Another principal's record looks the same as none."""


class StaleRecordVersionError(OperationRefusedError):
    """The record was changed since the caller looked at it: read it again, and decide again."""


class ForgetIncompleteError(RetoldError):
    """Text of what should be forgotten was still found. There is no receipt; whoever asks again takes over."""


_BY_TYPE: dict[str, type[RetoldError]] = {
    names.INVALID_REQUEST: InvalidTurnError,
    names.SESSION_OWNED_BY_ANOTHER: SessionOwnedByAnotherError,
    names.TURN_CONFLICT: TurnConflictError,
    names.DRAFT_FAILED: DraftFailedError,
    names.OPERATION_REFUSED: OperationRefusedError,
    names.RECORD_NOT_FOUND: UnknownRecordError,
    names.STALE_RECORD_VERSION: StaleRecordVersionError,
    names.FORGET_INCOMPLETE: ForgetIncompleteError,
}


def from_failure(failure: WorkflowFailureError) -> RetoldError:
    """The typed error behind a failed workflow."""
    cause: BaseException | None = failure.cause
    while cause is not None:
        if isinstance(cause, ApplicationError) and cause.type in _BY_TYPE:
            if names.HOST_NOT_SERVING in cause.details:
                return HostNotServingError(f"{cause.message}: is the host's worker running on that task queue?")
            return _BY_TYPE[cause.type](cause.message)
        if isinstance(cause, CancelledError | TerminatedError):
            return TurnCancelledError("the turn was cancelled")
        if isinstance(cause, TimeoutError):
            return TurnDeadlineError("no worker finished this within its execution timeout: is one running?")
        cause = cause.__cause__
    return RetoldError(f"the workflow failed: {failure.cause}")


_UNREACHABLE = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)
"""`CANCELLED` is what the SDK says when the call's own timeout ran out; the caller giving up raises in the caller."""


def out_of_reach(error: RPCError | RuntimeError) -> UnreachableError:
    """A lazy client that cannot make its first connection raises a bare RuntimeError. Other errors pass through."""
    if isinstance(error, RPCError) and error.status not in _UNREACHABLE:
        raise error
    said = error.status.name if isinstance(error, RPCError) else str(error)[:200]
    return UnreachableError(f"Temporal is out of reach ({said}); check its address, or connect with a fallback")
