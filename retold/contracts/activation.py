"""How one committed record comes to be ambient, conditional or under review: what each step says (section 2.1).

Three opinions, in this order, and none can do the next one's work: eligibility and evidence are facts the host checks,
a category policy proposes, and deterministic rules over the user's own words decide.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from retold.contracts._base import Contract, Name, RecordText, UtcTime
from retold.contracts.record import Activation, RecordId, RecordRef, RecordStatus, RetrievalCategory
from retold.contracts.stages import ModelUse
from retold.contracts.turn import Principal

ACTIVATION_BATCH_MAX = 200
SPAN_MAX_CHARS = 2_000

Confidence = Annotated[float, Field(ge=0, le=1)]


class ActivationCategory(StrEnum):
    """What a response instruction is about. Only the first three may ever be promoted; nothing widens the list."""

    ANSWER_STYLE = "answer_style"
    RESPONSE_LANGUAGE = "response_language"
    ACCESSIBILITY = "accessibility"
    OTHER = "other"


PROMOTABLE_CATEGORIES = (
    ActivationCategory.ANSWER_STYLE,
    ActivationCategory.RESPONSE_LANGUAGE,
    ActivationCategory.ACCESSIBILITY,
)


class Applicability(StrEnum):
    BROAD = "broad"
    SCOPED = "scoped"
    TEMPORARY = "temporary"
    AMBIGUOUS = "ambiguous"


class CategoryDecision(Contract):
    """What a category policy proposes for one record. It never decides activation on its own."""

    retrieval_category: RetrievalCategory
    activation_category: ActivationCategory
    applicability: Applicability
    confidence: Confidence
    unsafe: bool = False
    rationale: Annotated[str, Field(max_length=500)] = ""
    policy: Name
    """Model and prompt, or weights: who proposed this."""
    policy_version: Name
    usage: tuple[ModelUse, ...] = ()


class EvidenceMethod(StrEnum):
    """How the claim was found in the user's words, strongest first."""

    EXACT = "exact"
    NORMALISED = "normalised"
    SIMILAR = "similar"
    """Similarity only located the span; polarity, language, scope and object of both were then found to agree."""


class VerifiedEvidence(Contract):
    """Where the principal said it: a span of one of the principal's own turns, in characters of the stored text."""

    session_id: Name
    turn_id: Name
    turn_ref: str
    span: Annotated[str, Field(min_length=1, max_length=SPAN_MAX_CHARS)]
    start: Annotated[int, Field(ge=0)]
    end: Annotated[int, Field(ge=1)]
    """`text[start:end] == span`, in code points of the stored turn."""
    said_at: UtcTime
    method: EvidenceMethod
    similarity: Confidence = 1.0


class ActivationOutcome(StrEnum):
    PROMOTE = "promote"
    CONDITIONAL = "conditional"
    REVIEW = "review"


class ActivationReason(StrEnum):
    """Why a record is where it is. Closed; every outcome has its own reasons."""

    # Not eligible: conditional, and no model was asked.
    NOT_SEMANTIC = "not_semantic"
    NOT_ABOUT_PRINCIPAL = "not_about_principal"
    NOT_ACTIVE = "not_active"
    SUPERSEDED = "superseded"
    NOT_YET_VALID = "not_yet_valid"
    EXPIRED = "expired"
    SUSPENDED = "suspended"
    CONFLICTING = "conflicting"
    NO_HOST_VERIFIED_EVIDENCE = "no_host_verified_evidence"
    # Conditional by rule.
    CATEGORY_NOT_PROMOTABLE = "category_not_promotable"
    TEMPORARY_PREFERENCE = "temporary_preference"
    SCOPED_PREFERENCE = "scoped_preference"
    # Review: somebody has to look.
    POLICY_TIMEOUT = "policy_timeout"
    POLICY_ERROR = "policy_error"
    POLICY_MALFORMED = "policy_malformed"
    FLAGGED_UNSAFE = "flagged_unsafe"
    AMBIGUOUS_APPLICABILITY = "ambiguous_applicability"
    LOW_CONFIDENCE = "low_confidence"
    QUOTED = "quoted"
    THIRD_PARTY = "third_party"
    NEGATED = "negated"
    HYPOTHETICAL = "hypothetical"
    QUESTION = "question"
    SARCASTIC = "sarcastic"
    RETRACTED = "retracted"
    CONTRADICTED = "contradicted"
    """Another of the user's own statements nearby says otherwise, and neither takes the other back."""
    LANGUAGE_NOT_REVIEWED = "language_not_reviewed"
    NOT_PLAINLY_STANDING = "not_plainly_standing"
    # Promoted.
    ELIGIBLE_GLOBAL_DEFAULT = "eligible_global_default"
    ELIGIBLE_BROAD_PREFERENCE = "eligible_broad_preference"
    # Decided by a person.
    BY_REVIEWER = "by_reviewer"


class ActivationDecision(Contract):
    """What became of one version of one record, and on what grounds."""

    record: RecordRef
    outcome: ActivationOutcome
    reason: ActivationReason
    category: CategoryDecision | None = None
    """None: no policy was asked, or none answered."""
    evidence: VerifiedEvidence | None = None
    decided_at: UtcTime


class ActivationInput(Contract):
    """The records to evaluate: those one operation has written or changed."""

    principal: Principal
    record_ids: Annotated[tuple[RecordId, ...], Field(min_length=1, max_length=ACTIVATION_BATCH_MAX)]
    actor: Name
    cause: Name
    """What made an evaluation due: `remembered`, `corrected`, `contradicted`, `imported`, `extracted`, ..."""


class ActivationReport(Contract):
    """Outcomes of one evaluation; a record that is gone or unchanged since its last evaluation is not among them."""

    decisions: tuple[ActivationDecision, ...] = ()
    reviews: tuple[str, ...] = ()
    """Review ids that were opened or deferred."""


class StandingText(Contract):
    """What a category policy is shown of one record: its text and the user's own words behind it, nothing else."""

    text: RecordText
    span: str
    session_turn: str
    """The whole turn the span was found in."""


class ActivationView(Contract):
    """Why one record is where it is: what a person is shown who asks."""

    record: RecordRef
    text: str
    status: RecordStatus
    activation: Activation
    category: RetrievalCategory
    attribute: Name | None = None
    outcome: ActivationOutcome | None = None
    """Of its last evaluation; None: it was never evaluated."""
    reason: ActivationReason | None = None
    decided_at: UtcTime | None = None
    due: bool
    """Its present version was not evaluated yet."""
    proposal: CategoryDecision | None = None
    evidence: VerifiedEvidence | None = None
