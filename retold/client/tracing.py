"""OpenTelemetry set up once a process: replay-safe, and silent unless an OTLP endpoint is configured."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SpanProcessor
from temporalio.contrib.opentelemetry import create_tracer_provider

EXPORT_TIMEOUT_S = 2
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


@contextmanager
def install_tracing(service_name: str, *, processors: Sequence[SpanProcessor] = ()) -> Iterator[None]:
    """Make the process's tracer provider the replay-safe one; must come before any worker is built.

    Spans leave the process only if `OTEL_EXPORTER_OTLP_ENDPOINT` is set. They are exported in batches from a
    thread of their own with a short timeout, so that a dead collector costs neither a turn nor the shutdown.
    """
    provider = create_tracer_provider(resource=Resource.create({SERVICE_NAME: service_name}), shutdown_on_exit=False)
    for processor in (*processors, *_exporters()):
        provider.add_span_processor(processor)
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        provider.shutdown()


def _exporters() -> Sequence[SpanProcessor]:
    if not any(os.environ.get(name) for name in _ENDPOINTS):
        return ()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    return (
        BatchSpanProcessor(OTLPSpanExporter(timeout=EXPORT_TIMEOUT_S), export_timeout_millis=EXPORT_TIMEOUT_S * 1000),
    )
