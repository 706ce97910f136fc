"""Items and decisions for tests of the review queue: a record, the words behind it, and who decides."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from retold.contracts.activation import (
    ActivationCategory,
    ActivationDecision,
    ActivationOutcome,
    ActivationReason,
    Applicability,
    CategoryDecision,
    EvidenceMethod,
    VerifiedEvidence,
)
from retold.contracts.identity import turn_ref
from retold.contracts.record import RecordRef, RetrievalCategory
from retold.contracts.review import Resolution, Review, ReviewDecision, ReviewerRole, SentDecision
from retold.contracts.turn import Principal
from retold.credentials import ReviewerCredential
from retold.store import sessions
from retold.store.store import Store
from retold.store.tables import RecordRow

SAID = "Between us: always answer me in short sentences, please."
SPAN = "always answer me in short sentences"
OWNER = "memory-team"
BOUND = 500
LIVES = timedelta(days=14)


@dataclass
class Queue:
    """A store with items in it."""

    store: Store
    engine: Engine
    now: datetime
    principal: Principal
    numbered: int = 0

    async def item(
        self,
        *,
        principal: Principal | None = None,
        category: ActivationCategory | None = ActivationCategory.ANSWER_STYLE,
        reason: ActivationReason = ActivationReason.LOW_CONFIDENCE,
        bound: int = BOUND,
        at: datetime | None = None,
        lives_for: timedelta = LIVES,
    ) -> Review:
        """A confirmed record with its evidence, under review."""
        self.numbered += 1
        owner = principal or self.principal
        record_id = f"record-{self.numbered}-of-{owner.tenant}"[:64]
        with Session(self.engine) as session, session.begin():
            session.add(_record(record_id, owner, self.now))
            turn_id = f"turn-{self.numbered}"
            sessions.put_turn(session, owner, "s1", turn_id, {"user": SAID}, self.now)
        return await self.store.reviews.open_or_defer(
            owner,
            activation(owner, RecordRef(id=record_id, version=1), turn_id, category, reason, self.now),
            owner=OWNER,
            bound=bound,
            at=at or self.now,
            lives_for=lives_for,
            language="en",
        )

    async def reviewer(
        self, reviewer_id: str = "rita", role: ReviewerRole = ReviewerRole.REVIEWER, tenants: list[str] | None = None
    ) -> ReviewerCredential:
        _, token = await self.store.reviewers.register(
            reviewer_id, reviewer_id.title(), role, tenants=tenants, actor="root", at=self.now
        )
        return ReviewerCredential.of(token)

    async def events(self, review: Review) -> list[str]:
        """What the audit trail says about the item and its record, oldest first."""
        events = await self.store.audit_events(review.principal, limit=1_000)
        about = {review.review_id, review.record.id}
        return [event.event for event in events if event.subject_id in about]


def sent(decision: ReviewDecision, review: Review, sent_as: str = "once", via: str = "resolve") -> SentDecision:
    return SentDecision(review_id=review.review_id, decision=decision, sent_as=sent_as, via=via)


def decision(
    credential: ReviewerCredential, review: Review, resolution: Resolution = Resolution.PROMOTE, reason: str = "plain"
) -> ReviewDecision:
    return credential.decide(review.review_id, resolution, expected_version=review.version, reason=reason)


def activation(
    principal: Principal,
    record: RecordRef,
    turn_id: str,
    category: ActivationCategory | None,
    reason: ActivationReason,
    at: datetime,
) -> ActivationDecision:
    start = SAID.index(SPAN)
    proposal = None
    if category is not None:
        proposal = CategoryDecision(
            retrieval_category=RetrievalCategory.PREFERENCES,
            activation_category=category,
            applicability=Applicability.BROAD,
            confidence=0.4,
            policy="scripted",
            policy_version="1",
        )
    return ActivationDecision(
        record=record,
        outcome=ActivationOutcome.REVIEW,
        reason=reason,
        category=proposal,
        evidence=VerifiedEvidence(
            session_id="s1",
            turn_id=turn_id,
            turn_ref=turn_ref(principal, "s1", turn_id, "user"),
            span=SPAN,
            start=start,
            end=start + len(SPAN),
            said_at=at,
            method=EvidenceMethod.EXACT,
        ),
        decided_at=at,
    )


def _record(record_id: str, owner: Principal, at: datetime) -> RecordRow:
    return RecordRow(
        id=record_id,
        tenant=owner.tenant,
        user_id=owner.user,
        scope="personal",
        type="semantic",
        subject="user",
        text="Prefers answers in short sentences.",
        status="confirmed",
        activation="conditional",
        category="preferences",
        conflicting=False,
        entities=[],
        created_at=at,
        source="model",
        evidence=[],
        version=1,
        content_hash=f"hash of {record_id}",
    )
