"""What `retold records activation` and `retold sessions extract` say, and that nothing a user wrote is obeyed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from retold.cli.activation import _read, activation_lines
from retold.contracts.activation import (
    ActivationCategory,
    ActivationOutcome,
    ActivationReason,
    ActivationView,
    Applicability,
    CategoryDecision,
    EvidenceMethod,
    VerifiedEvidence,
)
from retold.contracts.extraction import ExtractReport, RefusedProposal
from retold.contracts.record import Activation, RecordRef, RecordStatus, RetrievalCategory

AT = datetime(2026, 6, 1, 12, tzinfo=UTC)
WHEN = "2026-06-01T12:00:00+00:00"
VIEW = ActivationView(
    record=RecordRef(id="r1", version=3),
    text="Answer in short sentences.",
    status=RecordStatus.CONFIRMED,
    activation=Activation.CONDITIONAL,
    category=RetrievalCategory.PREFERENCES,
    attribute="answer_length",
    due=False,
)
PROPOSAL = CategoryDecision(
    retrieval_category=RetrievalCategory.PREFERENCES,
    activation_category=ActivationCategory.ANSWER_STYLE,
    applicability=Applicability.AMBIGUOUS,
    confidence=0.5,
    unsafe=True,
    policy="weights",
    policy_version="7",
)
EVIDENCE = VerifiedEvidence(
    session_id="s",
    turn_id="t",
    turn_ref="said/t",
    span="short, please",
    start=0,
    end=13,
    said_at=AT,
    method=EvidenceMethod.NORMALISED,
)
DECIDED: dict[str, Any] = {
    "outcome": ActivationOutcome.REVIEW,
    "reason": ActivationReason.LOW_CONFIDENCE,
    "decided_at": AT,
}


@pytest.mark.parametrize(
    ("changed", "lines"),
    [
        ({}, {"decided": "not evaluated yet"}),
        (DECIDED, {"decided": f"review, low confidence, {WHEN}", "evidence": "none in the user's own words"}),
        ({**DECIDED, "due": True}, {"decided": f"review, low confidence, {WHEN}; changed since, and due again"}),
        (
            {**DECIDED, "proposal": PROPOSAL},
            {"proposed": "answer_style, ambiguous, confidence 0.50, unsafe, by weights 7"},
        ),
        (
            {**DECIDED, "evidence": EVIDENCE},
            {"evidence": "“short, please”", "found in": f"session s, turn t, {WHEN} (normalised)"},
        ),
    ],
)
def test_each_thing_known_about_an_activation_has_its_line(changed: dict[str, Any], lines: dict[str, str]) -> None:
    said = dict(activation_lines(VIEW.model_copy(update=changed)))
    assert said["record"] == "r1, version 3, confirmed"
    assert said["category"] == "preferences (attribute answer_length)"
    assert {label: said[label] for label in lines} == lines


def test_a_reading_says_what_was_kept_and_what_was_not_believed() -> None:
    report = ExtractReport(
        turns_read=3,
        proposed=3,
        written=(RecordRef(id="r1", version=1),),
        unchanged=1,
        refused=(RefusedProposal(index=2, why="span_not_in_own_turn"),),
    )
    assert _read(report) == [
        "read 3 turns: 3 statements proposed, 1 remembered, 1 known already, 1 refused",
        "  remembered r1",
        "  refused the one numbered 2: span_not_in_own_turn",
    ]
