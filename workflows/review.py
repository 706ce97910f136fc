"""One proposed standing preference waits for a person: days, through restarts, to exactly one end.

The row in the store is the truth and every change of it is one activity's transaction; the workflow is the item's
clock and the door reviewers knock at. So a decision that lost its race, or came after this had closed, is refused by
the same rules in the same place, and nothing that befalls the workflow can decide an item twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy, SearchAttributeKey
from temporalio.exceptions import ActivityError, ApplicationError, ApplicationErrorCategory

with workflow.unsafe.imports_passed_through():
    from retold.contracts import names
    from retold.contracts.review import (
        DecisionAnswer,
        RefusedDecision,
        ReviewDecision,
        ReviewInput,
        ReviewOutcome,
        ReviewState,
        ReviewStatus,
        ReviewStep,
        ReviewStepInput,
        SentDecision,
    )
    from retold.policy.reviewing import SIGNALLED
    from workflows.accepting import WRONGLY_CALLED, accepted
    from workflows.durably import MISSED_AFTER

STATUS_KEY = SearchAttributeKey.for_keyword(names.REVIEW_STATUS_ATTRIBUTE)
_RETRIES = RetryPolicy(
    initial_interval=timedelta(milliseconds=500),
    maximum_interval=timedelta(seconds=30),
    non_retryable_error_types=["PayloadsTooLarge"],
)
_ENDED_ELSEWHERE = (RefusedDecision.ALREADY_RESOLVED, RefusedDecision.WITHDRAWN, RefusedDecision.UNKNOWN_REVIEW)


@workflow.defn(name=names.REVIEW_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class ReviewWorkflow:
    @workflow.init
    def __init__(self, request: RawValue) -> None:
        # Decisions may come before `run` does, so what it was started with is read here and refused there.
        self._refusal: ApplicationError | None = None
        self._outcome: ReviewOutcome | None = None
        self._asked_to_look = False
        try:
            self._input = accepted(ReviewInput, request)
        except ApplicationError as refusal:
            self._refusal = refusal
            return
        self._looked_at = workflow.now()
        self._state = ReviewState(
            review_id=self._input.review_id,
            status=ReviewStatus.OPEN,
            version=1,
            owner=self._input.owner,
            expires_at=self._input.expires_at,
        )

    @workflow.run
    async def run(self, request: RawValue) -> ReviewOutcome:
        if self._refusal is not None:
            raise self._refusal
        if workflow.info().continued_run_id is not None:
            await self._take(ReviewStep.LOOK)  # what was done before is in the row
        while self._outcome is None:
            if workflow.info().is_continue_as_new_suggested():
                await workflow.wait_condition(workflow.all_handlers_finished)
                if self._outcome is None:
                    workflow.continue_as_new(self._input)
                break
            await self._wait_and_step()
        # Whoever has knocked gets an answer before the door is closed.
        await workflow.wait_condition(workflow.all_handlers_finished)
        if workflow.info().typed_search_attributes.get(STATUS_KEY) is not None:
            # Only if it was accepted at the start: setting one the namespace lacks would stop this workflow for ever.
            workflow.upsert_search_attributes([STATUS_KEY.value_set(self._outcome.status.value)])
        return self._outcome

    @workflow.update(name=names.RESOLVE_REVIEW)
    async def resolve(self, argument: RawValue) -> ReviewOutcome:
        """Decide the item. Refusals are ApplicationErrors whose type is one of `RefusedDecision`."""
        update = workflow.current_update_info()
        assert update is not None
        return _outcome_of(await self._decide(argument, names.RESOLVE_REVIEW, update.id))

    @resolve.validator
    def _is_a_decision(self, argument: RawValue) -> None:
        # No more than this here: a rejection by the validator leaves no trace, and every refused decision must.
        accepted(ReviewDecision, argument)

    @workflow.signal(dynamic=True)
    async def signalled(self, name: str, arguments: Sequence[RawValue]) -> None:
        """`approve`, `keep_conditional`, `reject` with a signed decision, and `look`. Whatever comes, nothing raises:
        an error in a signal's handler would end the workflow."""
        if self._refusal is not None:
            return
        if name == names.LOOK_AT_REVIEW:
            self._asked_to_look = True
        elif name in SIGNALLED:
            argument = arguments[0] if len(arguments) == 1 else None
            try:
                await self._decide(argument, name, str(workflow.uuid4()))
            except ActivityError:
                workflow.logger.warning("a signalled decision could not be handled; the item stays as it is")
        else:
            workflow.logger.warning("an unknown signal was ignored")

    @workflow.query(name=names.REVIEW_STATE)
    def state(self) -> ReviewState:
        """Where the item stands, as far as this workflow has heard."""
        if self._refusal is not None:
            raise self._refusal
        return self._state

    async def _decide(self, argument: RawValue | None, via: str, sent_as: str) -> DecisionAnswer:
        if self._refusal is not None:
            raise self._refusal
        decision, problem = _read(argument)
        answer = await decide(
            SentDecision(
                review_id=self._input.review_id,
                decision=decision,
                sent_as=sent_as[:128],
                via=via,
                problem=problem,
            )
        )
        if answer.outcome is not None:
            self._end(answer.outcome)
        elif answer.refused in _ENDED_ELSEWHERE:
            self._asked_to_look = True
        return answer

    async def _wait_and_step(self) -> None:
        """Until something happens, or the next step is due; then that step."""
        due_at, step = self._next_step()
        timeout = max(due_at - workflow.now(), timedelta(0))
        try:
            await workflow.wait_condition(
                lambda: (
                    self._outcome is not None
                    or self._asked_to_look
                    or workflow.info().is_continue_as_new_suggested()  # refused decisions make a history long, too
                ),
                timeout=timeout,
                timeout_summary=f"{step.value} is due",
            )
        except TimeoutError:
            await self._take(step)
            return
        if self._outcome is None and self._asked_to_look:
            await self._take(ReviewStep.LOOK)

    def _next_step(self) -> tuple[datetime, ReviewStep]:
        item = self._input
        steps = [
            (self._state.expires_at, ReviewStep.EXPIRE),
            (self._looked_at + timedelta(seconds=item.look_every_s), ReviewStep.LOOK),
        ]
        if not self._state.reminded:
            steps.append((item.opened_at + timedelta(seconds=item.remind_after_s), ReviewStep.REMIND))
        if not self._state.escalated:
            steps.append((item.opened_at + timedelta(seconds=item.escalate_after_s), ReviewStep.ESCALATE))
        return min(steps, key=lambda due: due[0])

    async def _take(self, step: ReviewStep) -> None:
        self._asked_to_look = False
        state: ReviewState = await workflow.execute_activity(
            names.STEP_REVIEW,
            ReviewStepInput(review_id=self._input.review_id, step=step),
            result_type=ReviewState,
            start_to_close_timeout=timedelta(minutes=1),
            heartbeat_timeout=MISSED_AFTER,
            retry_policy=_RETRIES,
            summary=step.value,
        )
        self._looked_at = workflow.now()
        if self._outcome is None:  # a decision may have been taken while we looked
            self._state = state
            if state.ended:
                self._end(
                    ReviewOutcome(
                        review_id=state.review_id,
                        status=state.status,
                        record=self._input.record,
                        resolved_by=state.resolved_by,
                        resolved_at=state.resolved_at or self._looked_at,
                    )
                )

    def _end(self, outcome: ReviewOutcome) -> None:
        self._outcome = outcome
        self._state = self._state.model_copy(
            update={
                "status": outcome.status,
                "resolved_by": outcome.resolved_by,
                "resolved_at": outcome.resolved_at,
            }
        )


