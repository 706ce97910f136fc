"""One proposed standing preference and the person who decides about it (section 2.1, design section 4)."""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from retold.contracts._base import Contract, Name, RecordText, UtcTime
from retold.contracts.activation import ActivationCategory, ActivationOutcome, ActivationReason, VerifiedEvidence
from retold.contracts.record import RecordRef
from retold.contracts.turn import Principal

REVIEW_REASON_MAX_CHARS = 500
DEFAULT_BACKLOG_BOUND = 500


class Resolution(StrEnum):
    """What a reviewer can say. `reject` and `keep_conditional` differ: a rejected record is never used again."""

    PROMOTE = "promote"
    KEEP_CONDITIONAL = "keep_conditional"
    REJECT = "reject"


class ReviewStatus(StrEnum):
    """`deferred`: refused as `backlog_full`, waiting for room. The last five are ends."""

    DEFERRED = "deferred"
    OPEN = "open"
    PROMOTED = "promoted"
    KEPT_CONDITIONAL = "kept_conditional"
    REJECTED = "rejected"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


OPEN_REVIEW_STATUSES = (ReviewStatus.DEFERRED, ReviewStatus.OPEN)


class ReviewerRole(StrEnum):
    """A viewer sees the queue and decides nothing."""

    REVIEWER = "reviewer"
    VIEWER = "viewer"


class Reviewer(Contract):
    """A known person. Their token is shown once, when it is made; only what verifies it is kept."""

    reviewer_id: Name
    name: Name
    role: ReviewerRole
    tenants: tuple[Name, ...] | None = None
    """Tenants whose items they may see and decide; None: all."""
    public_key: str
    """Ed25519, base64: verifies the decisions this person signs."""
    created_at: UtcTime
    disabled_at: UtcTime | None = None


class Review(Contract):
    """One item of the queue."""

    review_id: Name
    principal: Principal
    record: RecordRef
    """The record in the version that is under review; another version withdraws the item."""
    status: ReviewStatus
    version: Annotated[int, Field(ge=1)]
    """Grows with every change of the item; a decision names the version the reviewer saw."""
    proposed: ActivationOutcome
    reason: ActivationReason
    category: ActivationCategory | None = None
    confidence: float | None = None
    policy: Name | None = None
    policy_version: Name | None = None
    evidence: VerifiedEvidence | None = None
    owner: Name
    """Who answers for the backlog."""
    opened_at: UtcTime
    expires_at: UtcTime
    reminded_at: UtcTime | None = None
    escalated_at: UtcTime | None = None
    resolved_at: UtcTime | None = None
    resolved_by: Name | None = None
    resolution_reason: str | None = None


class ReviewItem(Contract):
    """An item with the texts a reviewer needs: nothing of it goes into a workflow's history."""

    review: Review
    record_text: RecordText | None
    """None: erased meanwhile."""
    turn_text: str | None = None
    """The user's turn the evidence was found in."""
    profile_before: str = ""
    profile_after: str = ""
    """The principal's profile in the next session, without and with this record."""
    history: tuple[ReviewEvent, ...] = ()


class ReviewEvent(Contract):
    at: UtcTime
    actor: Name
    event: str
    reason: str = ""


class ReviewDecision(Contract):
    """What a reviewer says, signed with a key only they hold. Nothing in it is a secret, all of it may be kept.

    The signature is over :meth:`signed_bytes`: it binds the person, the item, the version they saw, the resolution
    and the reason, so it cannot be used for anything else.
    """

    review_id: Name
    resolution: Resolution
    expected_version: Annotated[int, Field(ge=1)]
    reason: Annotated[str, Field(max_length=REVIEW_REASON_MAX_CHARS)] = ""
    reviewer_id: Name
    signature: Annotated[str, Field(min_length=1, max_length=200)]
    """Ed25519 over `signed_bytes`, base64."""

    def signed_bytes(self) -> bytes:
        said = self.model_dump(mode="json", exclude={"signature"})
        return b"retold-review-decision-1\n" + json.dumps(said, sort_keys=True, separators=(",", ":")).encode()

    @property
    def digest(self) -> str:
        """The same decision sent twice has one digest, and is one decision."""
        return "sha256:" + hashlib.sha256(self.signed_bytes()).hexdigest()


class RefusedDecision(StrEnum):
    """Why a decision was not taken: the `type` of the ApplicationError a caller sees."""

    ALREADY_RESOLVED = "AlreadyResolved"
    STALE_VERSION = "StaleVersion"
    NOT_A_REVIEWER = "NotAReviewer"
    UNKNOWN_RESOLUTION = "UnknownResolution"
    WITHDRAWN = "Withdrawn"
    NOT_ELIGIBLE = "NotEligible"
    """The record may not be promoted any more: evidence, category or eligibility fell away since it was proposed."""


class ReviewInput(Contract):
    """Starts the workflow of one item. Ids and times only."""

    review_id: Name
    principal: Principal
    record: RecordRef
    owner: Name
    opened_at: UtcTime
    remind_after_s: Annotated[int, Field(ge=1)]
    escalate_after_s: Annotated[int, Field(ge=1)]
    expires_at: UtcTime


class ReviewOutcome(Contract):
    """How an item ended."""

    review_id: Name
    status: ReviewStatus
    record: RecordRef
    resolved_by: Name | None = None
    resolved_at: UtcTime


class BacklogState(Contract):
    open: int
    deferred: int
    bound: int
    oldest_opened_at: UtcTime | None = None
    owner: Name


ReviewItem.model_rebuild()
