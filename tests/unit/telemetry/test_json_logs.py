"""A log line leads to its trace and workflow, and repeats nobody's words."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

from opentelemetry.sdk.trace import TracerProvider

from retold.telemetry.logs import JsonFormatter

SAID = "my card is 4111 1111 1111 1111"


def logged(*, with_exception_messages: bool = False, **extra: Any) -> dict[str, Any]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter(with_exception_messages=with_exception_messages))
    logger = logging.Logger("retold.test")
    logger.addHandler(handler)
    try:
        try:
            raise ValueError(SAID)
        except ValueError as error:
            raise RuntimeError(f"the model answered: {SAID}") from error
    except RuntimeError:
        logger.error("a stage failed\nfor a reason", exc_info=True, extra=extra)
    (line,) = stream.getvalue().splitlines()
    read: dict[str, Any] = json.loads(line)
    return read


def test_an_exception_is_its_type_and_its_place_and_not_what_it_says() -> None:
    line = logged()
    assert SAID not in json.dumps(line)
    assert line["message"] == "a stage failed for a reason"
    assert (line["level"], line["logger"]) == ("ERROR", "retold.test")
    assert line["exception"]["type"] == "RuntimeError"
    assert line["exception"]["cause"]["type"] == "ValueError"
    assert any("test_json_logs.py" in place for place in line["exception"]["at"])
    assert line["at"].endswith("+00:00")


def test_what_it_says_is_there_only_when_asked_for() -> None:
    assert SAID in logged(with_exception_messages=True)["exception"]["message"]


def test_a_line_inside_a_span_and_an_activity_names_both() -> None:
    tracer = TracerProvider().get_tracer("test")
    with tracer.start_as_current_span("turn") as span:
        line = logged(temporal_activity={"activity_type": "record_turn", "attempt": 2, "workflow_id": "turn/acme/ada"})
    assert line["trace_id"] == f"{span.get_span_context().trace_id:032x}"
    assert (line["activity_type"], line["attempt"]) == ("record_turn", 2)
    assert "ada" not in json.dumps(line), "a workflow's id holds the user's name; its run id does not"


def test_outside_of_both_there_are_no_ids() -> None:
    assert not {"trace_id", "workflow_type"} & set(logged())
