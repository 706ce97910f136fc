"""`evaluate_activation`: the records that an operation has written or changed, one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio import activity

from activities.heartbeat import heartbeating
from activities.origins import DecisionOf, decision_behind, link_to_turn, no_decisions
from retold.contracts import names
from retold.contracts.activation import ActivationDecision, ActivationInput, ActivationReport
from retold.policy.activation.service import ActivationService, Settled
from retold.telemetry import metrics
from retold.telemetry.names import CAUSE, EVALUATION_SPAN, RECORDS, turn_span


@dataclass(frozen=True)
class ActivationActivities:
    service: ActivationService
    decision_of: DecisionOf = no_decisions

    def get_activities(self) -> Sequence[Callable[..., Any]]:
        return [self.evaluate_activation]

    @activity.defn(name=names.EVALUATE_ACTIVATION)
    async def evaluate_activation(self, request: ActivationInput) -> ActivationReport:
        """Evaluate each record. One that cannot be evaluated now keeps no other waiting; the attempt fails at its end.

        A later attempt finds what an earlier one settled, and settles nothing twice.
        """
        with turn_span(EVALUATION_SPAN, {CAUSE: request.cause, RECORDS: len(request.record_ids)}):
            return await self._evaluate(request)

    async def _evaluate(self, request: ActivationInput) -> ActivationReport:
        async with heartbeating():
            decisions: list[ActivationDecision] = []
            reviews: list[str] = []
            failures: list[Exception] = []
            for record_id in request.record_ids:
                try:
                    settled = await self.service.evaluate(
                        request.principal, record_id, actor=request.actor, cause=request.cause
                    )
                except Exception as error:  # noqa: BLE001 - raised below, when the others have had their turn
                    failures.append(error)
                    continue
                if settled is not None:
                    _count(settled)
                    evidence = settled.decision.evidence
                    await link_to_turn(self.decision_of, decision_behind(request.principal, evidence))
                    decisions.append(_without_words(settled.decision))
                    reviews += [settled.review_id] if settled.review_id is not None else []
            if failures:
                raise failures[0]
            return ActivationReport(decisions=tuple(decisions), reviews=tuple(reviews))


def _count(settled: Settled) -> None:
    outcome, reason = settled.decision.outcome, settled.decision.reason
    metrics.count(metrics.ACTIVATIONS, outcome=outcome.value, reason=reason.value)
    drifted = "true" if settled.drifted else "false"
    metrics.count(metrics.CATEGORY_DRIFT, category=settled.assigned.value, drifted=drifted)


def _without_words(decision: ActivationDecision) -> ActivationDecision:
    """What a history may keep: neither what the user said, nor what a model said about it."""
    category = decision.category
    if category is not None:
        category = category.model_copy(update={"rationale": ""})
    return decision.model_copy(update={"evidence": None, "category": category})
