"""The names of spans and attributes. No attribute ever holds text of a turn, a record or an answer."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, TracerProvider

from retold.contracts.stages import Stage, StageFailure
from retold.contracts.turn import TurnResult

TRACER = "retold"

DECISION_ID = "retold.decision.id"
DISPOSITION = "retold.decision.disposition"
REASON = "retold.decision.reason"
DURABILITY = "retold.turn.durability"
SHADOW = "retold.turn.shadow"
BUDGET_MS = "retold.turn.budget_ms"
STAGE = "retold.stage"
FAILURE_KIND = "retold.failure.kind"
FAILURE_TYPE = "error.type"
RECORDED = "retold.turn.recorded"

TURN_SPAN = "turn"
"""The host's side of a turn: its start to its answer."""
WORKFLOW_SPAN = "turn.workflow"
RECORD_SPAN = "turn.record"


@dataclass(frozen=True)
class StageSpan:
    span: Span

    def failed(self, failure: StageFailure) -> StageFailure:
        """Mark the span with the failure's kind and type, and hand the failure on."""
        self.span.set_attributes({FAILURE_KIND: failure.kind.value, FAILURE_TYPE: failure.error})
        self.span.set_status(Status(StatusCode.ERROR, failure.kind.value))
        return failure


@contextmanager
def stage_span(stage: Stage, decision_id: str | None = None) -> Iterator[StageSpan]:
    """One span a stage: `turn.<stage>`."""
    attributes = {STAGE: stage.value}
    if decision_id is not None:
        attributes[DECISION_ID] = decision_id
    with _tracer().start_as_current_span(
        f"turn.{stage.value}", attributes=attributes, record_exception=False
    ) as span:
        yield StageSpan(span)


@contextmanager
def turn_span(name: str) -> Iterator[Span]:
    """A span around a part of a turn that is no stage: the workflow itself, the writing of its record."""
    with _tracer().start_as_current_span(name, record_exception=False) as span:
        yield span


@contextmanager
def client_span(name: str, attributes: dict[str, str | int]) -> Iterator[Span]:
    """One span for a call that leaves the process: a model, Qdrant, SQL. Named by the semantic conventions."""
    with _tracer().start_as_current_span(
        name, kind=SpanKind.CLIENT, attributes=attributes, record_exception=False
    ) as span:
        yield span


def mark_turn(result: TurnResult) -> None:
    """Put what became of the turn on the current span: enough to find it, nothing personal."""
    trace.get_current_span().set_attributes(
        {
            DECISION_ID: result.decision_id,
            DISPOSITION: result.disposition.value,
            REASON: result.reason.value,
            DURABILITY: result.durability.value,
            SHADOW: result.shadow,
            RECORDED: result.recorded,
        }
    )


def _tracer() -> Tracer:
    """The installed provider's tracer, kept: to make one costs as much as a span, and a turn has fifteen."""
    return _tracer_of(trace.get_tracer_provider())


@functools.cache
def _tracer_of(provider: TracerProvider) -> Tracer:
    return provider.get_tracer(TRACER)
