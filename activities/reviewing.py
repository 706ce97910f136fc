"""Reviews, as their workflows see them: steps of an item's clock, decisions, and workflows that are due to start."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from temporalio import activity

from activities.heartbeat import while_beating
from activities.origins import DecisionOf, link_to_turn, no_decisions
from activities.review_workflows import NOTIFIED_WITHIN_S, ReviewWorkflows
from retold.contracts import names
from retold.contracts.review import (
    DecisionAnswer,
    ReviewIds,
    ReviewOutcome,
    ReviewState,
    ReviewStatus,
    ReviewStep,
    ReviewStepInput,
    SentDecision,
)
from retold.notices import Occasion, ReviewNotice, ReviewNotifier
from retold.store.review_desk import ReviewDesk
from retold.telemetry import metrics
from retold.telemetry.names import (
    REVIEW_DECISION_SPAN,
    REVIEW_ID,
    REVIEW_STATUS,
    REVIEW_STEP_SPAN,
    STEP,
    turn_span,
)

logger = logging.getLogger(__name__)

_OCCASIONS = {ReviewStep.REMIND: Occasion.REMINDER, ReviewStep.ESCALATE: Occasion.ESCALATION}


@dataclass(frozen=True)
class ReviewActivities:
    """
    Args:
        now: what an item's clock and its record's go by; None: the database's clock. What ends by a worker's own that
            is wrong has ended for good.
    """

    desk: ReviewDesk
    notifier: ReviewNotifier
    workflows: ReviewWorkflows
    now: Callable[[], Awaitable[datetime]] | None = None
    decision_of: DecisionOf = no_decisions

    def get_activities(self) -> Sequence[Callable[..., Any]]:
        return [self.step_review, self.decide_review, self.start_reviews]

    @activity.defn(name=names.STEP_REVIEW)
    @while_beating
    async def step_review(self, request: ReviewStepInput) -> ReviewState:
        with turn_span(REVIEW_STEP_SPAN, {REVIEW_ID: request.review_id, STEP: request.step.value}) as span:
            await link_to_turn(self.decision_of, await self.desk.led_by(request.review_id))
            state = await self._step(request)
            span.set_attribute(REVIEW_STATUS, state.status.value)
            return state

    async def _step(self, request: ReviewStepInput) -> ReviewState:
        state = await self.desk.step(request.review_id, ReviewStep.LOOK, await self._now())
        if request.step is not ReviewStep.LOOK and not state.ended:
            # Told first, noted then: whoever dies in between tells them twice, never not at all.
            notified = await self._notify(request.step, state)
            state = await self.desk.step(request.review_id, request.step, await self._now(), notified=notified)
        if state.status in (ReviewStatus.EXPIRED, ReviewStatus.WITHDRAWN):
            metrics.count(metrics.REVIEW_DECISIONS, ended=state.status.value)
        return state

    @activity.defn(name=names.DECIDE_REVIEW)
    @while_beating
    async def decide_review(self, sent: SentDecision) -> DecisionAnswer:
        with turn_span(REVIEW_DECISION_SPAN, {REVIEW_ID: sent.review_id}) as span:
            await link_to_turn(self.decision_of, await self.desk.led_by(sent.review_id))
            answer = await self._decide(sent)
            span.set_attribute(REVIEW_STATUS, _named(answer))
            return answer

    async def _decide(self, sent: SentDecision) -> DecisionAnswer:
        decided = await self.desk.decide(sent, await self._now())
        if isinstance(decided.outcome, ReviewOutcome):
            if not decided.repeated:
                metrics.count(metrics.REVIEW_DECISIONS, ended=decided.outcome.status.value)
            return DecisionAnswer(outcome=decided.outcome)
        refusal = decided.outcome
        if not decided.repeated:
            metrics.count(metrics.REVIEW_REFUSALS, why=refusal.kind.value)
        return DecisionAnswer(refused=refusal.kind, why=refusal.why)

    @activity.defn(name=names.START_REVIEWS)
    @while_beating
    async def start_reviews(self, request: ReviewIds) -> int:
        """Start the workflows of these items now, instead of at the next sweep; how many are open."""
        return await self.workflows.start(await self.desk.due_by_id(request.review_ids))

    async def _now(self) -> datetime:
        return await (self.desk.now() if self.now is None else self.now())

    async def _notify(self, step: ReviewStep, state: ReviewState) -> bool:
        occasion = _OCCASIONS.get(step)
        done = {ReviewStep.REMIND: state.reminded, ReviewStep.ESCALATE: state.escalated}
        if occasion is None or done[step]:
            return True
        notice = ReviewNotice(
            occasion=occasion, owner=state.owner, review_id=state.review_id, expires_at=state.expires_at
        )
        try:
            async with asyncio.timeout(NOTIFIED_WITHIN_S):
                await self.notifier.notify(notice)
        except Exception as error:  # noqa: BLE001 - a notifier raises what it likes, and the item's clock goes on
            logger.warning("nobody was told of review %s: %s", state.review_id, type(error).__name__)
            return False
        return True


def _named(answer: DecisionAnswer) -> str:
    """What the decision made of the item, or why it was refused."""
    if answer.outcome is not None:
        return answer.outcome.status.value
    return "unknown" if answer.refused is None else answer.refused.value
