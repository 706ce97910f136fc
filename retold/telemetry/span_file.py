"""Spans kept on this machine, so that `retold trace` works beside `retold dev` without a collector.

Two files of bounded size, the older one thrown away when the newer is full: enough for the last few thousand turns.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from retold.contracts._base import Contract, UtcTime

FILE_NAME = "spans.jsonl"
FILE_MAX_BYTES = 20 * 1024 * 1024


class KeptEvent(Contract):
    name: str
    at: UtcTime
    attributes: dict[str, Any] = {}


class KeptSpan(Contract):
    """One span as it ended. Attributes are those the code sets: ids, numbers and names out of closed lists."""

    trace_id: str
    span_id: str
    parent_id: str | None = None
    name: str
    service: str = ""
    began_at: UtcTime
    ended_at: UtcTime
    failed: bool = False
    attributes: dict[str, Any] = {}
    events: tuple[KeptEvent, ...] = ()
    links: tuple[str, ...] = ()
    """Trace ids of other traces this one belongs to."""

    @property
    def elapsed_ms(self) -> float:
        return (self.ended_at - self.began_at).total_seconds() * 1_000


class SpanFileExporter(SpanExporter):
    """Appends spans to `spans.jsonl` in a folder. Use it behind a BatchSpanProcessor: it writes to a disk.

    Args:
        max_bytes: when the file is thrown away for a new one; 0: never.
    """

    def __init__(self, folder: Path, *, max_bytes: int = FILE_MAX_BYTES) -> None:
        # The rotation of a log file is exactly what is needed; nothing else of logging is used.
        self._file = RotatingFileHandler(folder / FILE_NAME, maxBytes=max_bytes, backupCount=1, encoding="utf-8")

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        for span in spans:
            line = _kept(span).model_dump_json(exclude_defaults=True)
            self._file.emit(logging.makeLogRecord({"msg": line, "levelno": logging.INFO}))
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self._file.close()


def kept_in(folder: Path, *, guest: bool = False) -> SpanProcessor:
    """What keeps a process's spans in a folder.

    Args:
        guest: the files are another process's, which alone throws old ones away.
    """
    exporter = SpanFileExporter(folder, max_bytes=0) if guest else SpanFileExporter(folder)
    return BatchSpanProcessor(exporter, schedule_delay_millis=1_000)


def spans_of(folder: Path, trace_id: str) -> list[KeptSpan]:
    """The kept spans of one trace, in the order they began; none if it is unknown or thrown away."""
    found = [KeptSpan.model_validate(line) for line in _lines(folder) if line.get("trace_id") == trace_id]
    return sorted(found, key=lambda span: span.began_at)


def spans_linked_to(folder: Path, trace_id: str) -> list[KeptSpan]:
    """The kept spans of other traces that this one led to, in the order they began."""
    found = [KeptSpan.model_validate(line) for line in _lines(folder) if trace_id in line.get("links", ())]
    return sorted(found, key=lambda span: span.began_at)


def _lines(folder: Path) -> Iterator[Mapping[str, Any]]:
    for path in (folder / f"{FILE_NAME}.1", folder / FILE_NAME):
        if not path.exists():
            continue
        with path.open(encoding="utf-8") as file:
            for line in file:
                try:
                    read = json.loads(line)
                except json.JSONDecodeError:
                    continue  # the last line of a process that was killed
                if isinstance(read, dict):
                    yield read


def _kept(span: ReadableSpan) -> KeptSpan:
    context = span.get_span_context()
    assert context is not None and span.start_time is not None and span.end_time is not None
    return KeptSpan(
        trace_id=f"{context.trace_id:032x}",
        span_id=f"{context.span_id:016x}",
        parent_id=None if span.parent is None else f"{span.parent.span_id:016x}",
        name=span.name,
        service=str(span.resource.attributes.get("service.name", "")),
        began_at=_time(span.start_time),
        ended_at=_time(span.end_time),
        failed=not span.status.is_ok and not span.status.is_unset,
        attributes=dict(span.attributes or {}),
        events=tuple(
            KeptEvent(name=event.name, at=_time(event.timestamp), attributes=dict(event.attributes or {}))
            for event in span.events
        ),
        links=tuple(f"{link.context.trace_id:032x}" for link in span.links),
    )


def _time(nanoseconds: int) -> UtcTime:
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC)
