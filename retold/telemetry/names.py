"""The names of spans, their attributes and events. None of them ever holds text of a turn, a record or an answer,
and baggage is neither read nor added to: what a host puts there is the host's.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from opentelemetry import trace
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags, Tracer, TracerProvider

from retold.contracts.disposition import Disposition
from retold.contracts.stages import FailureKind, Stage, StageFailure
from retold.contracts.turn import TurnResult

TRACER = "retold"

DECISION_ID = "retold.decision.id"
DISPOSITION = "retold.decision.disposition"
REASON = "retold.decision.reason"
DURABILITY = "retold.turn.durability"
SHADOW = "retold.turn.shadow"
BUDGET_MS = "retold.turn.budget_ms"
STAGE = "retold.stage"
LIMIT_MS = "retold.stage.limit_ms"
FAILURE_KIND = "retold.failure.kind"
FAILURE_TYPE = "error.type"
RECORDED = "retold.turn.recorded"
CAUSE = "retold.activation.cause"
RECORDS = "retold.activation.records"
REVIEW_ID = "retold.review.id"
REVIEW_STATUS = "retold.review.status"
STEP = "retold.review.step"

TURN_SPAN = "turn"
"""The host's side of a turn: its start to its answer."""
WORKFLOW_SPAN = "turn.workflow"
RECORD_SPAN = "turn.record"
EXTRACTION_SPAN = "extraction"
READING_SPAN = "extraction.read"
ACTIVATION_SPAN = "activation"
EVALUATION_SPAN = "activation.evaluate"
REVIEW_STEP_SPAN = "review.step"
REVIEW_DECISION_SPAN = "review.decide"

RETRIED = "retried"
"""The same call is made again: `attempt` is the one that begins, `error.type` what became of the one before."""
LIMIT_REACHED = "limit_reached"
"""A stage used up its own limit, and whatever it still does goes nowhere."""
ABANDONED = "abandoned"
"""Nobody waits for this any more: a deadline passed, or the host gave up."""
BUDGET_EXHAUSTED = "budget_exhausted"
"""Memory was withheld because the turn's budget was used up."""
HANDED_OVER = "handed_over"
"""The record could not be written in time (`error.type` says why) and is written by a workflow of its own."""

_WITHHELD = (Disposition.BASELINE_BUDGET_EXHAUSTED, Disposition.ADMITTED_NOT_APPLIED)


@dataclass(frozen=True)
class StageSpan:
    span: Span

    def failed(self, failure: StageFailure) -> StageFailure:
        """Mark the span with the failure's kind and type, and hand the failure on."""
        if failure.kind is FailureKind.TIMEOUT:
            self.span.add_event(LIMIT_REACHED)
        self.span.set_attributes({FAILURE_KIND: failure.kind.value, FAILURE_TYPE: failure.error})
        self.span.set_status(Status(StatusCode.ERROR, failure.kind.value))
        return failure


@contextmanager
def stage_span(stage: Stage, decision_id: str | None = None, *, limit_ms: float | None = None) -> Iterator[StageSpan]:
    """One span a stage: `turn.<stage>`."""
    attributes: dict[str, str | float] = {STAGE: stage.value}
    if decision_id is not None:
        attributes[DECISION_ID] = decision_id
    if limit_ms is not None:
        attributes[LIMIT_MS] = limit_ms
    with _span(f"turn.{stage.value}", attributes=attributes) as span, _until_abandoned(span):
        yield StageSpan(span)


@contextmanager
def turn_span(name: str, attributes: dict[str, str | int] | None = None) -> Iterator[Span]:
    """A span around a part of a turn that is no stage, or around what follows from turns."""
    with _span(name, attributes=attributes or {}) as span:
        yield span


@contextmanager
def client_span(name: str, attributes: dict[str, str | int]) -> Iterator[Span]:
    """One span for a call that leaves the process: a model, Qdrant, SQL. Named by the semantic conventions."""
    with _span(name, kind=SpanKind.CLIENT, attributes=attributes) as span, _until_abandoned(span):
        yield span


def in_a_trace() -> bool:
    """Whether a span opened now would have a parent."""
    return trace.get_current_span().get_span_context().is_valid


def note(event: str, span: Span | None = None, **attributes: str | int | float) -> None:
    """Add an event to a span, by default the one that is open. `error_type` becomes the conventions' name for it."""
    named = {FAILURE_TYPE if name == "error_type" else name: value for name, value in attributes.items()}
    (span or trace.get_current_span()).add_event(event, named)


def lead_back_to(trace_id: str | None, span_id: str | None) -> None:
    """Link the current span to the turn that led to it. A turn that left no trace is not linked to."""
    if trace_id is not None and span_id is not None:
        turn = SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(TraceFlags.SAMPLED))
        trace.get_current_span().add_link(turn)


def mark_turn(result: TurnResult) -> None:
    """Put what became of the turn on the current span: enough to find it, nothing personal."""
    span = trace.get_current_span()
    if result.effective_budget_ms is not None:
        span.set_attribute(BUDGET_MS, result.effective_budget_ms)
    if result.disposition in _WITHHELD:
        note(BUDGET_EXHAUSTED, span, reason=result.reason.value)
    span.set_attributes(
        {
            DECISION_ID: result.decision_id,
            DISPOSITION: result.disposition.value,
            REASON: result.reason.value,
            DURABILITY: result.durability.value,
            SHADOW: result.shadow,
            RECORDED: result.recorded,
        }
    )


@contextmanager
def _span(
    name: str, *, attributes: Mapping[str, str | int | float], kind: SpanKind = SpanKind.INTERNAL
) -> Iterator[Span]:
    """An error is named by its type: its message, which the SDK would keep, may hold what somebody said."""
    with _tracer().start_as_current_span(
        name, kind=kind, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except Exception as error:
            span.set_attribute(FAILURE_TYPE, type(error).__name__)
            span.set_status(Status(StatusCode.ERROR, type(error).__name__))
            raise


@contextmanager
def _until_abandoned(span: Span) -> Iterator[None]:
    try:
        yield
    except asyncio.CancelledError:
        span.add_event(ABANDONED)
        raise


def _tracer() -> Tracer:
    """The installed provider's tracer, kept: to make one costs as much as a span, and a turn has fifteen."""
    return _tracer_of(trace.get_tracer_provider())


@functools.cache
def _tracer_of(provider: TracerProvider) -> Tracer:
    return provider.get_tracer(TRACER)
