"""Decisions on their way to the workflow of their item, and what came back, in the page's terms."""

from __future__ import annotations

from temporalio.client import Client
from temporalio.service import RPCError

from retold.client import (
    AlreadyResolvedError,
    DecisionUnansweredError,
    MalformedDecisionError,
    NotAReviewerError,
    NotPromotableError,
    RetoldError,
    ReviewNotOpenError,
    Reviews,
    ReviewWithdrawnError,
    StaleReviewError,
    UnknownResolutionError,
    UnknownReviewError,
    UnreachableError,
)
from retold.client import DecisionRefusedError as RefusedByTheWorkflow
from retold.console.desk import DecisionNotSentError, DecisionRefusedError, DecisionUnknownError
from retold.contracts.review import RefusedDecision, ReviewDecision, ReviewOutcome

ANSWERED_WITHIN_S = 15.0
"""A person waits for this answer, with the page open."""

KINDS: dict[type[RefusedByTheWorkflow], RefusedDecision] = {
    AlreadyResolvedError: RefusedDecision.ALREADY_RESOLVED,
    StaleReviewError: RefusedDecision.STALE_VERSION,
    NotAReviewerError: RefusedDecision.NOT_A_REVIEWER,
    UnknownResolutionError: RefusedDecision.UNKNOWN_RESOLUTION,
    ReviewWithdrawnError: RefusedDecision.WITHDRAWN,
    ReviewNotOpenError: RefusedDecision.NOT_OPEN_YET,
    UnknownReviewError: RefusedDecision.UNKNOWN_REVIEW,
    NotPromotableError: RefusedDecision.NOT_ELIGIBLE,
    MalformedDecisionError: RefusedDecision.MALFORMED,
}


class Sending:
    """`Send` over a Temporal client, which may be lazy: the page works while Temporal is away."""

    def __init__(self, client: Client, *, task_queue: str, answered_within_s: float = ANSWERED_WITHIN_S) -> None:
        self._reviews = Reviews(client, task_queue=task_queue, answered_within_s=answered_within_s)

    async def __call__(self, decision: ReviewDecision) -> ReviewOutcome:
        """Send a signed decision.

        Raises:
            DecisionRefusedError: it was not taken.
            DecisionNotSentError: Temporal is out of reach.
            DecisionUnknownError: it was sent, and nobody answered.
        """
        try:
            return await self._reviews.send(decision)
        except RefusedByTheWorkflow as refused:
            raise DecisionRefusedError(KINDS[type(refused)], str(refused)) from refused
        except UnreachableError as error:
            raise DecisionNotSentError from error
        except (DecisionUnansweredError, RetoldError, RPCError) as error:
            raise DecisionUnknownError from error
