"""The rules of human review: what is proposed, who may decide, and which decisions are refused (section 2.1).

Pure: the store brings what it knows at the moment a decision arrives, inside the transaction that will write it.
Who somebody is comes first: a forged decision learns nothing about the item it was sent to.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from retold.contracts._base import without_secret
from retold.contracts.activation import (
    PROMOTABLE_CATEGORIES,
    ActivationCategory,
    ActivationDecision,
    ActivationOutcome,
)
from retold.contracts.record import ACTIVE_STATUSES, MemoryRecord, RecordRef
from retold.contracts.review import (
    RefusedDecision,
    Resolution,
    ReviewDecision,
    Reviewer,
    ReviewerRole,
    ReviewStatus,
)

STATUS_OF = {
    Resolution.PROMOTE: ReviewStatus.PROMOTED,
    Resolution.KEEP_CONDITIONAL: ReviewStatus.KEPT_CONDITIONAL,
    Resolution.REJECT: ReviewStatus.REJECTED,
}
SIGNALLED = {
    "approve": Resolution.PROMOTE,
    "keep_conditional": Resolution.KEEP_CONDITIONAL,
    "reject": Resolution.REJECT,
}
"""What each signal says; the decision it carries must say the same, because that is what was signed."""


@dataclass(frozen=True)
class Refusal:
    kind: RefusedDecision
    why: str
    """For the reviewer and the audit trail: what is the matter, never a text under review."""


@dataclass(frozen=True, kw_only=True)
class ItemFacts:
    """What the store knows of an item when a decision arrives."""

    tenant: str
    status: ReviewStatus
    version: int
    resolved_by: str | None = None


def proposed(decision: ActivationDecision) -> ActivationOutcome:
    """What the item proposes: promotion only of what a policy put into a promotable category and found safe."""
    category = decision.category
    promotable = category is not None and not category.unsafe and category.activation_category in PROMOTABLE_CATEGORIES
    return ActivationOutcome.PROMOTE if promotable else ActivationOutcome.CONDITIONAL


def refuse_person(
    decision: ReviewDecision, sent_to: str, reviewer: Reviewer | None, *, signed: bool, tenant: str | None
) -> Refusal | None:
    """Why this person may not decide this item; None: they may.

    Args:
        sent_to: the item the decision was sent to.
        reviewer: whom the decision names; None: nobody known.
        signed: the signature is theirs, over exactly this decision.
        tenant: the item's; None: there is no such item.
    """
    refused = RefusedDecision.NOT_A_REVIEWER
    if reviewer is None or not signed:
        # One sentence for both: whoever guesses names must not learn which exist.
        return Refusal(refused, "the decision is not signed by a known reviewer")
    if decision.review_id != sent_to:
        return Refusal(refused, "the decision was signed for another review")
    if reviewer.disabled_at is not None:
        return Refusal(refused, f"{reviewer.reviewer_id} is not a reviewer any more")
    if reviewer.role is not ReviewerRole.REVIEWER:
        return Refusal(refused, f"{reviewer.reviewer_id} may look and not decide")
    if tenant is not None and not may_see(reviewer, tenant):
        return Refusal(refused, f"{reviewer.reviewer_id} does not review this tenant")
    return None


def may_see(reviewer: Reviewer, tenant: str) -> bool:
    return reviewer.tenants is None or tenant in reviewer.tenants


def refuse_moment(decision: ReviewDecision, item: ItemFacts | None) -> Refusal | None:
    """Why it is too early, too late, or about something else than what the reviewer saw; None: it is none of these."""
    if item is None:
        return Refusal(RefusedDecision.UNKNOWN_REVIEW, f"there is no review {decision.review_id}")
    match item.status:
        case ReviewStatus.DEFERRED:
            return Refusal(
                RefusedDecision.NOT_OPEN_YET, "the backlog is full: the review waits for room and is not open yet"
            )
        case ReviewStatus.WITHDRAWN:
            return Refusal(RefusedDecision.WITHDRAWN, "withdrawn: the record changed or is gone")
        case ReviewStatus.EXPIRED:
            return Refusal(RefusedDecision.ALREADY_RESOLVED, "expired undecided: the record stays conditional")
        case ReviewStatus.OPEN:
            pass
        case ended:
            by = item.resolved_by or "somebody"
            return Refusal(RefusedDecision.ALREADY_RESOLVED, f"{by} was faster: {ended.value.replace('_', ' ')}")
    if decision.expected_version != item.version:
        return Refusal(
            RefusedDecision.STALE_VERSION,
            f"the review is in version {item.version}, the decision was about version {decision.expected_version}",
        )
    return None


def refuse_word(decision: ReviewDecision, via: str) -> Refusal | None:
    """Why what it says cannot be done; None: it is one of the three resolutions, and the one its signal names."""
    refused = RefusedDecision.UNKNOWN_RESOLUTION
    if not isinstance(decision.resolution, Resolution):
        known = ", ".join(resolution.value for resolution in Resolution)
        return Refusal(refused, f"no such resolution; there are {known}")
    if (signalled := SIGNALLED.get(via)) is not None and signalled is not decision.resolution:
        return Refusal(refused, f"sent as {via}, signed as {decision.resolution.value}")
    return None


def refuse_reason(reason: str) -> Refusal | None:
    """Why the reason cannot be kept; None: it can. Every resolution has one, as every change of a record has."""
    if not reason.strip():
        return Refusal(RefusedDecision.MALFORMED, "reason must not be empty or blank: say why, for the audit trail")
    try:
        without_secret(reason)
    except ValueError as error:
        return Refusal(RefusedDecision.MALFORMED, f"reason {error}")
    return None


def category_for_promotion(
    policy: ActivationCategory | None, reviewer: ActivationCategory | None
) -> ActivationCategory | Refusal:
    """The category a promotion stands on. A reviewer names one where no policy did, and overrules none."""
    refused = RefusedDecision.NOT_ELIGIBLE
    if policy is not None and reviewer not in (None, policy):
        return Refusal(refused, f"the policy put it under {policy.value}: a reviewer does not move it")
    category = policy or reviewer
    if category is None:
        names = ", ".join(category.value for category in PROMOTABLE_CATEGORIES)
        return Refusal(refused, f"no policy named a category: say which one it is ({names})")
    if category not in PROMOTABLE_CATEGORIES:
        return Refusal(refused, f"the category {category.value} is never promoted, whoever asks")
    return category


def why_withdrawn(reviewed: RecordRef, record: MemoryRecord | None, at: datetime) -> str | None:
    """Why the item is about nothing any more; None: its record is what it was, and still alive."""
    if record is None:
        return "the record is gone"
    if record.status not in ACTIVE_STATUSES:
        return f"the record is {record.status.value}"
    if record.superseded_by is not None:
        return "the record is superseded"
    if record.version != reviewed.version:
        return f"the record is now in version {record.version}"
    if record.valid_until is not None and record.valid_until <= at:
        return "the record has expired"
    return None
