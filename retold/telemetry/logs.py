"""Log lines that mean nothing is wrong, kept out of the log so that the others are read."""

from __future__ import annotations

import asyncio
import logging


class _LosersOfARace(logging.Filter):
    """A stage that lost against its deadline is cancelled; the SDK tells it as a failed activity, with a traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        raised = record.exc_info[0] if isinstance(record.exc_info, tuple) else None
        return raised is None or not issubclass(raised, asyncio.CancelledError)


class _EvictedWorkflows(logging.Filter):
    """A workflow evicted from the cache closes its spans in another context than it opened them in. Harmless."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.getMessage() != "Failed to detach context"


_FILTERS = {"temporalio.activity": _LosersOfARace(), "opentelemetry.context": _EvictedWorkflows()}


def leave_out_expected_noise() -> None:
    """Safe to call more than once."""
    for name, noise in _FILTERS.items():
        logging.getLogger(name).addFilter(noise)
