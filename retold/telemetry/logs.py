"""The log: one JSON object a line, with the ids that lead to a trace and a workflow, and without anybody's words.

Levels mean something. ERROR: somebody has to look, and nothing mends itself. WARNING: something is away or refused
that will be tried again. INFO: a worker began, ended, or was told to do something else. Nothing is logged a turn.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import IO, Any

from opentelemetry import trace


def log_as_json(stream: IO[str] | None = None, *, with_exception_messages: bool = False) -> None:
    """Make the root logger write JSON lines, from INFO up.

    Args:
        stream: default: standard error.
        with_exception_messages: what an exception says may repeat what a user said or a model answered; its type and
            where it was raised do not. Only for a machine whose log nobody else reads.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(with_exception_messages=with_exception_messages))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for chatty in ("httpx", "httpcore", "uvicorn", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


class JsonFormatter(logging.Formatter):
    def __init__(self, *, with_exception_messages: bool = False) -> None:
        super().__init__()
        self._with_messages = with_exception_messages

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": _one_line(record.getMessage()),
            **_where(record),
        }
        if record.exc_info and record.exc_info[1] is not None:
            line["exception"] = self._exception(record.exc_info[1], record.exc_info[2])
        return json.dumps(line, ensure_ascii=False, default=str)

    def _exception(self, raised: BaseException, raised_at: TracebackType | None) -> dict[str, Any]:
        frames = traceback.extract_tb(raised_at)
        told: dict[str, Any] = {
            "type": type(raised).__name__,
            "at": [f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno} {frame.name}" for frame in frames[-12:]],
        }
        if self._with_messages:
            told["message"] = _one_line(str(raised))
        if (cause := raised.__cause__) is not None:
            told["cause"] = self._exception(cause, cause.__traceback__)
        return told


def _where(record: logging.LogRecord) -> dict[str, Any]:
    """Trace and span, if one is open; workflow and activity, where the SDK's loggers tell them."""
    found: dict[str, Any] = {}
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        found |= {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}
    told = {**getattr(record, "temporal_activity", {}), **getattr(record, "temporal_workflow", {})}
    names = ("workflow_type", "run_id", "workflow_run_id", "activity_type", "attempt", "task_queue")
    return found | {name: told[name] for name in names if name in told}


def _one_line(text: str) -> str:
    return " ".join(text.split())[:2_000]


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
