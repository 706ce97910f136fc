"""Records the histories `test_histories.py` replays: `python -m tests.replay.record_histories`.

Run it when a change to the workflow is meant and versioned, never to make a failing replay pass: a history that no
longer replays is a turn in flight that the next deployment would break.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from retold.client import Host, RetoldError, plugins
from retold.client.tracing import install_tracing
from retold.contracts.identity import turn_workflow_id
from retold.contracts.turn import Durability, TurnOptions
from retold.ending import end_process
from retold.policy.recording import TurnRecorder
from retold.settings import WorkerSettings
from tests.cases import CASES, SERVED, Case
from tests.conftest import TEMPORAL
from tests.scripted import ANNA, DRAFT, Script, Step, request, scripted
from worker import turn_worker

HISTORIES = Path(__file__).parent / "histories"

RECORDED = {case.name: case for case in CASES if case.name in {
    "a gap, a helpful record",
    "planner silent",
    "budget zero",
    "planner slower than the budget",
    "judge slower than the budget",
    "retrieval raises",
    "admitted record deleted meanwhile",
}}  # fmt: skip


async def record_all() -> None:
    with install_tracing("retold-histories"):
        environment = await WorkflowEnvironment.start_local(
            dev_server_existing_path=str(TEMPORAL), plugins=plugins(), identity="recorder"
        )
        async with environment:
            for durability in (Durability.TURN, Durability.STAGE):
                for name, case in RECORDED.items():
                    await _record(environment.client, name, case, durability)
                await _record(environment.client, "draft fails", _failing(), durability)
                await _record(environment.client, "store away", CASES[0], durability, store_failures=1)


def _failing() -> Case:
    case = CASES[0]
    return Case("draft fails", SERVED.but(draft=Step(OSError("reset"))), case.disposition, case.reason)


async def _record(client: Client, name: str, case: Case, durability: Durability, *, store_failures: int = 0) -> None:
    stack = scripted(case.script)
    stack.store.fail_next = store_failures
    key = f"{durability.value}-{name.replace(' ', '-').replace(',', '')}"
    script: Script = case.script.but(
        options=TurnOptions(latency_budget_ms=case.script.options.latency_budget_ms, durability=durability)
    )
    async with turn_worker(client, stack.bodies, TurnRecorder(stack.store), WorkerSettings(), task_queue=key):
        try:
            await Host(client, task_queue=key).send(request(script, key))
        except RetoldError as error:
            assert stack.script.draft.answer is not DRAFT, error
    history = await client.get_workflow_handle(turn_workflow_id(ANNA, "s1", key)).fetch_history()
    shown = json.dumps(_without_traces(json.loads(history.to_json())), indent=2)
    (HISTORIES / f"{key}.json").write_text(shown + "\n")


def _without_traces(value: Any) -> Any:
    """Stack traces name the paths of the machine that recorded; a replay does not look at them."""
    if isinstance(value, dict):
        return {name: _without_traces(each) for name, each in value.items() if name != "stackTrace"}
    return [_without_traces(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    asyncio.run(record_all())
    end_process(0)
