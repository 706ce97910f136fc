"""Reviews as they come about, with texts of every kind, in a real store: for tests of the page and to look at it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Engine, update
from sqlalchemy.orm import Session
from sqlmodel import col

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
from retold.contracts.review import Review, ReviewerRole
from retold.contracts.turn import Principal
from retold.store import sessions
from retold.store.store import Store
from retold.store.tables import RecordRow, ReviewerRow, ReviewRow

OWNER = "memory-team"
BOUND = 500
RULE = "Answers in short sentences."
SAID = "Thanks, that was long. Please always answer me in short sentences from now on, whatever I ask."
SPAN = "always answer me in short sentences from now on"


@dataclass
class Seeding:
    """Puts items into a store. Each has a record, the turn it was said in, and the evidence between them."""

    store: Store
    engine: Engine
    now: datetime
    numbered: int = 0

    async def item(
        self,
        rule: str = RULE,
        said: str = SAID,
        span: str = SPAN,
        *,
        tenant: str = "harbour",
        user: str = "tove",
        reason: ActivationReason = ActivationReason.LOW_CONFIDENCE,
        category: ActivationCategory | None = ActivationCategory.ANSWER_STYLE,
        language: str | None = "en",
        method: EvidenceMethod = EvidenceMethod.EXACT,
        age: timedelta = timedelta(hours=5),
        bound: int = BOUND,
    ) -> Review:
        self.numbered += 1
        owner, at = Principal(tenant=tenant, user=user), self.now - age
        record_id, turn_id = f"rec-{self.numbered:05d}", f"turn-{self.numbered}"
        with Session(self.engine) as session, session.begin():
            session.add(self.record(record_id, owner, rule, at))
            sessions.put_turn(session, owner, "s1", turn_id, {"user": said}, at)
        evidence = VerifiedEvidence(
            session_id="s1",
            turn_id=turn_id,
            turn_ref=turn_ref(owner, "s1", turn_id, "user"),
            span=span,
            start=said.index(span),
            end=said.index(span) + len(span),
            said_at=at,
            method=method,
            similarity=0.83 if method is EvidenceMethod.SIMILAR else 1.0,
        )
        decision = ActivationDecision(
            record=RecordRef(id=record_id, version=1),
            outcome=ActivationOutcome.REVIEW,
            reason=reason,
            category=None if category is None else self._proposal(category),
            evidence=evidence,
            decided_at=at,
        )
        return await self.store.reviews.open_or_defer(
            owner, decision, owner=OWNER, bound=bound, at=at, lives_for=timedelta(days=30), language=language
        )

    def ambient(self, rule: str, *, tenant: str = "harbour", user: str = "tove") -> None:
        """A standing instruction the user has already."""
        self.numbered += 1
        owner = Principal(tenant=tenant, user=user)
        with Session(self.engine) as session, session.begin():
            row = self.record(f"rec-{self.numbered:05d}", owner, rule, self.now - timedelta(days=40))
            row.activation = "ambient"
            session.add(row)

    def damage(self, review: Review) -> None:
        """The row becomes one that no version of Retold wrote."""
        self.change(review, reason="a_reason_from_the_future", category="no_such_category")

    def change(self, review: Review, **columns: object) -> None:
        with Session(self.engine) as session, session.begin():
            chosen = col(ReviewRow.review_id) == review.review_id
            session.execute(update(ReviewRow).where(chosen).values(**columns))

    def change_record(self, review: Review, **columns: object) -> None:
        with Session(self.engine) as session, session.begin():
            session.execute(update(RecordRow).where(col(RecordRow.id) == review.record.id).values(**columns))

    def change_person(self, reviewer_id: str, **columns: object) -> None:
        with Session(self.engine) as session, session.begin():
            chosen = col(ReviewerRow.reviewer_id) == reviewer_id
            session.execute(update(ReviewerRow).where(chosen).values(**columns))

    async def person(
        self,
        reviewer_id: str = "rita",
        role: ReviewerRole = ReviewerRole.REVIEWER,
        tenants: list[str] | None = None,
        name: str = "Rita Okonjo",
    ) -> str:
        """A new reviewer's token."""
        _, token = await self.store.reviewers.register(
            reviewer_id, name, role, tenants=tenants, actor="root", at=self.now - timedelta(days=90)
        )
        return token

    @staticmethod
    def record(record_id: str, owner: Principal, text: str, at: datetime) -> RecordRow:
        return RecordRow(
            id=record_id,
            tenant=owner.tenant,
            user_id=owner.user,
            scope="personal",
            type="semantic",
            subject="user",
            attribute=f"attribute of {record_id}",
            text=text,
            status="confirmed",
            activation="conditional",
            category="preferences",
            conflicting=False,
            entities=[],
            created_at=at,
            source="principal",
            evidence=[],
            version=1,
            content_hash=f"hash of {record_id}",
        )

    @staticmethod
    def _proposal(category: ActivationCategory) -> CategoryDecision:
        return CategoryDecision(
            retrieval_category=RetrievalCategory.PREFERENCES,
            activation_category=category,
            applicability=Applicability.BROAD,
            confidence=0.62,
            policy="local-activation",
            policy_version="2026-11",
        )
