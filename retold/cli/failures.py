"""What went wrong, in one sentence a person can act on."""

from __future__ import annotations

from pydantic import ValidationError
from temporalio.client import WorkflowFailureError
from temporalio.service import RPCError, RPCStatusCode

from retold.client import RetoldError, from_failure
from retold.contracts.refusal import refusal_text

_CREDENTIALS = (RPCStatusCode.UNAUTHENTICATED, RPCStatusCode.PERMISSION_DENIED)
_AWAY = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)


class CommandError(RetoldError):
    """The command cannot do what was asked: what was found, and what to do about it."""

    def __init__(self, found: str, advice: str | None = None) -> None:
        super().__init__(found if advice is None else f"{found}: {advice}")
        self.found = found
        self.advice = advice


def does_not_answer(address: str) -> CommandError:
    return CommandError(f"Temporal does not answer at {address}", "start `retold dev` or set TEMPORAL_ADDRESS")


def is_away(error: RPCError) -> bool:
    """Whether Temporal could not be asked, which is no answer."""
    return error.status in _AWAY


def sentence(error: Exception) -> str | None:
    """The sentence for an error that was foreseen; None for a mistake in this code."""
    match error:
        case RetoldError():
            return str(error)
        case WorkflowFailureError():
            return str(from_failure(error))
        case ValidationError():
            return refusal_text(error)
        case RPCError(status=status) if status in _CREDENTIALS:
            return f"Temporal refused the credentials ({error.message}): check TEMPORAL_API_KEY and TEMPORAL_TLS_*"
        case RPCError(status=status) if is_away(error):
            return f"Temporal stopped answering ({status.name}): look whether it is still running, then try again"
        case RPCError(status=status):
            return f"Temporal refused the request ({status.name}): {error.message}"
        case OSError():
            where = f"{error.filename}: " if error.filename else ""
            return f"{where}{error.strerror or type(error).__name__}"
        case _ if type(error).__module__.startswith("retold."):
            return str(error)  # our own errors say what is wrong and what to do
        case _:
            return None
