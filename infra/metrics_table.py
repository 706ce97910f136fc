"""Writes infra/metrics.md from the table in `retold.telemetry.metrics`: `python infra/metrics_table.py`."""

from __future__ import annotations

from pathlib import Path

from retold.telemetry.metrics import INSTRUMENTS

OUT = Path(__file__).parent / "metrics.md"

HEAD = """# Metrics

Written by `python infra/metrics_table.py` from `retold/telemetry/metrics.py`; a test compares. Names and
attributes are fixed, and no attribute ever holds a name, an id or a text: tenants, users, sessions and records are
not labels here, they are in the decision log. Prometheus asks the worker on `RETOLD_WORKER__METRICS_ADDRESS`; with
an OTLP endpoint configured the same instruments are exported there under their OpenTelemetry names. Exemplars of
the histograms carry the trace id of a turn. The Temporal SDK's own metrics (slots, schedule-to-start latency, task
failures) are served on `RETOLD_WORKER__TEMPORAL_METRICS_ADDRESS`.

| Prometheus name | OpenTelemetry name | kind, unit | attributes | meaning | who is woken |
|---|---|---|---|---|---|
"""


def text() -> str:
    rows = (
        f"| `{each.prometheus_name}` | `{each.name}` | {each.kind}, {each.unit} "
        f"| {', '.join(each.attributes) or '-'} | {each.meaning} | {each.alert} |"
        for each in INSTRUMENTS
    )
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    OUT.write_text(text())
