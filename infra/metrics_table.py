"""Writes infra/metrics.md from the table in `retold.telemetry.metrics`: `python infra/metrics_table.py`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from retold.telemetry.metrics import INSTRUMENTS

OUT = Path(__file__).parent / "metrics.md"

HEAD = """# Metrics

Written by `python infra/metrics_table.py` from `retold/telemetry/metrics.py`; a test compares. Names and
attributes are fixed, and no attribute ever holds a name, an id or a text: tenants, users, sessions and records are
not labels here, they are in the decision log. Prometheus asks the worker on `RETOLD_WORKER__METRICS_ADDRESS`; with
an OTLP endpoint configured the same instruments are exported there under their OpenTelemetry names. Exemplars of
the histograms carry the trace id of a turn. The Temporal SDK's own metrics are served on
`RETOLD_WORKER__TEMPORAL_METRICS_ADDRESS`; those that something here asks for are in the second table.

| Prometheus name | OpenTelemetry name | kind, unit | attributes | meaning | who is woken |
|---|---|---|---|---|---|
"""


class SdkMetric(NamedTuple):
    name: str
    kind: str
    attributes: tuple[str, ...]
    """Those that are asked for; the SDK has more."""
    meaning: str
    alert: str = "nobody; a dashboard"


SDK_METRICS = (
    SdkMetric(
        "temporal_worker_task_slots_used",
        "gauge",
        ("task_queue", "worker_type"),
        "slots at work: a workflow task is a whole turn in durability `turn`, an activity a stage of one in `stage`; "
        "workers are scaled by it (capacity.md)",
    ),
    SdkMetric(
        "temporal_worker_task_slots_available",
        "gauge",
        ("task_queue", "worker_type"),
        "slots that are not; two a worker of turns never are at work, idle polls hold them",
    ),
    SdkMetric(
        "temporal_workflow_task_schedule_to_start_latency_seconds",
        "histogram, s",
        ("task_queue",),
        "how long turns, and workflows' next steps, wait for a worker",
        "TemporalTasksWaiting",
    ),
    SdkMetric(
        "temporal_activity_schedule_to_start_latency_seconds",
        "histogram, s",
        ("task_queue",),
        "how long the model stages of turns in `stage`, and operations, wait for a worker",
        "TemporalTasksWaiting",
    ),
    SdkMetric(
        "temporal_workflow_task_execution_failed_total",
        "counter",
        ("workflow_type",),
        "workflow tasks that raised or could not be replayed",
        "TemporalWorkflowTasksFailing",
    ),
    SdkMetric("temporal_request_failure_total", "counter", ("operation",), "calls to the server that failed"),
    SdkMetric("temporal_sticky_cache_size", "gauge", ("namespace",), "workflows a worker keeps in memory"),
)

SDK_HEAD = """
## Of the Temporal SDK

| Prometheus name | kind, unit | attributes asked for | meaning | who is woken |
|---|---|---|---|---|
"""


def text() -> str:
    rows = (
        f"| `{each.prometheus_name}` | `{each.name}` | {each.kind}, {each.unit} "
        f"| {', '.join(each.attributes) or '-'} | {each.meaning} | {each.alert} |"
        for each in INSTRUMENTS
    )
    of_the_sdk = (
        f"| `{each.name}` | {each.kind} | {', '.join(each.attributes)} | {each.meaning} | {each.alert} |"
        for each in SDK_METRICS
    )
    return HEAD + "\n".join(rows) + "\n" + SDK_HEAD + "\n".join(of_the_sdk) + "\n"


if __name__ == "__main__":
    OUT.write_text(text())
