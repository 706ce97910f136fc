"""What a Qdrant server's client raises, and what callers of an index get instead."""

from __future__ import annotations

from qdrant_client.common.client_exceptions import QdrantException, ResourceExhaustedResponse
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from retold.index.port import DimensionMismatchError, IndexUnavailableError

CLIENT_ERRORS = (ApiException, QdrantException, ValueError)
"""Everything the client raises. A body that is no JSON leaves it as a bare ValueError."""


def asked_to_wait_s(error: Exception) -> float | None:
    """How long the server wants to be left alone; None unless it said it is busy (429)."""
    match error:
        case ResourceExhaustedResponse():
            return float(error.retry_after_s)
        case UnexpectedResponse(status_code=429):
            return 1.0
        case _:
            return None


def typed(error: Exception) -> Exception:
    """The port's error for whatever the client raised. A timeout's own message is empty: its source has it."""
    match error:
        case UnexpectedResponse() if b"imension" in (error.content or b""):
            return DimensionMismatchError(f"the server refused a vector: {_said(error)}")
        case UnexpectedResponse():
            return IndexUnavailableError(f"the server answered {error.status_code}: {_said(error)}")
        case ResourceExhaustedResponse():
            return IndexUnavailableError(f"the server is overloaded, asks to wait {error.retry_after_s} s")
        case ResponseHandlingException():
            return IndexUnavailableError(f"no usable answer from the server: {error.source!r}")
        case _:
            return IndexUnavailableError(f"no usable answer from the server: {type(error).__name__}")


def _said(error: UnexpectedResponse) -> str:
    return (error.content or b"").decode("utf-8", "replace")[:200]
