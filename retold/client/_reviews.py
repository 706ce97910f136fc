"""A reviewer's side of a review: decide it, and learn what became of the decision."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

from pydantic import ValidationError
from temporalio.client import (
    Client,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from retold.client._errors import RetoldError, UnreachableError, from_failure
from retold.contracts import names
from retold.contracts.activation import ActivationCategory
from retold.contracts.identity import review_workflow_id
from retold.contracts.refusal import refusal_text
from retold.contracts.review import (
    RefusedDecision,
    Resolution,
    ReviewDecision,
    ReviewOutcome,
    ReviewState,
)
from retold.credentials import MalformedTokenError, ReviewerCredential
from retold.policy.reviewing import refuse_reason

ANSWERED_WITHIN_S = 30.0
_CLOSED_MEANWHILE = "AcceptedUpdateCompletedWorkflow"
_AWAY = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)


class DecisionRefusedError(RetoldError):
    """The decision was not taken. That is on record; nothing else has changed."""


class AlreadyResolvedError(DecisionRefusedError):
    """Somebody was faster, or the item had expired."""


class StaleReviewError(DecisionRefusedError):
    """The item is in another version than the one that was looked at: look again."""


class NotAReviewerError(DecisionRefusedError):
    """The token is nobody's, disabled, a viewer's, or not for this tenant; or the decision was altered."""


class UnknownResolutionError(DecisionRefusedError):
    """What was said is none of the three resolutions."""


class ReviewWithdrawnError(DecisionRefusedError):
    """The record changed or is gone: there is nothing to decide any more."""


class ReviewNotOpenError(DecisionRefusedError):
    """The backlog is full and the item waits for room: too early."""


class UnknownReviewError(DecisionRefusedError):
    """There is no such item."""


class NotPromotableError(DecisionRefusedError):
    """The record may not be promoted: evidence, eligibility or category do not stand. It can be kept or rejected."""


class MalformedDecisionError(DecisionRefusedError, ValueError):
    """A field is out of bounds; nothing was sent."""


class DecisionUnansweredError(RetoldError):
    """Sent, and no answer in time: it may still be taken. Send the same decision again; it counts once."""


_BY_KIND: dict[str, type[DecisionRefusedError]] = {
    RefusedDecision.ALREADY_RESOLVED: AlreadyResolvedError,
    RefusedDecision.STALE_VERSION: StaleReviewError,
    RefusedDecision.NOT_A_REVIEWER: NotAReviewerError,
    RefusedDecision.UNKNOWN_RESOLUTION: UnknownResolutionError,
    RefusedDecision.WITHDRAWN: ReviewWithdrawnError,
    RefusedDecision.NOT_OPEN_YET: ReviewNotOpenError,
    RefusedDecision.UNKNOWN_REVIEW: UnknownReviewError,
    RefusedDecision.NOT_ELIGIBLE: NotPromotableError,
    RefusedDecision.MALFORMED: MalformedDecisionError,
    names.INVALID_REQUEST: MalformedDecisionError,
}


class Reviews:
    """Decides reviews. The token stays here: what is sent is a signature."""

    def __init__(
        self,
        client: Client,
        *,
        task_queue: str = names.LIFECYCLE_QUEUE,
        answered_within_s: float = ANSWERED_WITHIN_S,
    ) -> None:
        self._client = client
        self._task_queue = task_queue
        self._answered_within_s = answered_within_s

    async def resolve(
        self,
        review_id: str,
        resolution: Resolution,
        *,
        expected_version: int,
        reason: str,
        token: str,
        category: ActivationCategory | None = None,
    ) -> ReviewOutcome:
        """Decide one item.

        Args:
            expected_version: of the item that was looked at.
            reason: 1 to 500 characters, without a secret; kept in the audit trail beside the reviewer's name.
            token: the reviewer's own. It leaves this process in no form.
            category: for a promotion where no policy named one.

        Raises:
            DecisionRefusedError: it was not taken; the subclass says why.
            DecisionUnansweredError: no answer in time.
            UnreachableError: Temporal is out of reach.
        """
        if (unkept := refuse_reason(reason)) is not None:
            raise MalformedDecisionError(unkept.why)
        try:
            decision = ReviewerCredential.of(token).decide(
                review_id, resolution, expected_version=expected_version, reason=reason, category=category
            )
        except MalformedTokenError as error:
            raise NotAReviewerError(str(error)) from error
        except ValidationError as error:
            raise MalformedDecisionError(refusal_text(error)) from error
        return await self.send(decision)

    async def send(self, decision: ReviewDecision) -> ReviewOutcome:
        """Like :meth:`resolve`, for a decision that is already signed. Sent again, it counts once."""
        try:
            async with asyncio.timeout(self._answered_within_s):
                return await self._send(decision)
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
            raise DecisionUnansweredError(
                f"no answer within {self._answered_within_s:g} s; it may still be taken: send it again, it counts once"
            ) from error
        except RuntimeError as error:  # a lazy client that cannot make its first connection
            raise UnreachableError(f"Temporal is out of reach ({str(error)[:200]}); check its address") from error
        except RPCError as error:
            if error.status not in _AWAY:
                raise
            raise UnreachableError(f"Temporal is out of reach ({error.status.name}); check its address") from error

    async def state(self, review_id: str) -> ReviewState:
        """Where the item stands, as its workflow has heard.

        Raises:
            UnknownReviewError: no workflow of this item is on record: see the store.
        """
        try:
            found: ReviewState = await self._handle(review_id).query(names.REVIEW_STATE, result_type=ReviewState)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            raise UnknownReviewError(f"Temporal knows no review {review_id}") from error
        return found

    async def _send(self, decision: ReviewDecision) -> ReviewOutcome:
        try:
            outcome: ReviewOutcome = await self._handle(decision.review_id).execute_update(
                names.RESOLVE_REVIEW, decision, id=str(uuid4()), result_type=ReviewOutcome
            )
        except WorkflowUpdateFailedError as failure:
            cause = failure.cause
            if isinstance(cause, ApplicationError) and cause.type in _BY_KIND:
                raise _BY_KIND[cause.type](cause.message) from None
            if not _closed(cause):
                raise RetoldError(f"the decision could not be handled: {cause}") from failure
        except RPCError as error:
            if not _closed(error):
                raise
        else:
            return outcome
        return await self._ask_the_row(decision)

    async def _ask_the_row(self, decision: ReviewDecision) -> ReviewOutcome:
        """No open workflow took it: too late, lost a race, or too early. The row says which, and it is audited.

        If the lost update was the one that decided, this finds its own decision and answers with the outcome.
        """
        try:
            outcome: ReviewOutcome = await self._client.execute_workflow(
                names.DECIDE_REVIEW_WORKFLOW,
                decision,
                id=f"decide-review/{decision.review_id}/{uuid4()}",
                task_queue=self._task_queue,
                result_type=ReviewOutcome,
                execution_timeout=timedelta(minutes=5),
            )
        except WorkflowFailureError as failure:
            cause = failure.cause
            if isinstance(cause, ApplicationError) and cause.type in _BY_KIND:
                raise _BY_KIND[cause.type](cause.message) from None
            raise from_failure(failure) from failure
        return outcome

    def _handle(self, review_id: str) -> WorkflowHandle[Any, Any]:
        return self._client.get_workflow_handle(review_workflow_id(review_id))


def _closed(error: BaseException | None) -> bool:
    """Whether the workflow was not there to answer: never started, gone, or closed while the update was on its way."""
    if isinstance(error, ApplicationError):
        return error.type == _CLOSED_MEANWHILE
    if isinstance(error, RPCError):
        return error.status is RPCStatusCode.NOT_FOUND or "closing workflow" in error.message
    return False
