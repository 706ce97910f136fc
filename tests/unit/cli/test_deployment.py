"""What an SRE runs before workers start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import History, HistoryEvent

from retold.cli.deployment import migrate_store, payloads_of_ours

TRACE = Payload(metadata={"encoding": b"json/plain"}, data=b"traceparent")
NOTES = Payload(metadata={"encoding": b"json/plain"}, data=b"notes of the SDK")
INPUT, RESULT = Payload(data=b"input"), Payload(data=b"result")


def test_a_folder_that_is_not_there_yet_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RETOLD_DATA_DIR", str(tmp_path / "not" / "there"))
    migrate_store(as_json=True)
    assert json.loads(capsys.readouterr().out)["after"] is not None
    assert (tmp_path / "not" / "there" / "retold.db").exists()


def test_what_no_codec_ever_sees_needs_no_key() -> None:
    started = HistoryEvent(event_type=EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED)
    started.workflow_execution_started_event_attributes.input.payloads.append(INPUT)
    started.workflow_execution_started_event_attributes.header.fields["_tracer-data"].CopyFrom(TRACE)
    marker = HistoryEvent(event_type=EventType.EVENT_TYPE_MARKER_RECORDED)
    marker.marker_recorded_event_attributes.marker_name = "core_local_activity"
    marker.marker_recorded_event_attributes.details["data"].CopyFrom(Payloads(payloads=[NOTES]))
    marker.marker_recorded_event_attributes.details["result"].CopyFrom(Payloads(payloads=[RESULT]))
    timed_out = HistoryEvent(event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT)
    timed_out.workflow_task_timed_out_event_attributes.scheduled_event_id = 2
    updated = HistoryEvent(event_type=EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED)
    asked = updated.workflow_execution_update_accepted_event_attributes.accepted_request.input
    asked.args.payloads.append(INPUT)
    asked.header.fields["_tracer-data"].CopyFrom(TRACE)
    history = History(events=[started, marker, timed_out, updated])
    assert list(payloads_of_ours(history)) == [INPUT, RESULT, INPUT]
