"""`retold trace`: one turn as a tree of what was done for it, from the host's call to the last SQL statement."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from retold.cli import options
from retold.cli.failures import CommandError
from retold.cli.running_stack import connected, read_settings
from retold.cli.terminal import out, write_json
from retold.telemetry.span_file import KeptEvent, KeptSpan, spans_linked_to, spans_of

JAEGER = "RETOLD_JAEGER_URL"
"""Jaeger's page, such as http://127.0.0.1:16686: asked when the spans are not on this machine."""
JAEGER_TIMEOUT_S = 10
SHOWN = (
    "retold.decision.disposition",
    "retold.decision.reason",
    "retold.turn.durability",
    "retold.failure.kind",
    "error.type",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "db.operation.batch.size",
    "db.response.returned_rows",
)

DecisionId = Annotated[str, typer.Argument(metavar="TURN", help="A decision's id, as `retold turn` prints it.")]


def show_trace(context: typer.Context, decision_id: DecisionId, as_json: options.AsJson = False) -> None:
    """Find a turn's trace and print it as a tree. Spans come from this machine's files or from Jaeger."""
    trace_id = asyncio.run(_trace_id(context, decision_id))
    if trace_id is None:
        raise CommandError("this turn left no trace", "its worker ran without tracing; its decision row says the rest")
    data_dir = read_settings().data_dir
    spans = spans_of(data_dir, trace_id) or _from_jaeger(trace_id)
    led_to = spans_linked_to(data_dir, trace_id)
    if as_json:
        shown = {"spans": spans, "led_to": led_to}
        dumped = {name: [span.model_dump(mode="json") for span in each] for name, each in shown.items()}
        write_json({"trace_id": trace_id, **dumped})
        return
    out().print(f"trace {trace_id}")
    if not spans:
        raise CommandError(
            "its spans are not on this machine", f"set {JAEGER} to ask Jaeger, or look the id up where traces are kept"
        )
    for line in (*tree(spans), *_followed_by(led_to)):
        out().print(line, markup=False, highlight=False, soft_wrap=True)


def tree(spans: Sequence[KeptSpan]) -> Iterator[str]:
    """One line a span, children below their parent in the order they began, events as lines of their own."""
    known = {span.span_id for span in spans}
    children: dict[str | None, list[KeptSpan]] = defaultdict(list)
    for span in sorted(spans, key=lambda each: each.began_at):
        children[span.parent_id if span.parent_id in known else None].append(span)
    began = min(span.began_at for span in spans)

    def below(parent: str | None, depth: int) -> Iterator[str]:
        for span in children[parent]:
            yield _line(span, depth, began)
            for event in span.events:
                after_ms = (event.at - span.began_at).total_seconds() * 1_000
                yield f"{'':22}{'  ' * (depth + 1)}* {event.name} after {after_ms:.0f} ms{_values(event.attributes)}"
            yield from below(span.span_id, depth + 1)

    return below(None, 0)


def _followed_by(led_to: Sequence[KeptSpan]) -> Iterator[str]:
    """One line a span of another trace that this turn led to: an evaluation, a step of a review."""
    for span in led_to:
        at = f"{span.began_at:%Y-%m-%d %H:%M:%S} UTC"
        yield f"led to trace {span.trace_id}: {span.name} at {at}{_values(span.attributes)}"


def _line(span: KeptSpan, depth: int, began: datetime) -> str:
    at_ms = (span.began_at - began).total_seconds() * 1_000
    mark = "!" if span.failed else " "
    shown = {name: span.attributes[name] for name in SHOWN if name in span.attributes}
    linked = "".join(f"  -> trace {trace_id}" for trace_id in span.links)
    return f"{at_ms:9.1f} {span.elapsed_ms:9.1f} ms{mark}{'  ' * depth}{span.name}{_values(shown)}{linked}"


def _values(attributes: Mapping[str, Any]) -> str:
    return "".join(f"  {name.rsplit('.', 1)[-1]}={value}" for name, value in attributes.items())


async def _trace_id(context: typer.Context, decision_id: str) -> str | None:
    async with connected(options.whereabouts(context), read_settings()) as stack:
        return (await stack.decision(decision_id)).decision.trace_id


def _from_jaeger(trace_id: str) -> list[KeptSpan]:
    address = os.environ.get(JAEGER)
    if not address:
        return []
    if not address.startswith(("http://", "https://")):
        raise CommandError(f"{JAEGER} is not an http address: {address}")
    try:
        with urllib.request.urlopen(f"{address.rstrip('/')}/api/traces/{trace_id}", timeout=JAEGER_TIMEOUT_S) as answer:
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return []
        raise CommandError(f"Jaeger at {address} answered {error.code}") from error
    except (OSError, json.JSONDecodeError) as error:
        raise CommandError(f"Jaeger at {address} does not answer ({type(error).__name__})") from error
    return [span for trace in found.get("data") or () for span in _read(trace)]


def _read(trace: Mapping[str, Any]) -> Iterator[KeptSpan]:
    """The spans of one trace in the JSON of Jaeger's query service; its times are microseconds."""
    services = {key: process.get("serviceName", "") for key, process in trace.get("processes", {}).items()}
    for span in trace.get("spans", ()):
        parents = [ref for ref in span.get("references", ()) if ref.get("refType") == "CHILD_OF"]
        began = _time(span["startTime"])
        tags = {tag["key"]: tag["value"] for tag in span.get("tags", ())}
        yield KeptSpan(
            trace_id=span["traceID"],
            span_id=span["spanID"],
            parent_id=parents[0]["spanID"] if parents else None,
            name=span["operationName"],
            service=services.get(span.get("processID", ""), ""),
            began_at=began,
            ended_at=began + timedelta(microseconds=span["duration"]),
            failed=bool(tags.get("error")) or tags.get("otel.status_code") == "ERROR",
            attributes=tags,
            events=tuple(_event(log) for log in span.get("logs") or ()),
            links=tuple(ref["traceID"] for ref in span.get("references", ()) if ref.get("refType") != "CHILD_OF"),
        )


def _event(log: Mapping[str, Any]) -> KeptEvent:
    fields = {field["key"]: field["value"] for field in log.get("fields", ())}
    return KeptEvent(name=str(fields.pop("event", "event")), at=_time(log["timestamp"]), attributes=fields)


def _time(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1e6, UTC)
