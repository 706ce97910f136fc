"""The SDK's native half: where its log and its metrics go."""

from __future__ import annotations

import functools
import logging

from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    PrometheusConfig,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)


@functools.cache
def core_runtime(metrics_address: str | None = None) -> Runtime:
    """One a process and address. Its log goes the way of Python's, because by default it is stdout's.

    Args:
        metrics_address: `host:port` where Prometheus asks for the SDK's metrics; None: nobody asks.
    """
    forwarding = LogForwardingConfig(logging.getLogger("temporalio.core"), append_log_fields_to_message=False)
    shown = TelemetryFilter(core_level="WARN", other_level="ERROR")
    metrics = None
    if metrics_address is not None:
        # Spelled as everywhere else in Prometheus: seconds, units in the name, counters that end in _total.
        metrics = PrometheusConfig(
            bind_address=metrics_address, counters_total_suffix=True, unit_suffix=True, durations_as_seconds=True
        )
    telemetry = TelemetryConfig(logging=LoggingConfig(filter=shown, forwarding=forwarding), metrics=metrics)
    return Runtime(telemetry=telemetry)