@workflow.defn(name=names.DECIDE_REVIEW_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class DecideReviewWorkflow:
    """A decision that found no open workflow: its item has ended, or its workflow is yet to start. The row decides."""

    @workflow.run
    async def run(self, request: RawValue) -> ReviewOutcome:
        decision = accepted(ReviewDecision, request)
        sent_as = workflow.info().run_id
        return _outcome_of(
            await decide(
                SentDecision(review_id=decision.review_id, decision=decision, sent_as=sent_as, via="operation")
            )
        )


async def decide(sent: SentDecision) -> DecisionAnswer:
    """Ask the store. Retried until it answers: a refusal is an answer."""
    answer: DecisionAnswer = await workflow.execute_activity(
        names.DECIDE_REVIEW,
        sent,
        result_type=DecisionAnswer,
        start_to_close_timeout=timedelta(seconds=20),
        heartbeat_timeout=MISSED_AFTER,
        retry_policy=_RETRIES,
    )
    return answer


def _outcome_of(answer: DecisionAnswer) -> ReviewOutcome:
    if answer.outcome is None:
        kind = RefusedDecision.ALREADY_RESOLVED if answer.refused is None else answer.refused
        raise ApplicationError(
            answer.why, type=kind.value, non_retryable=True, category=ApplicationErrorCategory.BENIGN
        )
    return answer.outcome


def _read(argument: RawValue | None) -> tuple[ReviewDecision | None, str]:
    """The decision, or why it is none."""
    if argument is None:
        return None, "exactly one argument is taken, a JSON ReviewDecision"
    try:
        return accepted(ReviewDecision, argument), ""
    except ApplicationError as refusal:
        # It may name fields as the sender called them: nothing that a database could not keep.
        return None, refusal.message.encode("ascii", "backslashreplace").decode().replace("\x00", "\\0")[:300]
