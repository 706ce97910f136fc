"""A turn that was begun and answered in one process: its host need not ask the server for what is known here.

Where host and worker share a client, as in the embedded stack, the server hands a turn's first task back in the answer
to its start, and this worker answers it. By then the answer is on record, or its record in somebody's durable hands
(see `AnsweringActivities`): a worker that dies before its workflow has ended leaves a turn that another one ends with
the same answer. So the host gets it at once, and the end of the workflow is written beside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.client import Interceptor as ClientInterceptor
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput
from temporalio.worker import Interceptor as WorkerInterceptor

from retold.contracts.answering import AnswerResult
from retold.contracts.turn import TurnResult

HERE_WITHIN_S = 2.0
"""A turn that takes longer costs one more call and nothing else: its host then waits with the server, like any."""


class AnswersHere(ClientInterceptor, WorkerInterceptor):
    """One a client; workers made with that client take it from there."""

    def __init__(self, *, hears: bool = True) -> None:
        self._awaited: dict[str, set[asyncio.Future[TurnResult | None]]] = {}
        self._hears = hears

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Telling(next, self)

    @contextmanager
    def awaited(self, workflow_id: str) -> Iterator[asyncio.Future[TurnResult | None]]:
        """What this process answers that turn while the block runs; None: it is for the server to say."""
        answer: asyncio.Future[TurnResult | None] = asyncio.get_running_loop().create_future()
        if not self._hears:  # nobody would ever tell
            answer.set_result(None)
        awaited = self._awaited.setdefault(workflow_id, set())
        awaited.add(answer)
        try:
            yield answer
        finally:
            awaited.discard(answer)
            if not awaited and self._awaited.get(workflow_id) is awaited:
                del self._awaited[workflow_id]

    def tell(self, workflow_id: str, answer: TurnResult | None) -> None:
        for awaited in tuple(self._awaited.pop(workflow_id, ())):
            awaited.get_loop().call_soon_threadsafe(_settle, awaited, answer)


def answers_here(client: Client) -> AnswersHere:
    """The client's own; of a client made without `plugins`, one that hears nothing and keeps nobody waiting."""
    interceptors = client.config(active_config=True)["interceptors"]
    return next((each for each in interceptors if isinstance(each, AnswersHere)), AnswersHere(hears=False))


async def first_answer(handle: WorkflowHandle[Any, TurnResult], here: asyncio.Future[TurnResult | None]) -> TurnResult:
    """The turn's answer from wherever it is known first.

    Raises:
        temporalio.client.WorkflowFailureError: the turn ended without one.
    """
    if getattr(handle, "__temporal_eagerly_started", False):
        await asyncio.wait({here}, timeout=HERE_WITHIN_S)
        if here.done() and (answer := here.result()) is not None:
            return answer
    return await handle.result()


class _Telling(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, answers: AnswersHere) -> None:
        super().__init__(next)
        self._answers = answers

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        result: Any = None
        try:
            result = await super().execute_activity(input)
        finally:
            if (workflow_id := activity.info().workflow_id) is not None:
                self._answers.tell(workflow_id, result.result if isinstance(result, AnswerResult) else None)
        return result


def _settle(awaited: asyncio.Future[TurnResult | None], answer: TurnResult | None) -> None:
    if not awaited.done():
        awaited.set_result(answer)
