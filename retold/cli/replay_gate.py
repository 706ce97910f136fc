"""`retold replay-gate`: would this version go on with the workflows that another one began?"""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from temporalio.client import Client, WorkflowHistory
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Replayer

from retold.cli import options
from retold.cli.embedded import worker_of_the_checkout
from retold.cli.failures import CommandError
from retold.cli.running_stack import connected, read_settings
from retold.cli.terminal import out, write_json
from retold.client import plugins
from retold.client.encryption import key_ring_from_environment
from retold.client.tracing import install_tracing

RUNNING_FIRST = ("ExecutionStatus = 'Running'", "ExecutionStatus != 'Running'")
"""What still runs is what a version has to go on with; what ended is replayed for good measure."""


def replay_gate(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Most executions, running ones first.")] = 200,
    as_json: options.AsJson = False,
) -> None:
    """Replay histories of the namespace on this checkout's workflows. Exit code 1: at least one would not go on."""
    with install_tracing("retold-replay-gate"):  # workflows open spans, and replaying them exports none
        replayed, broken = asyncio.run(_replay(context, limit))
    if as_json:
        write_json({"replayed": replayed, "broken": broken})
    else:
        for workflow_id, why in broken.items():
            out().print(f"{workflow_id}: {why}", markup=False)
        out().print(f"{replayed} executions replayed, {len(broken)} of them would not go on with this version")
    if broken:
        raise typer.Exit(1)


async def _replay(context: typer.Context, limit: int) -> tuple[int, dict[str, str]]:
    workflows = worker_of_the_checkout().ALL_WORKFLOWS
    replayer = Replayer(workflows=workflows, plugins=plugins(key_ring_from_environment()))
    broken: dict[str, str] = {}
    async with connected(options.whereabouts(context), read_settings()) as stack:
        histories = await _histories(stack.client, limit)
    for history in histories:
        result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
        if result.replay_failure is not None:
            broken[history.workflow_id] = str(result.replay_failure).splitlines()[0][:300]
    return len(histories), broken


async def _histories(client: Client, limit: int) -> list[WorkflowHistory]:
    found: list[WorkflowHistory] = []
    for query in RUNNING_FIRST:
        async for execution in client.list_workflows(query, limit=limit):
            if len(found) == limit:
                return found
            try:
                found.append(await client.get_workflow_handle(execution.id, run_id=execution.run_id).fetch_history())
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:  # its retention ended meanwhile
                    raise CommandError(f"the history of {execution.id} cannot be read", error.message) from error
    return found
