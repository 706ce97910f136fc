"""The turn in which somebody said what is now evaluated or reviewed: linked to, so that either trace leads on."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

from retold.contracts.activation import VerifiedEvidence
from retold.contracts.decision import TurnDecision
from retold.contracts.identity import decision_id, turn_workflow_id
from retold.contracts.turn import Principal
from retold.store.engine import StoreUnavailableError
from retold.telemetry.names import lead_back_to

DecisionOf = Callable[[str], Awaitable[TurnDecision | None]]
"""A turn's decision by its id, as the store has it."""


async def no_decisions(_: str) -> None:
    """Where nobody asks how anything came about."""


async def link_to_turn(decision_of: DecisionOf, id: str | None) -> None:
    """Link the current span to the turn of this decision. What was imported has none, and an old one may be gone."""
    if id is None:
        return
    with contextlib.suppress(StoreUnavailableError):  # a link is worth no failure
        decision = await decision_of(id)
        if decision is not None:
            lead_back_to(decision.trace_id, decision.span_id)


def decision_behind(principal: Principal, evidence: VerifiedEvidence | None) -> str | None:
    """The id of the decision about the turn in which the principal said it."""
    if evidence is None:
        return None
    return decision_id(turn_workflow_id(principal, evidence.session_id, evidence.turn_id))
