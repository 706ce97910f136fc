"""Generation on the host's own worker, in whatever language (design section 3.8).

The two activities are the host's; their answers are checked here, because nobody else has. Whatever a host answers,
too late, too long, not an answer at all, the turn goes on as it would after any other failing model.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy

with workflow.unsafe.imports_passed_through():
    from pydantic import BaseModel, ValidationError

    from retold.contracts import names
    from retold.contracts.host_generation import (
        AdmittedMemory,
        HostAnswer,
        HostDraftInput,
        HostRegenerateInput,
    )
    from retold.contracts.stages import (
        DraftInput,
        DraftResult,
        FailureKind,
        Limit,
        ModelUse,
        RegenerateInput,
        RegenerateResult,
        Stage,
        StageFailure,
    )
    from retold.contracts.turn import HostGeneration, TurnRequest

BACKSTOP = timedelta(seconds=1)
RETRY_AFTER = timedelta(seconds=1)
"""No sooner: with 100 ms every retry under a pickup timeout below a second was counted as picked up by nobody,
because the server hands out retries by a clock that may be a second late."""
MALFORMED = StageFailure(kind=FailureKind.MALFORMED, error="HostAnswer")
LATE = StageFailure(kind=FailureKind.TIMEOUT, error="LimitReached")

Settles = Callable[["workflow.ActivityHandle[Any]", Limit], Awaitable[bool]]
"""Whether an activity ends within a limit: the driver's race against its deadline activity."""


class HostGenerator:
    """Calls one turn's host. The failure of a call itself passes through, for the driver to name."""

    def __init__(self, request: TurnRequest, host: HostGeneration, settles: Settles) -> None:
        self._request = request
        self._host = host
        self._settles = settles

    async def draft(self, stage: DraftInput) -> DraftResult:
        asked = HostDraftInput(**self._said(stage.profile.text, stage.limit))
        answer = _checked(await self._start(names.GENERATE_DRAFT, asked, stage.limit, attempts=2))
        if answer is None:
            return DraftResult(failure=MALFORMED)
        return DraftResult(text=answer.text, usage=(_use(Stage.DRAFT, answer),))

    async def regenerate(self, stage: RegenerateInput) -> RegenerateResult:
        """Load what is still admitted, here; then the host generates once more, with that block."""
        admitted: AdmittedMemory = await workflow.execute_local_activity(
            names.LOAD_ADMITTED,
            stage,
            result_type=AdmittedMemory,
            schedule_to_close_timeout=timedelta(milliseconds=stage.limit.limit_ms) + BACKSTOP,
            retry_policy=RetryPolicy(maximum_attempts=1),
        )
        if admitted.failure is not None or not admitted.applied:
            return RegenerateResult(failure=admitted.failure, gone=admitted.gone)
        asked = HostRegenerateInput(**self._said(stage.profile.text, stage.limit), memory=admitted.memory)
        call = self._start(names.REGENERATE, asked, stage.limit, attempts=1)
        if not await self._settles(call, stage.limit):
            call.cancel()
            return RegenerateResult(failure=LATE, gone=admitted.gone)
        answer = _checked(await call)
        if answer is None:
            return RegenerateResult(failure=MALFORMED, gone=admitted.gone)
        return RegenerateResult(
            text=answer.text,
            applied=admitted.applied,
            gone=admitted.gone,
            usage=(_use(Stage.REGENERATE, answer),),
        )

    def _said(self, profile: str, limit: Limit) -> dict[str, Any]:
        request = self._request
        return {
            "principal": request.principal,
            "session_id": request.session_id,
            "turn_id": request.turn_id,
            "text": request.text,
            "public_context": request.public_context,
            "profile": profile,
            "limit_ms": limit.limit_ms,
            "deadline_at": limit.deadline_at,
        }

    def _start(self, name: str, asked: BaseModel, limit: Limit, *, attempts: int) -> workflow.ActivityHandle[Any]:
        """The whole call is bounded, its wait for a worker too, however often a dying worker drops it."""
        whole = timedelta(milliseconds=limit.limit_ms) + BACKSTOP
        beat = self._host.heartbeat_timeout_ms
        return workflow.start_activity(
            name,
            asked,
            result_type=RawValue,
            task_queue=self._host.task_queue,
            schedule_to_close_timeout=whole,
            schedule_to_start_timeout=min(whole, timedelta(milliseconds=self._host.pickup_timeout_ms)),
            heartbeat_timeout=None if beat is None else timedelta(milliseconds=beat),
            retry_policy=RetryPolicy(
                initial_interval=RETRY_AFTER,
                maximum_attempts=attempts,
                non_retryable_error_types=["PayloadsTooLarge"],
            ),
            cancellation_type=workflow.ActivityCancellationType.TRY_CANCEL,
        )


def _checked(answer: RawValue | None) -> HostAnswer | None:
    """The host's answer, if it is one.

    Read here and not by the converter, which fails the workflow task, again and again, on what it cannot decode: half
    an emoji is enough, and `JSON.stringify` lets that pass.
    """
    try:
        return None if answer is None else HostAnswer.model_validate_json(answer.payload.data)
    except ValidationError:
        return None


def _use(role: Stage, answer: HostAnswer) -> ModelUse:
    return ModelUse(
        role=role,
        model=answer.model,
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=answer.completion_tokens,
    )
