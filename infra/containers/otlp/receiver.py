"""An OTLP receiver over HTTP that prints one JSON object a span and one line a batch of metrics. Keeps nothing."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PORT = 4318


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        match self.path:
            case "/v1/traces":
                lines = list(_spans(ExportTraceServiceRequest.FromString(body)))
            case "/v1/metrics":
                lines = [{"metrics": " ".join(sorted(_metrics(ExportMetricsServiceRequest.FromString(body))))}]
            case _:
                self.send_error(404)
                return
        print("\n".join(json.dumps(line) for line in lines), flush=True)
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing but spans and metrics goes to standard output."""


def _spans(request: ExportTraceServiceRequest) -> Iterator[dict[str, str]]:
    for of_resource in request.resource_spans:
        service = [each.value.string_value for each in of_resource.resource.attributes if each.key == "service.name"]
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                yield {
                    "span": span.name,
                    "trace_id": span.trace_id.hex(),
                    "span_id": span.span_id.hex(),
                    "parent_id": span.parent_span_id.hex(),
                    "service": "".join(service),
                    "attributes": " ".join(sorted(each.key for each in span.attributes)),
                }


def _metrics(request: ExportMetricsServiceRequest) -> Iterator[str]:
    for of_resource in request.resource_metrics:
        for of_scope in of_resource.scope_metrics:
            yield from (metric.name for metric in of_scope.metrics)


if __name__ == "__main__":
    # The first process of a container hears of SIGTERM only if it asks to.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ThreadingHTTPServer(("0.0.0.0", PORT), Receiver).serve_forever()
