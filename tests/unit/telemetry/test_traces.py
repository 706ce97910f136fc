"""Spans kept in files come back as the tree they were, and so do those that Jaeger has."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Link, Status, StatusCode

from retold.cli import trace as trace_command
from retold.cli.trace import tree
from retold.telemetry.span_file import FILE_NAME, SpanFileExporter, spans_linked_to, spans_of


def one_turn(folder: Path, *, max_bytes: int = 1_000_000, turns: int = 1) -> str:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(SpanFileExporter(folder, max_bytes=max_bytes)))
    tracer = provider.get_tracer("test")
    for _ in range(turns):
        with tracer.start_as_current_span("review") as other:
            earlier = other.get_span_context()
        with tracer.start_as_current_span("turn", links=[Link(earlier)]) as turn:
            turn.set_attribute("retold.decision.disposition", "regenerated")
            with tracer.start_as_current_span("turn.draft") as draft:
                draft.add_event("retried", {"attempt": 2})
            with tracer.start_as_current_span("turn.admit") as admit:
                admit.set_status(Status(StatusCode.ERROR, "timeout"))
    provider.shutdown()
    return f"{turn.get_span_context().trace_id:032x}"


def test_a_trace_is_read_back_as_the_tree_it_was(tmp_path: Path) -> None:
    trace_id = one_turn(tmp_path)
    spans = spans_of(tmp_path, trace_id)
    lines = list(tree(spans))
    assert [line.split("ms", 1)[1].rstrip() for line in lines if "* " not in line] == [
        f"  turn  disposition=regenerated  -> trace {spans[0].links[0]}".replace("  turn", " turn", 1),
        "   turn.draft",
        "!  turn.admit",
    ]
    (event,) = [line.strip() for line in lines if "* " in line]
    assert event.startswith("* retried after") and event.endswith("attempt=2")
    assert spans_of(tmp_path, "0" * 32) == []


def test_what_a_turn_led_to_is_found_from_the_turn(tmp_path: Path) -> None:
    trace_id = one_turn(tmp_path)
    review = spans_of(tmp_path, trace_id)[0].links[0]
    assert [(span.trace_id, span.name) for span in spans_linked_to(tmp_path, review)] == [(trace_id, "turn")]
    assert spans_linked_to(tmp_path, trace_id) == []


def test_the_files_stay_small_and_a_torn_line_costs_only_itself(tmp_path: Path) -> None:
    last = one_turn(tmp_path, max_bytes=20_000, turns=200)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 50_000
    with (tmp_path / FILE_NAME).open("a") as file:
        file.write('{"trace_id": "' + last)
    assert [span.name for span in spans_of(tmp_path, last)] == ["turn", "turn.draft", "turn.admit"]


@pytest.fixture
def jaeger(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    spans = [
        {
            "traceID": "a" * 32, "spanID": "1", "operationName": "turn", "startTime": 1_000_000, "duration": 50_000,
            "processID": "p1", "references": [], "tags": [{"key": "retold.decision.reason", "value": "admitted"}],
        },
        {
            "traceID": "a" * 32, "spanID": "2", "operationName": "turn.plan", "startTime": 1_010_000,
            "duration": 20_000,
            "processID": "p1", "references": [{"refType": "CHILD_OF", "traceID": "a" * 32, "spanID": "1"}],
            "tags": [{"key": "error", "value": True}],
            "logs": [{"timestamp": 1_030_000, "fields": [{"key": "event", "value": "limit reached"}]}],
        },
    ]  # fmt: skip
    body = json.dumps({"data": [{"spans": spans, "processes": {"p1": {"serviceName": "retold-worker"}}}]}).encode()

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == f"/api/traces/{'a' * 32}" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv(trace_command.JAEGER, f"http://127.0.0.1:{server.server_port}/")
    yield
    server.shutdown()
    server.server_close()


def test_jaeger_is_asked_when_the_spans_are_not_here(jaeger: None) -> None:
    spans = trace_command._from_jaeger("a" * 32)
    lines = list(tree(spans))
    assert lines[0].endswith("turn  reason=admitted")
    assert lines[1].split() == ["10.0", "20.0", "ms!", "turn.plan"]
    assert lines[2].split() == ["*", "limit", "reached", "after", "20", "ms"]
    assert trace_command._from_jaeger("b" * 32) == []
