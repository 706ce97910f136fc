"""What Prometheus reads from a worker is spelled as the table of metrics says."""

from __future__ import annotations

import socket
import urllib.request

from opentelemetry.sdk.metrics import MeterProvider

from retold.telemetry.endpoint import prometheus_endpoint
from retold.telemetry.metrics import INSTRUMENTS


def test_every_instrument_arrives_under_its_prometheus_name() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with prometheus_endpoint(address) as reader:
        meter = MeterProvider([reader]).get_meter("test")
        for each in INSTRUMENTS:
            match each.kind:
                case "counter":
                    meter.create_counter(each.name, unit=each.unit, description=each.meaning).add(1)
                case "histogram":
                    meter.create_histogram(each.name, unit=each.unit, description=each.meaning).record(1)
                case _:
                    meter.create_gauge(each.name, unit=each.unit, description=each.meaning).set(1)
        with urllib.request.urlopen(f"http://{address}/metrics") as answer:
            said = answer.read().decode()
    families = {line.split()[2] for line in said.splitlines() if line.startswith("# TYPE")}
    missing = {each.prometheus_name for each in INSTRUMENTS} - families - {f"{name}_total" for name in families}
    assert not missing
