"""Who may be promoted, decided by code (specification section 2.1): eligibility, then evidence, then the user's words.

The order matters, and the first hit is the reason: a record that is not eligible stays conditional without anybody
being asked; what policies say can only narrow; the words the user said are judged last and can only narrow too.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from retold.contracts.activation import (
    PROMOTABLE_CATEGORIES,
    ActivationOutcome,
    ActivationReason,
    Applicability,
    CategoryDecision,
    VerifiedEvidence,
)
from retold.contracts.extraction import OwnTurn
from retold.contracts.record import ACTIVE_STATUSES, MemoryRecord, RecordStatus, RecordType
from retold.policy.activation.statement import judge_statement

MIN_CONFIDENCE = 0.7

Decision = tuple[ActivationOutcome, ActivationReason]


def eligibility(record: MemoryRecord, at: datetime, principal_entity_id: str = "user") -> ActivationReason | None:
    """Why no policy may be asked about this record at that time, or None: it is eligible.

    Args:
        principal_entity_id: the subject that means the principal; `user` always does.
    """
    if record.type is not RecordType.SEMANTIC:
        return ActivationReason.NOT_SEMANTIC
    if record.subject not in ("user", principal_entity_id):
        return ActivationReason.NOT_ABOUT_PRINCIPAL
    if record.status is RecordStatus.SUPERSEDED or record.superseded_by is not None:
        return ActivationReason.SUPERSEDED
    if record.status not in ACTIVE_STATUSES:
        return ActivationReason.NOT_ACTIVE
    if record.valid_from is not None and at < record.valid_from:
        return ActivationReason.NOT_YET_VALID
    if record.valid_until is not None and at >= record.valid_until:
        return ActivationReason.EXPIRED
    if record.is_suspended(at):
        return ActivationReason.SUSPENDED
    if record.conflicting:
        return ActivationReason.CONFLICTING
    return None


def decide_activation(
    record: MemoryRecord,
    decision: CategoryDecision | None,
    principal_entity_id: str,
    evidence_turn: VerifiedEvidence | None,
    *,
    at: datetime,
    turns: Sequence[OwnTurn] = (),
    replaced: Sequence[str] = (),
    policy_failure: ActivationReason | None = None,
    min_confidence: float = MIN_CONFIDENCE,
) -> Decision:
    """Promote, keep conditional or send to review, and why. Pure; the same inputs always decide the same.

    Args:
        decision: what the category policy proposed; None: it was not asked or gave nothing.
        evidence_turn: where the principal said it, as `find_evidence` found it.
        at: now.
        turns: the principal's own turns the evidence was looked for in, all of them: what was said around and after
            the span belongs to the judgement. Without the turn of the evidence nothing is promoted.
        replaced: what was said earlier about the same attribute of the same subject, and is superseded by now: that
            the record says otherwise is a changed mind.
        policy_failure: why the policy gave nothing: `policy_timeout`, `policy_error` or `policy_malformed`.
        min_confidence: below it a proposal goes to review, whatever it says.
    """
    if (reason := eligibility(record, at, principal_entity_id)) is not None:
        return ActivationOutcome.CONDITIONAL, reason
    if evidence_turn is None:
        return ActivationOutcome.CONDITIONAL, ActivationReason.NO_HOST_VERIFIED_EVIDENCE
    if decision is None or policy_failure is not None:
        return ActivationOutcome.REVIEW, policy_failure or ActivationReason.POLICY_ERROR
    if decision.unsafe:
        return ActivationOutcome.REVIEW, ActivationReason.FLAGGED_UNSAFE
    if decision.activation_category not in PROMOTABLE_CATEGORIES:
        return ActivationOutcome.CONDITIONAL, ActivationReason.CATEGORY_NOT_PROMOTABLE
    if decision.applicability is Applicability.TEMPORARY or record.valid_until is not None:
        return ActivationOutcome.CONDITIONAL, ActivationReason.TEMPORARY_PREFERENCE
    if decision.applicability is Applicability.SCOPED:
        return ActivationOutcome.CONDITIONAL, ActivationReason.SCOPED_PREFERENCE
    outcome, reason = judge_statement(record.text, evidence_turn, turns, replaced)
    if outcome is not ActivationOutcome.PROMOTE:
        return outcome, reason
    if decision.applicability is Applicability.AMBIGUOUS:
        return ActivationOutcome.REVIEW, ActivationReason.AMBIGUOUS_APPLICABILITY
    if decision.confidence < min_confidence:
        return ActivationOutcome.REVIEW, ActivationReason.LOW_CONFIDENCE
    return outcome, reason
