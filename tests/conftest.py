"""One real Temporal server for the whole run, and the tracer provider every worker must find installed.

From a wheel; from an image with RETOLD_TEST_STACK=containers.
"""

from __future__ import annotations

import sysconfig
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from retold.client import plugins
from retold.client.tracing import install_tracing
from tests.docker_engine import in_containers, temporal_in_a_container

TEMPORAL = Path(sysconfig.get_path("scripts")) / "temporal"


@pytest.fixture(scope="session", autouse=True)
def spans() -> Iterator[InMemorySpanExporter]:
    """First of all, because a process keeps the first tracer provider it is given: a command under test brings one."""
    exporter = InMemorySpanExporter()
    with install_tracing("retold-tests", processors=[SimpleSpanProcessor(exporter)]):
        yield exporter


@pytest.fixture(scope="session")
async def client(spans: InMemorySpanExporter) -> AsyncIterator[Client]:
    if in_containers():
        with temporal_in_a_container() as address:
            yield await Client.connect(address, plugins=plugins())
        return
    environment = await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(TEMPORAL),
        dev_server_extra_args=["--dynamic-config-value", "history.transferProcessorMaxPollRPS=1000"],
        dev_server_log_level="error",
        plugins=plugins(),
    )
    async with environment:
        yield environment.client
