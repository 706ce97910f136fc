"""Forgetting on the whole embedded stack: every surface, every file, the neighbours, and a worker killed in between."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from retold.cli.embedded import EmbeddedStack, embedded_stack
from retold.client import Host, HostGeneration, Principal, RetoldError
from retold.contracts import names
from retold.contracts.forgetting import ForgetReceipt, Surface
from retold.contracts.identity import forget_workflow_id, operation_workflow_id, principal_prefixes
from retold.contracts.importing import ImportReport
from retold.contracts.operations import ImportInput, InspectDecision, InspectInput, InspectResult
from retold.contracts.record import RecordWrite, TranscriptWrite
from retold.settings import Settings

ADA = Principal(tenant="acme", user="ada")
NEIGHBOURS = [Principal(tenant="acme", user="Ada"), Principal(tenant="acme", user="a_a")]
SAID = "Zürich “locker” fourteen"
CODEWORD = "marmalade lighthouse"
RECORDS = 250


@asynccontextmanager
async def stack_in(data_dir: Path) -> AsyncIterator[tuple[EmbeddedStack, Host]]:
    async with embedded_stack(Settings(data_dir=data_dir)) as stack:
        yield stack, Host(stack.client)


async def lived(stack: EmbeddedStack, host: Host, principal: Principal, said: str, records: int = RECORDS) -> None:
    """Imports, turns, and an operator who looked at one of them."""
    at = datetime(2026, 5, 1, tzinfo=UTC)
    lines: list[RecordWrite | TranscriptWrite] = [
        RecordWrite(id=f"k{n}", text=f"{said}, {CODEWORD} number {n}", entities=(f"{said} {n}",), created_at=at)
        for n in range(records)
    ]
    past = TranscriptWrite(
        kind="turn", session_id=f"past of {principal.user}", turn_id="t", role="user", text=f"once: {said}", at=at
    )
    lines.append(past)
    for start in range(0, len(lines), 200):
        batch = tuple(lines[start : start + 200])
        report: ImportReport = await stack.client.execute_workflow(
            names.IMPORT_WORKFLOW,
            ImportInput(principal=principal, lines=batch, actor="host"),
            id=operation_workflow_id("import", principal, str(start)),
            task_queue=names.OPERATIONS_QUEUE,
            result_type=ImportReport,
        )
        assert report.refused == ()
    for turn in ("t1", "t2"):
        answered = await host.turn(principal, f"now of {principal.user}", turn, f"Where is {said}?", budget_ms=500)
    await stack.client.execute_workflow(
        names.INSPECT_WORKFLOW,
        InspectInput(request=InspectDecision(decision_id=answered.decision_id)),  # type: ignore[union-attr]
        id=f"inspect/{principal.user}",
        task_queue=names.OPERATIONS_QUEUE,
        result_type=InspectResult,
    )


async def executions(stack: EmbeddedStack, principal: Principal) -> list[str]:
    ours = principal_prefixes(principal)
    listed = [each async for each in stack.client.list_workflows("")]
    return [each.id for each in listed if each.id.startswith(ours) or each.id == f"inspect/{principal.user}"]


def holding(data_dir: Path, text: str) -> list[str]:
    spelled = (text.encode(), text.encode("utf-16-le"), ascii(text)[1:-1].encode())
    files = [path for path in data_dir.rglob("*") if path.is_file()]
    return [path.name for path in files if any(each in path.read_bytes() for each in spelled)]


def removed(receipt: ForgetReceipt) -> dict[Surface, int]:
    return {each.surface: each.removed for each in receipt.surfaces}


@pytest.mark.timeout(240)
async def test_a_principal_goes_from_everywhere_and_the_neighbours_stay(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    async with stack_in(tmp_path) as (stack, host):
        await lived(stack, host, ADA, SAID)
        for number, other in enumerate(NEIGHBOURS):
            await lived(stack, host, other, f"neighbour {number} keeps this", RECORDS)
        before = {other: set(await executions(stack, other)) for other in NEIGHBOURS}

        receipt = await host.forget_principal(ADA, actor="ops", reason="the user asked")

        assert [each.surface for each in receipt.surfaces] == list(Surface)
        assert all(each.left == 0 for each in receipt.surfaces)
        assert removed(receipt)[Surface.RECORDS] == RECORDS
        assert removed(receipt)[Surface.INDEX] == RECORDS
        assert removed(receipt)[Surface.SESSION_TURNS] >= 5
        assert removed(receipt)[Surface.CLOSED_WORKFLOWS] >= 5
        assert receipt.archives, "the file of the embedded server is named"
        assert await executions(stack, ADA) == []
        assert await stack.adapters.index.points_of(ADA) == []
        for other in NEIGHBOURS:
            assert len(await stack.adapters.store.records(other)) == RECORDS
            assert await stack.adapters.index.count(other) == RECORDS
            # None of theirs is gone; what they said meanwhile may have been read and evaluated.
            assert before[other] <= set(await executions(stack, other))
        again = await host.forget_principal(ADA, actor="ops", reason="the user asked twice")
        assert again.receipt_id != receipt.receipt_id
        assert removed(again)[Surface.RECORDS] == removed(again)[Surface.CLOSED_WORKFLOWS] == 0
        history = await stack.client.get_workflow_handle(forget_workflow_id(ADA, "principal", "ada")).fetch_history()
        assert CODEWORD not in history.to_json()
        assert holding(tmp_path, "neighbour 1 keeps this")
        assert [name for name in holding(tmp_path, SAID) if not name.startswith("temporal.db")] == []
    assert holding(tmp_path, SAID) == []


@pytest.mark.timeout(240)
async def test_a_record_and_a_session_go_and_the_rest_of_the_user_stays(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    async with stack_in(tmp_path) as (stack, host):
        await lived(stack, host, ADA, SAID, 3)
        await lived(stack, host, NEIGHBOURS[0], "neighbour 0 keeps this", 3)
        of_session = await host.forget_session(ADA, "now of ada", actor="ops", reason="the user asked")
        assert removed(of_session)[Surface.SESSION_TURNS] >= 4
        assert removed(of_session)[Surface.CLOSED_WORKFLOWS] >= 3, "two turns, and the look at one"
        assert removed(of_session)[Surface.RECORDS] == 0
        of_record = await host.forget_record(ADA, "k1", actor="ops", reason="the user asked")
        assert removed(of_record)[Surface.RECORDS] == removed(of_record)[Surface.INDEX] == 1
        assert removed(of_record)[Surface.CLOSED_WORKFLOWS] == 1, "the import that carried it"
        assert sorted(record.text[-1] for record in await stack.adapters.store.records(ADA)) == ["0", "2"]
        assert len(await stack.adapters.store.session_turns(ADA, "past of ada")) == 1
        assert len(await executions(stack, NEIGHBOURS[0])) >= 4
        await the_command_does_the_same(stack, of_record)
    assert holding(tmp_path, f"{SAID}, {CODEWORD} number 1") == []


async def the_command_does_the_same(stack: EmbeddedStack, earlier: ForgetReceipt) -> None:
    nobody = ("forget", "session", "past of ada", "--tenant", "acme", "--user", "ada", "--reason", "they asked")
    code, said = await command(stack, *nobody)
    assert (code, "nothing was forgotten" in said) == (1, True), "without --yes it asks, and nobody answers"
    code, said = await command(stack, *nobody, "--yes", "--json")
    assert (code, json.loads(said)["what"]) == (0, "session"), said
    code, said = await command(stack, "receipts", "list", "--tenant", "acme")
    assert code == 0
    assert "record k1 of acme/ada" in said
    code, said = await command(stack, "receipts", "show", earlier.receipt_id)
    assert "session turns" in said
    assert "Out of reach: file of the embedded Temporal server" in said
    code, said = await command(stack, "receipts", "show", "another")
    assert (code, "there is no receipt" in said) == (1, True)


async def command(stack: EmbeddedStack, *arguments: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "retold.cli", *arguments,
        env={**os.environ, "TEMPORAL_ADDRESS": stack.addresses.temporal},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, (out if process.returncode == 0 else out + err).decode()


@pytest.mark.timeout(240)
async def test_a_turn_under_way_is_ended_and_leaves_a_decision_that_says_nothing(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    async with stack_in(tmp_path) as (stack, host):
        nobody = HostGeneration(task_queue="nobody serves this", pickup_timeout_ms=60_000)
        turns = [
            asyncio.create_task(host.turn(who, f"of {who.user}", "t", f"Is {SAID} open?", host_generation=nobody))
            for who in (ADA, NEIGHBOURS[0])
        ]
        while len(await executions(stack, ADA) + await executions(stack, NEIGHBOURS[0])) < 2:
            await asyncio.sleep(0.05)
        both = await asyncio.gather(*(host.forget_principal(ADA, actor="ops", reason="asked") for _ in range(2)))
        assert both[0] == both[1], "asked twice at once is one forgetting"
        assert removed(both[0])[Surface.OPEN_WORKFLOWS] == removed(both[0])[Surface.CLOSED_WORKFLOWS] == 1
        with pytest.raises(RetoldError):
            await turns[0]
        decisions = await stack.adapters.store.decisions("acme", "ada")
        assert [each.disposition.value for each in decisions] == ["cancelled"]
        assert await stack.adapters.store.session_turns(ADA, "of ada") == []
        assert not turns[1].done(), "the neighbour's turn goes on"
        await host.cancel(NEIGHBOURS[0], f"of {NEIGHBOURS[0].user}", "t")
        with pytest.raises(RetoldError):
            await turns[1]


KILLED_IN = """
import asyncio, os, signal, sys
from pathlib import Path
from retold.contracts import names
from retold.contracts.forgetting import ForgetInput, ForgetPrincipal
from retold.contracts.identity import forget_workflow_id
from retold.store.forgetting import ForgetLedger
from tests.integration.test_forgetting import ADA, SAID, lived, stack_in

