"""The host's side of a turn: send it, get its answer, on time or with a typed reason why not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal
from uuid import uuid4

from pydantic import ValidationError
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from retold.client._answers_here import answers_here, first_answer
from retold.client._connection import open_client
from retold.client._errors import (
    InvalidTurnError,
    TurnConflictError,
    TurnDeadlineError,
    UnreachableError,
    from_failure,
    out_of_reach,
)
from retold.client._forgetting import forgotten, to_forget
from retold.client._operating import operated
from retold.client._records import Records
from retold.contracts import names
from retold.contracts.extraction import ExtractInput, ExtractReport
from retold.contracts.forgetting import ForgetReceipt
from retold.contracts.identity import operation_workflow_id, request_digest, turn_workflow_id
from retold.contracts.operations import EndSessionInput
from retold.contracts.refusal import refusal_text
from retold.contracts.turn import (
    BUDGET_DEFAULT,
    Durability,
    HostGeneration,
    Principal,
    TurnOptions,
    TurnRequest,
    TurnResult,
)
from retold.telemetry.names import TURN_SPAN, turn_span

TURN_EXECUTION_TIMEOUT = timedelta(seconds=120)
"""Bounds a turn that no worker picks up. Above the sum of all default stage timeouts."""

TASK_TIMEOUT = timedelta(seconds=2)
"""How soon a turn is handed to another worker when the one that had it died."""


@dataclass(frozen=True)
class FallbackResult:
    """What the host's own fallback answered while Temporal was out of reach. No decision stands behind it."""

    answer: str
    why: str


Fallback = Callable[[TurnRequest], Awaitable[str]]


@asynccontextmanager
async def connect(
    *,
    address: str | None = None,
    namespace: str | None = None,
    profile: str | None = None,
    task_queue: str = names.TURNS_QUEUE,
    operations_queue: str = names.OPERATIONS_QUEUE,
    lifecycle_queue: str = names.LIFECYCLE_QUEUE,
    fallback: Fallback | None = None,
    reach_timeout_ms: int = 3_000,
) -> AsyncIterator[Host]:
    """Connect a host. Settings that are not given come from temporalio's environment configuration.

    The connection is made on first use, so a host starts while Temporal is away; with a `fallback` it also
    answers then.

    Args:
        reach_timeout_ms: how long starting a turn may take before Temporal counts as out of reach.
    """
    client = await open_client(address=address, namespace=namespace, profile=profile, lazy=True)
    yield Host(
        client,
        task_queue=task_queue,
        operations_queue=operations_queue,
        lifecycle_queue=lifecycle_queue,
        fallback=fallback,
        reach_timeout_ms=reach_timeout_ms,
    )


