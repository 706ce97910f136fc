"""The example hosts as their readers start them: the reference host, and the Python worker that knows JSON only."""

from __future__ import annotations

import ast
import asyncio
import re
import runpy
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from retold.client import HostGeneration, Principal, connect
from retold.contracts import names
from retold.contracts.host_generation import HostAnswer, HostDraftInput, HostRegenerateInput
from retold.contracts.operations import EndSessionInput
from tests.cases import SERVED
from tests.integration.test_turn_workflow import assert_replays, unique
from tests.own_worker import BOUND_S, OwnWorker, deployed, polling
from tests.scripted import FINAL, NEVER_MS
from workflows.operations import EndSessionWorkflow

EXAMPLES = Path(__file__).parents[2] / "examples"


@asynccontextmanager
async def example_worker(client: Client, queue: str, takes_ms: int = 0) -> AsyncIterator[asyncio.subprocess.Process]:
    """The example as its reader starts it, serving when the block begins; killed at its end if still there."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(EXAMPLES / "host_worker_python" / "host_worker.py"),
        "--task-queue", queue, "--takes-ms", str(takes_ms),
        stdout=asyncio.subprocess.PIPE, env={"TEMPORAL_ADDRESS": client.service_client.config.target_host},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert b"serving" in await asyncio.wait_for(process.stdout.readline(), 30)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_worker_killed_in_mid_draft_is_replaced_by_the_next(client: Client) -> None:
    async with deployed(client, SERVED) as turn, example_worker(client, turn.queue, takes_ms=NEVER_MS) as process:
        answer = asyncio.create_task(turn.ask(heartbeat_timeout_ms=500))
        await turn.started(names.GENERATE_DRAFT)
        process.kill()
        own = OwnWorker()
        async with polling(client, turn.queue, [own.serve_draft, own.serve_regenerate]):
            assert (await answer).answer == FINAL
        await assert_replays(turn.handle)


async def test_the_reference_host_chats_through_the_python_worker_and_ends_its_session(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = example("reference_host.py")
    ended: list[EndSessionInput] = []

    @activity.defn(name=names.END_SESSION)
    async def end_session(asked: EndSessionInput) -> None:
        ended.append(asked)

    async with deployed(client, SERVED) as turn, example_worker(client, turn.queue) as process:
        generation = HostGeneration(task_queue=turn.queue)
        async with Worker(
            client,
            task_queue=names.OPERATIONS_QUEUE,
            workflows=[EndSessionWorkflow],
            activities=[end_session],
            workflow_runner=UnsandboxedWorkflowRunner(),
        ):
            await reference["chat"](
                turn.host,
                turn.principal,
                spoken("what can I eat?", "x" * 32_001),
                budget_ms=None,
                generation=generation,
            )
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 30) == 0
    said = capsys.readouterr().out
    assert "You ask: what can I eat? You told me on 2026-11-27: text of r1" in said
    assert f"[regenerated: r1 from memory; decision {turn.decision.decision_id}]" in said
    assert "! text: " in said  # the second was too long: said so, and the chat went on
    assert [asked.principal for asked in ended] == [turn.principal]


async def test_the_reference_host_answers_alone_while_temporal_is_away(capsys: pytest.CaptureFixture[str]) -> None:
    reference = example("reference_host.py")
    async with connect(address="127.0.0.1:1", fallback=reference["without_memory"], reach_timeout_ms=500) as host:
        async with asyncio.timeout(BOUND_S):
            await reference["chat"](host, unique(), spoken("hello"), budget_ms=1_000)
    said = capsys.readouterr().out
    assert "You said: hello" in said and "[no memory: " in said


def test_the_workers_know_the_contract_by_its_json_alone() -> None:
    tree = ast.parse((EXAMPLES / "host_worker_python" / "host_worker.py").read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    roots = {name.split(".")[0] for name in imported}
    assert roots - sys.stdlib_module_names == {"temporalio"}

    written = (EXAMPLES / "host_worker_typescript" / "src" / "contract.ts").read_text()
    for model in (HostDraftInput, HostRegenerateInput, HostAnswer, Principal):
        assert typescript_fields(written, model) == set(model.model_fields)


def typescript_fields(source: str, model: type[BaseModel]) -> set[str]:
    declared = re.search(rf"interface {model.__name__}(?: extends (\w+))? {{\n(.*?)\n}}", source, re.DOTALL)
    assert declared is not None, f"contract.ts does not declare {model.__name__}"
    inherited = {"HostDraftInput": HostDraftInput}.get(declared[1])
    own = set(re.findall(r"^  (\w+)\??:", declared[2], re.MULTILINE))
    return own | (set() if inherited is None else typescript_fields(source, inherited))


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / name))


async def spoken(*lines: str) -> AsyncIterator[str]:
    for line in lines:
        yield line