async def main() -> None:
    method = getattr(ForgetLedger, sys.argv[2])
    async def killed(*arguments):
        await method(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)
    async with stack_in(Path(sys.argv[1])) as (stack, host):
        await lived(stack, host, ADA, SAID, 20)
        setattr(ForgetLedger, sys.argv[2], killed)
        await host.forget_principal(ADA, actor="ops", reason="the user asked")

asyncio.run(main())
"""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("after", ["begin", "index_followed", "issue"])
async def test_killed_after_a_step_it_is_finished_with_one_receipt(
    tmp_path: Path, spans: InMemorySpanExporter, after: str
) -> None:
    killed = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED_IN, str(tmp_path), after, stderr=asyncio.subprocess.PIPE
    )
    _, said = await asyncio.wait_for(killed.communicate(), 120)
    assert killed.returncode == -signal.SIGKILL, said.decode()[-2_000:]
    async with stack_in(tmp_path) as (stack, _):
        handle = stack.client.get_workflow_handle(
            forget_workflow_id(ADA, "principal", "ada"), result_type=ForgetReceipt
        )  # fmt: skip
        receipt = await handle.result()
        assert removed(receipt)[Surface.RECORDS] == 20
        receipts: Sequence[ForgetReceipt] = await stack.adapters.store.forgetting.receipts("acme", "ada", 10)
        assert list(receipts) == [receipt]
        assert await stack.adapters.store.records(ADA) == []
        assert await executions(stack, ADA) == []
    assert holding(tmp_path, SAID) == []