class Host:
    """Sends turns. One per process is enough; it holds no state of a turn."""

    def __init__(
        self,
        client: Client,
        *,
        task_queue: str = names.TURNS_QUEUE,
        operations_queue: str = names.OPERATIONS_QUEUE,
        lifecycle_queue: str = names.LIFECYCLE_QUEUE,
        fallback: Fallback | None = None,
        reach_timeout_ms: int = 3_000,
    ) -> None:
        self.client = client
        self.records = Records(client, task_queue=lifecycle_queue)
        """What is remembered about principals: change it, read it."""
        self._answers = answers_here(client)
        self._task_queue = task_queue
        self._operations_queue = operations_queue
        self._fallback = fallback
        self._reach_timeout_ms = reach_timeout_ms

    async def turn(
        self,
        principal: Principal,
        session: str,
        turn: str,
        text: str,
        *,
        public_context: str | None = None,
        budget_ms: int | Literal["default"] | None = BUDGET_DEFAULT,
        durability: Durability = Durability.AUTO,
        host_generation: HostGeneration | None = None,
        deadline_ms: int | None = None,
    ) -> TurnResult | FallbackResult:
        """Answer one user turn.

        Args:
            budget_ms: milliseconds memory may add after the draft is there; 0 for the draft alone, None for
                stage timeouts only, `"default"` for the deployment's default (specification section 3.3).
            host_generation: the task queue of the host's own worker, if it generates itself.
            deadline_ms: how long this call waits for the answer at most; None waits as long as a turn may run.

        Raises:
            InvalidTurnError: a field is out of bounds. Nothing was sent.
            SessionOwnedByAnotherError, TurnConflictError, DraftFailedError, TurnCancelledError: see there.
            TurnDeadlineError: no answer within `deadline_ms`. The turn goes on.
            UnreachableError: Temporal is out of reach and the host was connected without a fallback.
        """
        try:
            request = TurnRequest(
                principal=principal,
                session_id=session,
                turn_id=turn,
                text=text,
                public_context=public_context,
                options=TurnOptions(
                    latency_budget_ms=budget_ms, durability=durability, host_generation=host_generation
                ),
            )
        except ValidationError as error:
            raise InvalidTurnError(refusal_text(error)) from error
        return await self.send(request, deadline_ms=deadline_ms)

    async def send(self, request: TurnRequest, *, deadline_ms: int | None = None) -> TurnResult | FallbackResult:
        """Like :meth:`turn`, for a request that is already built."""
        if deadline_ms is not None and deadline_ms <= 0:
            raise InvalidTurnError(f"deadline_ms: must be at least 1 millisecond, or None; got {deadline_ms}")
        with turn_span(TURN_SPAN):
            try:
                async with asyncio.timeout(None if deadline_ms is None else deadline_ms / 1000):
                    return await self._answer(request)
            except TimeoutError as error:
                raise TurnDeadlineError(
                    f"no answer within {deadline_ms} ms; send the same turn again to pick it up"
                ) from error

    async def cancel(self, principal: Principal, session: str, turn: str) -> None:
        """Give up a turn. It is recorded as `cancelled` unless it was decided already; an ended one stays as it is.

        Raises:
            UnreachableError: Temporal is out of reach.
        """
        try:
            await self._cancel(principal, session, turn)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # nothing is running: there is nothing to give up
                raise out_of_reach(error) from error
        except RuntimeError as error:
            raise out_of_reach(error) from error

    async def _cancel(self, principal: Principal, session: str, turn: str) -> None:
        await self.client.get_workflow_handle(turn_workflow_id(principal, session, turn)).cancel()

    async def end_session(self, principal: Principal, session: str) -> None:
        """Forget the session's profile: the user's next session gets a freshly assembled one.

        Raises:
            InvalidTurnError: the session's name is out of bounds.
            OperationRefusedError: there is no such session, or it is another user's.
            UnreachableError: Temporal is out of reach. An idle session ends by itself.
        """
        try:
            ended = EndSessionInput(principal=principal, session_id=session)
        except ValidationError as error:
            raise InvalidTurnError(refusal_text(error)) from error
        await operated(
            self.client,
            names.END_SESSION_WORKFLOW,
            ended,
            type(None),
            workflow_id=operation_workflow_id("end-session", principal, str(uuid4())),
            task_queue=self._operations_queue,
            within=timedelta(seconds=60),
        )

    async def read_session(self, principal: Principal, session: str) -> ExtractReport:
        """Have what the user has said in the session read now, instead of when it is idle. Returns when that is done.

        A call for a session that is being read joins that reading.

        Raises:
            InvalidTurnError: the session's name is out of bounds.
            UnreachableError: Temporal is out of reach.
        """
        try:
            wanted = ExtractInput(principal=principal, session_id=session)
        except ValidationError as error:
            raise InvalidTurnError(refusal_text(error)) from error
        return await operated(
            self.client,
            names.EXTRACTION_WORKFLOW,
            wanted,
            ExtractReport,
            workflow_id=operation_workflow_id("extract", principal, session),
            task_queue=self._operations_queue,
        )

    async def forget_record(self, principal: Principal, record_id: str, *, actor: str, reason: str) -> ForgetReceipt:
        """Forget one record for good: its copies, what it replaced, the turn it was said in, answers made with it.

        Returns when every surface was read back by exact text. A record that is not there is forgotten too: the
        receipt then says that nothing was found. It keeps `reason`: say why, never what.

        Raises:
            OperationRefusedError: a name or the reason is blank or out of bounds.
            ForgetIncompleteError: text was still found after every attempt.
            UnreachableError: Temporal is out of reach. What was begun is finished; asking again joins it.
        """
        return await self._forget(principal, {"what": "record", "record_id": record_id}, actor, reason)

    async def forget_session(self, principal: Principal, session: str, *, actor: str, reason: str) -> ForgetReceipt:
        """Forget what was said in a session so far, and the records that rest on nothing else. See `forget_record`."""
        return await self._forget(principal, {"what": "session", "session_id": session}, actor, reason)

    async def forget_principal(self, principal: Principal, *, actor: str, reason: str) -> ForgetReceipt:
        """Forget everything of one user up to now. See `forget_record`."""
        return await self._forget(principal, {"what": "principal"}, actor, reason)

    async def _forget(self, principal: Principal, target: dict[str, str], actor: str, reason: str) -> ForgetReceipt:
        asked = to_forget(principal, target, actor=actor, reason=reason)
        return await forgotten(self.client, asked, task_queue=self._operations_queue)

    async def _answer(self, request: TurnRequest) -> TurnResult | FallbackResult:
        workflow_id = turn_workflow_id(request.principal, request.session_id, request.turn_id)
        with self._answers.awaited(workflow_id) as here:
            try:
                handle = await self._start(request, workflow_id)
            except (RPCError, RuntimeError) as error:
                return await self._fall_back(request, out_of_reach(error))
            try:
                result = await first_answer(handle, here)
            except WorkflowFailureError as failure:
                raise from_failure(failure) from failure
        if result.request_digest != request_digest(request):
            raise TurnConflictError(f"turn {request.turn_id!r} was already sent with another text or public context")
        return result

    async def _start(self, request: TurnRequest, workflow_id: str) -> WorkflowHandle[Any, TurnResult]:
        try:
            return await self.client.start_workflow(
                names.TURN_WORKFLOW,
                request,
                id=workflow_id,
                task_queue=self._task_queue,
                result_type=TurnResult,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
                execution_timeout=TURN_EXECUTION_TIMEOUT,
                task_timeout=TASK_TIMEOUT,
                request_eager_start=True,
                rpc_timeout=timedelta(milliseconds=self._reach_timeout_ms),
            )
        except WorkflowAlreadyStartedError:
            # It ended before: the same turn gets the same answer.
            return self.client.get_workflow_handle(workflow_id, result_type=TurnResult)

    async def _fall_back(self, request: TurnRequest, why: UnreachableError) -> FallbackResult:
        if self._fallback is None:
            raise why
        return FallbackResult(await self._fallback(request), str(why))
