"""What the user's own words around the evidence allow, whatever a policy said about them."""

from __future__ import annotations

from collections.abc import Sequence

from retold.contracts.activation import ActivationOutcome, ActivationReason, VerifiedEvidence
from retold.contracts.extraction import OwnTurn


def judge_statement(
    record_text: str, evidence: VerifiedEvidence, turns: Sequence[OwnTurn]
) -> tuple[ActivationOutcome, ActivationReason]:
    """Promote only what is plainly a standing response instruction in a language with a reviewed word list."""
    said = next((turn for turn in turns if turn.turn_ref == evidence.turn_ref), None)
    if said is None or said.text[evidence.start : evidence.end] != evidence.span:
        return ActivationOutcome.CONDITIONAL, ActivationReason.NO_HOST_VERIFIED_EVIDENCE
    return ActivationOutcome.REVIEW, ActivationReason.LANGUAGE_NOT_REVIEWED
