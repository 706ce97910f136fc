"""One proposed standing preference and the person who decides about it (section 2.1, design section 4)."""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field

from retold.contracts._base import Contract, Name, RecordText, UtcTime, _storable
from retold.contracts.activation import ActivationCategory, ActivationOutcome, ActivationReason, VerifiedEvidence
from retold.contracts.record import RecordRef
from retold.contracts.turn import Principal

REVIEW_REASON_MAX_CHARS = 500
DEFAULT_BACKLOG_BOUND = 500


ReviewReason = Annotated[str, Field(max_length=REVIEW_REASON_MAX_CHARS), BeforeValidator(_storable)]
"""Why a reviewer decided as they did: at most 500 characters, kept in the audit trail. A decision without one, or with
a secret in it, can be read and is refused as `MalformedDecision` (`retold.policy.reviewing`)."""
_Word = Annotated[str, Field(max_length=64), BeforeValidator(_storable)]


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


ENDED_REVIEW_STATUSES = tuple(status for status in ReviewStatus if status not in OPEN_REVIEW_STATUSES)


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
    """Grows when the item comes into the queue and when it ends; a decision names the version the reviewer saw. A
    reminder changes nothing somebody decides about."""
    proposed: ActivationOutcome
    reason: ActivationReason
    category: ActivationCategory | None = None
    confidence: float | None = None
    policy: Name | None = None
    policy_version: Name | None = None
    language: Name | None = None
    """Of the user's words: a code, where one is known."""
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


class UnreadableReview(Contract):
    """A row this version cannot read. It is listed and counted like every other, and may be kept or rejected."""

    review_id: str
    tenant: str
    status: str
    opened_at: UtcTime
    version: int
    problem: str
    """Which fields, and why. Never their content."""


class ReviewFilter(Contract):
    """Which items, of how many; what is None does not narrow."""

    statuses: tuple[ReviewStatus, ...] | None = (ReviewStatus.OPEN,)
    tenants: tuple[Name, ...] | None = None
    """A reviewer's own tenants, or one of them."""
    reason: ActivationReason | None = None
    category: ActivationCategory | None = None
    language: Name | None = None
    opened_before: UtcTime | None = None
    """Exclusive: what is older than this."""
    newest_first: bool = False
    limit: Annotated[int, Field(ge=1, le=200)] = 20


class ReviewPage(Contract):
    items: tuple[Review | UnreadableReview, ...]
    total: int
    """Of the whole filter, not of this page."""
    next_cursor: str | None = None
    """Give it to the next call; None: this is the last page."""


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
    resolution: Annotated[Resolution | _Word, Field(union_mode="left_to_right")]
    """A word nobody knows is carried along, so that its refusal is audited too."""
    category: ActivationCategory | None = None
    """For a promotion where no policy named a category; it cannot widen the list of promotable ones."""
    expected_version: Annotated[int, Field(ge=1)]
    reason: ReviewReason = ""
    reviewer_id: Name
    signature: Annotated[str, Field(min_length=1, max_length=200), BeforeValidator(_storable)]
    """Ed25519 over `signed_bytes`, base64."""

    def signed_bytes(self) -> bytes:
        """The line `retold-review-decision-1`, then the JSON object of every other member: keys sorted, no spaces,
        UTF-8 unescaped."""
        said = self.model_dump(mode="json", exclude={"signature"})
        canonical = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return b"retold-review-decision-1\n" + canonical.encode()

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
    NOT_OPEN_YET = "NotOpenYet"
    """Deferred: the backlog is full. Too early to decide."""
    UNKNOWN_REVIEW = "UnknownReview"
    MALFORMED = "MalformedDecision"
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
    look_every_s: Annotated[int, Field(ge=1)] = 24 * 3600
    """How often the item is compared with the store even if nobody says anything."""
    expires_at: UtcTime


class ReviewStep(StrEnum):
    """What an item's clock asks for. Each is done once, whoever asks and however often."""

    LOOK = "look"
    """Is it still open, and is its record still what it was?"""
    REMIND = "remind"
    ESCALATE = "escalate"
    EXPIRE = "expire"


class ReviewStepInput(Contract):
    review_id: Name
    step: ReviewStep


class ReviewState(Contract):
    """Where an item stands: the answer to the query `state`, and what each step leaves behind."""

    review_id: Name
    status: ReviewStatus
    version: Annotated[int, Field(ge=1)]
    owner: Name
    expires_at: UtcTime
    reminded: bool = False
    escalated: bool = False
    resolved_by: Name | None = None
    resolved_at: UtcTime | None = None

    @property
    def ended(self) -> bool:
        return self.status in ENDED_REVIEW_STATUSES


class SentDecision(Contract):
    """A decision on its way to the store, or what was sent in place of one."""

    review_id: Name
    """The item it was sent to; the decision itself names the item it was signed for."""
    decision: ReviewDecision | None
    """None: what was sent is no decision."""
    sent_as: Name
    """One sending, however often its handling is repeated."""
    via: Name
    """`resolve`, the name of a signal, or `operation`."""
    problem: Annotated[str, Field(max_length=300), BeforeValidator(_storable)] = ""
    """Why there is no decision."""


class ReviewOutcome(Contract):
    """How an item ended."""

    review_id: Name
    status: ReviewStatus
    record: RecordRef
    """The record as the end left it."""
    resolved_by: Name | None = None
    resolved_at: UtcTime


class DecisionAnswer(Contract):
    """What became of one sent decision: an outcome, or why it was not taken."""

    outcome: ReviewOutcome | None = None
    refused: RefusedDecision | None = None
    why: str = ""
    """For the reviewer, when it was refused."""


class ReviewIds(Contract):
    """Items whose workflows are due to start."""

    review_ids: Annotated[tuple[Name, ...], Field(max_length=200)]


class BacklogState(Contract):
    open: int
    deferred: int
    bound: int
    oldest_opened_at: UtcTime | None = None
    owner: Name

    @property
    def full(self) -> bool:
        return self.open >= self.bound


class ReviewStats(Contract):
    """What reviewers did since a time, and what waits for them now."""

    since: UtcTime
    backlog: BacklogState
    by_status: dict[str, int]
    """Items opened since then, by what has become of them."""
    by_reason: dict[str, int]
    by_reviewer: dict[str, int]
    median_wait_s: float | None = None
    """From opening to a person's resolution."""
    p95_wait_s: float | None = None


ReviewItem.model_rebuild()
