"""What codes mean, in the words of the page. Every table is total: a test asks for each value of each enumeration."""

from __future__ import annotations

from datetime import datetime, timedelta

from retold.contracts.activation import ActivationCategory, ActivationOutcome, ActivationReason, EvidenceMethod
from retold.contracts.review import RefusedDecision, Resolution, ReviewStatus

WHY: dict[ActivationReason, str] = {
    ActivationReason.NOT_SEMANTIC: "It is an event or a procedure, not something that holds by itself.",
    ActivationReason.NOT_ABOUT_PRINCIPAL: "It is about somebody else, not about the user.",
    ActivationReason.NOT_ACTIVE: "The record is not in use.",
    ActivationReason.SUPERSEDED: "A later record replaced it.",
    ActivationReason.NOT_YET_VALID: "It does not hold yet.",
    ActivationReason.EXPIRED: "It no longer holds: its time is over.",
    ActivationReason.SUSPENDED: "A temporary statement holds in its place.",
    ActivationReason.CONFLICTING: "It disagrees with another record, and nobody has said which one holds.",
    ActivationReason.NO_HOST_VERIFIED_EVIDENCE: "It was not found in the user's own words.",
    ActivationReason.CATEGORY_NOT_PROMOTABLE: "This kind of instruction never applies to every answer.",
    ActivationReason.TEMPORARY_PREFERENCE: "The user wants it for a time only.",
    ActivationReason.SCOPED_PREFERENCE: "The user wants it in some situations only.",
    ActivationReason.POLICY_TIMEOUT: "The classifier did not answer in time, so nobody has judged it yet.",
    ActivationReason.POLICY_ERROR: "The classifier failed, so nobody has judged it yet.",
    ActivationReason.POLICY_MALFORMED: "The classifier's answer could not be read, so nobody has judged it yet.",
    ActivationReason.FLAGGED_UNSAFE: "The classifier warns that applying this to every answer could do harm.",
    ActivationReason.AMBIGUOUS_APPLICABILITY: "It is not clear whether it should hold always or only sometimes.",
    ActivationReason.LOW_CONFIDENCE: "The classifier is not sure enough of its own answer.",
    ActivationReason.QUOTED: "The user may be quoting somebody rather than asking for it.",
    ActivationReason.THIRD_PARTY: "The user may be speaking about somebody else's wish.",
    ActivationReason.NEGATED: "The sentence holds a negation: it may mean the opposite.",
    ActivationReason.HYPOTHETICAL: "The user may only be imagining it.",
    ActivationReason.QUESTION: "It was put as a question.",
    ActivationReason.SARCASTIC: "The user may not mean it.",
    ActivationReason.RETRACTED: "The user may have taken it back in the same breath.",
    ActivationReason.CONTRADICTED: "The user said the opposite nearby, and takes neither back.",
    ActivationReason.LANGUAGE_NOT_REVIEWED: "The rules have not been checked for the language it was said in.",
    ActivationReason.NOT_PLAINLY_STANDING: "Nothing in the user's words says plainly that it should hold from now on.",
    ActivationReason.ELIGIBLE_GLOBAL_DEFAULT: "The user said plainly that it should always hold.",
    ActivationReason.ELIGIBLE_BROAD_PREFERENCE: "It is a broad preference of the user's own.",
    ActivationReason.BY_REVIEWER: "A reviewer decided.",
}

REASON: dict[ActivationReason, str] = {
    **{reason: reason.value.replace("_", " ") for reason in ActivationReason},
    ActivationReason.POLICY_TIMEOUT: "classifier timed out",
    ActivationReason.POLICY_ERROR: "classifier failed",
    ActivationReason.POLICY_MALFORMED: "classifier unreadable",
    ActivationReason.NO_HOST_VERIFIED_EVIDENCE: "no evidence",
    ActivationReason.AMBIGUOUS_APPLICABILITY: "always or sometimes?",
    ActivationReason.LANGUAGE_NOT_REVIEWED: "language not checked",
    ActivationReason.FLAGGED_UNSAFE: "may be unsafe",
}

REVIEW_REASONS = (
    ActivationReason.POLICY_TIMEOUT,
    ActivationReason.POLICY_ERROR,
    ActivationReason.POLICY_MALFORMED,
    ActivationReason.FLAGGED_UNSAFE,
    ActivationReason.AMBIGUOUS_APPLICABILITY,
    ActivationReason.LOW_CONFIDENCE,
    ActivationReason.QUOTED,
    ActivationReason.THIRD_PARTY,
    ActivationReason.NEGATED,
    ActivationReason.HYPOTHETICAL,
    ActivationReason.QUESTION,
    ActivationReason.SARCASTIC,
    ActivationReason.RETRACTED,
    ActivationReason.CONTRADICTED,
    ActivationReason.LANGUAGE_NOT_REVIEWED,
    ActivationReason.NOT_PLAINLY_STANDING,
)
"""What brings an item here, for the filter."""

