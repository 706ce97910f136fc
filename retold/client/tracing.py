"""OpenTelemetry set up once a process: replay-safe, and silent unless an OTLP endpoint is configured."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from opentelemetry import metrics, trace
from opentelemetry.sdk.environment_variables import OTEL_SERVICE_NAME
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SpanProcessor
from temporalio.contrib.opentelemetry import create_tracer_provider

EXPORT_TIMEOUT_S = 2
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_METRIC_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")


@contextmanager
def install_tracing(
    service_name: str, *, processors: Sequence[SpanProcessor] = (), readers: Sequence[MetricReader] = ()
) -> Iterator[None]:
    """Make the process's tracer provider the replay-safe one; must come before any worker is built.

    Spans and metrics leave the process only if `OTEL_EXPORTER_OTLP_ENDPOINT` is set (metrics also by `readers`). They
    are exported in batches from a thread of their own with a short timeout: a dead collector costs neither a turn nor
    the shutdown.

    Args:
        service_name: what the process is called unless `OTEL_SERVICE_NAME` says otherwise.
        processors: further ones for spans, a test's own for example.
        readers: further ones for metrics; with one of these, OTLP takes metrics only where
            `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT` says so, or whoever reads both would count everything twice.
    """
    named = os.environ.get(OTEL_SERVICE_NAME) or service_name
    resource = Resource.create({SERVICE_NAME: named, SERVICE_INSTANCE_ID: str(uuid.uuid4())})
    provider = create_tracer_provider(resource=resource, shutdown_on_exit=False)
    for processor in (*processors, *_exporters()):
        provider.add_span_processor(processor)
    trace.set_tracer_provider(provider)
    meters = _meters(resource, readers)
    try:
        yield
    finally:
        provider.shutdown()
        if meters is not None:
            meters.shutdown(timeout_millis=EXPORT_TIMEOUT_S * 1_000)


def _meters(resource: Resource, readers: Sequence[MetricReader]) -> MeterProvider | None:
    """The process's meter provider, if metrics have somewhere to go."""
    endpoints = _METRIC_ENDPOINTS[1:] if readers else _METRIC_ENDPOINTS
    everywhere = [*readers]
    if any(os.environ.get(name) for name in endpoints):
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        everywhere.append(PeriodicExportingMetricReader(OTLPMetricExporter(timeout=EXPORT_TIMEOUT_S)))
    if not everywhere:
        return None
    provider = MeterProvider(everywhere, resource=resource, shutdown_on_exit=False)
    metrics.set_meter_provider(provider)
    return provider


def _exporters() -> Sequence[SpanProcessor]:
    if not any(os.environ.get(name) for name in _ENDPOINTS):
        return ()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    return (
        BatchSpanProcessor(OTLPSpanExporter(timeout=EXPORT_TIMEOUT_S), export_timeout_millis=EXPORT_TIMEOUT_S * 1000),
    )
