"""Where host and worker are one process the answer is known here; nobody asks the server for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle

from retold.client import DraftFailedError
from retold.client._answers_here import answers_here
from retold.contracts.identity import turn_workflow_id
from retold.contracts.turn import Durability
from tests.cases import SERVED
from tests.integration.test_turn_workflow import ask, assert_replays, serving, unique
from tests.scripted import FINAL, Step, scripted


@pytest.fixture
def asked_of_the_server(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the workflows whose result was waited for with the server."""
    asked: list[str] = []
    result = WorkflowHandle.result

    async def noted(self: WorkflowHandle[Any, Any], **options: Any) -> Any:
        asked.append(self.id)
        return await result(self, **options)

    monkeypatch.setattr(WorkflowHandle, "result", noted)
    return asked


async def test_a_turn_of_this_process_needs_no_server_for_its_answer_and_its_workflow_ends_all_the_same(
    client: Client, asked_of_the_server: list[str]
) -> None:
    stack, principal = scripted(SERVED), unique()
    async with serving(client, stack) as host:
        result = await ask(host, stack, principal, Durability.TURN)
        assert (result.answer, asked_of_the_server) == (FINAL, [])
        handle = client.get_workflow_handle(turn_workflow_id(principal, "s1", "t1"), result_type=type(result))
        assert await handle.result() == result
        assert (await handle.describe()).status is WorkflowExecutionStatus.COMPLETED
        await assert_replays(handle)


async def test_whoever_else_waits_for_the_same_turn_gets_the_same_answer(
    client: Client, asked_of_the_server: list[str]
) -> None:
    stack, principal = scripted(SERVED.but(draft=Step("draft", 200))), unique()
    async with serving(client, stack) as host:
        first, second = await asyncio.gather(
            ask(host, stack, principal, Durability.TURN), ask(host, stack, principal, Durability.TURN)
        )
    assert first == second
    assert len(asked_of_the_server) == 1, "of the one that was not begun by its own call the server has to tell"


async def test_what_is_not_answered_here_is_for_the_server_to_say(
    client: Client, asked_of_the_server: list[str]
) -> None:
    stack, principal = scripted(SERVED), unique()
    async with serving(client, stack) as host:
        assert (await ask(host, stack, principal, Durability.STAGE)).answer == FINAL
    failing = scripted(SERVED.but(draft=Step(OSError("away"))))
    async with serving(client, failing) as host:
        with pytest.raises(DraftFailedError):
            await ask(host, failing, unique(), Durability.TURN)
    assert len(asked_of_the_server) == 2


async def test_a_turn_that_takes_long_is_waited_for_with_the_server(
    client: Client, asked_of_the_server: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retold.client._answers_here.HERE_WITHIN_S", 0.05)
    stack, principal = scripted(SERVED.but(draft=Step("draft", 300))), unique()
    async with serving(client, stack) as host:
        assert (await ask(host, stack, principal, Durability.TURN)).answer == FINAL
    assert len(asked_of_the_server) == 1


async def test_a_client_made_without_our_plugins_keeps_nobody_waiting(client: Client) -> None:
    with answers_here(Client(client.service_client)).awaited("turn/1") as answer:
        assert answer.done() and answer.result() is None
    with answers_here(client).awaited("turn/1") as answer:
        assert not answer.done()