STATUS: dict[ReviewStatus, str] = {
    ReviewStatus.DEFERRED: "waiting for room",
    ReviewStatus.OPEN: "open",
    ReviewStatus.PROMOTED: "promoted",
    ReviewStatus.KEPT_CONDITIONAL: "kept conditional",
    ReviewStatus.REJECTED: "rejected",
    ReviewStatus.EXPIRED: "expired",
    ReviewStatus.WITHDRAWN: "withdrawn",
}

ENDED: dict[ReviewStatus, str] = {
    ReviewStatus.PROMOTED: "It applies to every answer from this user's next session on.",
    ReviewStatus.KEPT_CONDITIONAL: "It is remembered, and used only where it is relevant.",
    ReviewStatus.REJECTED: "It is never used again.",
    ReviewStatus.EXPIRED: "Nobody decided in time. It stays conditional: remembered, used only where relevant.",
    ReviewStatus.WITHDRAWN: "The record changed or went away while it waited, so there is nothing left to decide here.",
}

CATEGORY: dict[ActivationCategory, str] = {
    ActivationCategory.ANSWER_STYLE: "answer style",
    ActivationCategory.RESPONSE_LANGUAGE: "response language",
    ActivationCategory.ACCESSIBILITY: "accessibility",
    ActivationCategory.OTHER: "other",
}

PROPOSED: dict[ActivationOutcome, str] = {
    ActivationOutcome.PROMOTE: "to promote it",
    ActivationOutcome.CONDITIONAL: "to keep it conditional",
    ActivationOutcome.REVIEW: "to ask a person",
}

METHOD: dict[EvidenceMethod, str] = {
    EvidenceMethod.EXACT: "word for word",
    EvidenceMethod.NORMALISED: "apart from case, spacing and punctuation",
    EvidenceMethod.SIMILAR: "in other words; polarity, language, scope and object agree",
}

CHOICE: dict[Resolution, tuple[str, str]] = {
    Resolution.PROMOTE: ("Promote", "Applies to every answer from the next session on."),
    Resolution.KEEP_CONDITIONAL: ("Keep conditional", "Remembered, and used only where it is relevant."),
    Resolution.REJECT: ("Reject", "Never used again. Say why."),
}

REFUSED: dict[RefusedDecision, tuple[str, str]] = {
    RefusedDecision.ALREADY_RESOLVED: (
        "Somebody was faster",
        "This item was decided while you looked at it. Your decision was not taken, and the history says you tried.",
    ),
    RefusedDecision.STALE_VERSION: (
        "The item changed while you looked at it",
        "Nothing was decided. Here is the item as it is now: look again, then decide.",
    ),
    RefusedDecision.NOT_A_REVIEWER: (
        "You may not decide this",
        "Nothing was decided: your role or your tenants do not allow it, or your token was replaced. Ask the owner.",
    ),
    RefusedDecision.UNKNOWN_RESOLUTION: ("Choose one of the three", "Nothing was decided."),
    RefusedDecision.WITHDRAWN: (
        "The item was withdrawn",
        "The record changed or went away while you looked at it, so nothing was decided.",
    ),
    RefusedDecision.NOT_OPEN_YET: (
        "It is not this item's turn yet",
        "The backlog is full, and the item waits for room. Nothing was decided.",
    ),
    RefusedDecision.UNKNOWN_REVIEW: ("There is no such item any more", "Nothing was decided."),
    RefusedDecision.MALFORMED: (
        "The decision could not be read",
        "Nothing was decided. Load the page again, then decide.",
    ),
    RefusedDecision.NOT_ELIGIBLE: (
        "It can no longer be promoted",
        "Its evidence, category or eligibility fell away since it was proposed. Nothing was decided; it can still be "
        "kept conditional or rejected.",
    ),
}


NOT_SENT = ("Temporal is away", "The decision could not be sent, so nothing was decided. Try again in a moment.")
UNANSWERED = (
    "Nobody answered",
    "The decision was sent, and no worker answered in time. It may still be taken: look at the item again, or send the "
    "same decision once more; it counts once.",
)


def happened(event: str) -> str:
    """`review.already_resolved` as it reads in a history: `already resolved`."""
    return event.rpartition(".")[2].replace("_", " ")


def because(reason: str) -> str:
    """Why something happened, as recorded: our own codes in words, anything else as it was written."""
    return REASON.get(ActivationReason(reason), reason) if reason in list(ActivationReason) else reason


def ago(at: datetime, now: datetime) -> str:
    """How long before `now` that was, in one unit: `3 days`. What lies ahead is `moments`."""
    return span(max(now - at, timedelta()))


def span(length: timedelta) -> str:
    minutes = int(length.total_seconds() // 60)
    if minutes < 1:
        return "moments"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h"
    return f"{minutes // (24 * 60)} days"


def seconds(length: float) -> str:
    return span(timedelta(seconds=length)) if length >= 60 else f"{length:.0f} s"


def utc(at: datetime) -> str:
    """`2026-06-01 12:00 UTC`."""
    return f"{at:%Y-%m-%d %H:%M} UTC"
