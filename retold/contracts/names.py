"""Names a host, a worker and an SRE share: task queues, workflow types, activity types, error types."""

from __future__ import annotations

TURNS_QUEUE = "retold-turns"
OPERATIONS_QUEUE = "retold-operations"

TURN_WORKFLOW = "TurnWorkflow"
RECORD_TURN_WORKFLOW = "RecordTurnWorkflow"
IMPORT_WORKFLOW = "ImportWorkflow"
END_SESSION_WORKFLOW = "EndSessionWorkflow"
DELETE_RECORD_WORKFLOW = "DeleteRecordWorkflow"
DEVELOPMENT_AMBIENT_WORKFLOW = "DevelopmentAmbientWorkflow"
INSPECT_WORKFLOW = "InspectWorkflow"

OPEN_TURN = "open_turn"
DRAFT_AND_PLAN = "draft_and_plan"
GENERATE_DRAFT = "generate_draft"
PLAN_GAPS = "plan_gaps"
RETRIEVE_CANDIDATES = "retrieve_candidates"
ADMIT_CANDIDATES = "admit_candidates"
REGENERATE = "regenerate"
LOAD_ADMITTED = "load_admitted"
HOLD_DEADLINE = "hold_deadline"
RECORD_TURN = "record_turn"
RECORD_TURN_LATE = "record_turn_late"

IMPORT_LINES = "import_lines"
BRING_INDEX_INTO_LINE = "bring_index_into_line"
END_SESSION = "end_session"
DELETE_RECORD = "delete_record"
MARK_AMBIENT_FOR_DEVELOPMENT = "mark_ambient_for_development"
INSPECT = "inspect"

INVALID_REQUEST = "InvalidRequest"
SESSION_OWNED_BY_ANOTHER = "SessionOwnedByAnother"
TURN_CONFLICT = "TurnConflict"
DRAFT_FAILED = "DraftFailed"
OPERATION_REFUSED = "OperationRefused"
MISTAKE = "Mistake"
"""Retold itself is wrong. The message names the error's type; the worker's log has the rest."""

HOST_NOT_SERVING = "HostNotServing"
"""The failure of a stage whose task queue nobody serves."""
