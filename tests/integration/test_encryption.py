"""With codec keys nothing anybody said can be read in Temporal: not in histories, not in results, not in failures."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryRequest
from temporalio.client import Client
from temporalio.worker import Replayer

from retold.client import DraftFailedError, Host, plugins
from retold.client.encryption import KeyRing, UndecryptableError
from retold.contracts.identity import turn_workflow_id
from retold.contracts.turn import Durability, Principal
from retold.policy.recording import TurnRecorder
from retold.settings import WorkerSettings
from tests.cases import SERVED
from tests.integration.test_turn_workflow import BOTH, ask, serving, unique
from tests.scripted import DRAFT, FINAL, Step, scripted
from worker import TURN_WORKFLOWS, turn_worker

QUESTION = "what may I eat at Mira's wedding in Lisbon?"
OLD = KeyRing({"old": b"o" * 32})
ROTATED = KeyRing({"new": b"n" * 32, "old": b"o" * 32})


async def connected(client: Client, ring: KeyRing) -> Client:
    return await Client.connect(client.service_client.config.target_host, plugins=plugins(ring))


async def raw_history(client: Client, workflow_id: str) -> bytes:
    """Every byte Temporal keeps of the execution."""
    request = GetWorkflowExecutionHistoryRequest(
        namespace=client.namespace, execution=WorkflowExecution(workflow_id=workflow_id)
    )
    answer = await client.workflow_service.get_workflow_execution_history(request)
    assert not answer.next_page_token
    return answer.history.SerializeToString()


def workflow_id(principal: Principal) -> str:
    return turn_workflow_id(principal, "s1", "t1")


@BOTH
async def test_a_turn_leaves_no_readable_text_and_replays_after_a_rotation(
    client: Client, durability: Durability
) -> None:
    stack, principal = scripted(SERVED), unique()
    sealed = await connected(client, OLD)
    async with serving(sealed, stack) as host:
        assert (await ask(host, stack, principal, durability, QUESTION)).answer == FINAL
    kept = await raw_history(client, workflow_id(principal))
    for text in (QUESTION, "wedding", DRAFT, FINAL):
        assert text.encode() not in kept, text
    assert b"binary/encrypted" in kept

    rotated = await connected(client, ROTATED)
    handle = rotated.get_workflow_handle(workflow_id(principal))
    assert (await handle.result())["answer"] == FINAL
    history = await handle.fetch_history()
    await Replayer(workflows=TURN_WORKFLOWS, plugins=plugins(ROTATED)).replay_workflow(history)


async def test_a_failure_says_nothing_readable_and_its_type_still_arrives(client: Client) -> None:
    stack, principal = scripted(SERVED.but(draft=Step(RuntimeError(f"no answer to: {QUESTION}")))), unique()
    sealed = await connected(client, OLD)
    async with serving(sealed, stack) as host:
        with pytest.raises(DraftFailedError):
            await ask(host, stack, principal, Durability.STAGE, QUESTION)
    assert b"wedding" not in await raw_history(client, workflow_id(principal))


async def test_without_the_key_nothing_is_read_and_the_missing_key_is_named(client: Client) -> None:
    stack, principal = scripted(SERVED), unique()
    async with serving(await connected(client, OLD), stack) as host:
        await ask(host, stack, principal, Durability.TURN, QUESTION)
    stranger = await connected(client, KeyRing({"another": b"a" * 32}))
    with pytest.raises(UndecryptableError, match="'old'"):
        await stranger.get_workflow_handle(workflow_id(principal)).result()


async def test_a_process_without_keys_says_so(client: Client) -> None:
    stack, principal = scripted(SERVED), unique()
    async with serving(await connected(client, OLD), stack) as host:
        await ask(host, stack, principal, Durability.TURN, QUESTION)
    with pytest.raises(UndecryptableError, match="'old', and this process has no codec keys: set RETOLD_CODEC_KEYS"):
        await client.get_workflow_handle(workflow_id(principal)).result()


async def test_a_worker_that_was_left_without_keys_refuses_no_turn_the_next_with_them_answers_it(
    client: Client,
) -> None:
    stack, principal, queue = scripted(SERVED), unique(), f"turns-{uuid4()}"
    sealed = await connected(client, OLD)
    recorder, settings = TurnRecorder(stack.store), WorkerSettings()
    turn = asyncio.create_task(ask(Host(sealed, task_queue=queue), stack, principal, Durability.TURN, QUESTION))
    async with turn_worker(client, stack.bodies, recorder, settings, task_queue=queue, sandboxed=True):
        done, _ = await asyncio.wait({turn}, timeout=2)
        assert not done and not stack.store.written
    async with turn_worker(sealed, stack.bodies, recorder, settings, task_queue=queue, sandboxed=True):
        assert (await turn).answer in (DRAFT, FINAL)


async def test_a_turn_that_began_in_the_clear_is_answered_by_workers_that_encrypt(client: Client) -> None:
    stack, principal = scripted(SERVED), unique()
    async with serving(client, stack) as host:
        first = await ask(host, stack, principal, Durability.TURN, QUESTION)
    async with serving(await connected(client, OLD), stack) as host:
        again = await ask(host, stack, principal, Durability.TURN, QUESTION)
    assert again == first
