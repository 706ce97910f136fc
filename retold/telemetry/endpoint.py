"""The port Prometheus asks, for sites without a collector."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from prometheus_client import CollectorRegistry, start_http_server

from retold.telemetry.probes import split_address


@contextmanager
def prometheus_endpoint(address: str) -> Iterator[PrometheusMetricReader]:
    """Serve metrics on `host:port` from a thread of their own until the block ends; the reader feeds them.

    Raises:
        OSError: the address cannot be used.
        ValueError: it is not `host:port`.
    """
    host, port = split_address(address)
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(registry=registry, scope_info_enabled=False)
    server, thread = start_http_server(port, host, registry)
    try:
        yield reader
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
