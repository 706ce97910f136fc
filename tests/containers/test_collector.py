"""What leaves this process by OTLP arrives in a collector that is a container."""

from __future__ import annotations

import time
from uuid import uuid4

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from tests.docker_engine import collector_in_a_container

pytestmark = pytest.mark.docker

ARRIVES_WITHIN_S = 10.0


def test_a_span_arrives() -> None:
    name = f"span {uuid4()}"
    with collector_in_a_container() as (url, printed):
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=f"{url}/v1/traces")))
        with provider.get_tracer("tests").start_as_current_span(name):
            pass
        provider.shutdown()
        deadline = time.monotonic() + ARRIVES_WITHIN_S
        while name not in printed() and time.monotonic() < deadline:
            time.sleep(0.2)
        assert name in printed()
