"""Changes to records on a real server: durable, followed by index and evaluation, refused in a kind and typed way."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Replayer, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from activities.operations import OperationActivities
from activities.records import RecordActivities
from retold.client import (
    Host,
    LifecycleReport,
    OperationRefusedError,
    Principal,
    RecordStatus,
    RecordWrite,
    StaleRecordVersionError,
    UnknownRecordError,
    plugins,
)
from retold.contracts import names
from retold.contracts.activation import ActivationInput, ActivationReport
from retold.contracts.identity import operation_workflow_id
from retold.contracts.importing import ImportReport
from retold.contracts.lifecycle import RememberInput
from retold.contracts.operations import ImportInput
from retold.store.engine import open_engine
from retold.store.migrations import migrate
from retold.store.store import Store
from workflows.durably import MISSED_AFTER
from workflows.operations import ImportWorkflow
from workflows.records import (
    ContradictRecordsWorkflow,
    CorrectRecordWorkflow,
    DeleteRecordWorkflow,
    ExpireRecordWorkflow,
    ReadRecordsWorkflow,
    RememberWorkflow,
    RestoreRecordWorkflow,
    SupersedeRecordWorkflow,
)

WORKFLOWS: list[type] = [
    RememberWorkflow,
    SupersedeRecordWorkflow,
    ContradictRecordsWorkflow,
    CorrectRecordWorkflow,
    ExpireRecordWorkflow,
    RestoreRecordWorkflow,
    DeleteRecordWorkflow,
    ReadRecordsWorkflow,
    ImportWorkflow,
]


@workflow.defn(name=names.ACTIVATION_WORKFLOW)
class NotedEvaluation:
    """Stands in for the evaluation: it says what it was asked to look at."""

    @workflow.run
    async def run(self, due: ActivationInput) -> ActivationReport:
        await workflow.execute_activity("note_evaluation", due, start_to_close_timeout=timedelta(seconds=10))
        return ActivationReport()


@dataclass
class Aftermath:
    """What followed a change, in order."""

    events: list[str] = field(default_factory=list)
    evaluated: list[ActivationInput] = field(default_factory=list)

    @activity.defn(name=names.BRING_INDEX_INTO_LINE)
    async def bring_index_into_line(self) -> int:
        self.events.append("indexed")
        return 0

    @activity.defn(name="note_evaluation")
    async def note_evaluation(self, due: ActivationInput) -> None:
        self.events.append(due.cause)
        self.evaluated.append(due)

    async def evaluations(self, count: int) -> list[ActivationInput]:
        async with asyncio.timeout(20):
            while len(self.evaluated) < count:
                await asyncio.sleep(0.05)
        return self.evaluated


@dataclass
class Stack:
    client: Client
    host: Host
    store: Store
    queue: str
    aftermath: Aftermath
    principal: Principal = field(default_factory=lambda: Principal(tenant=f"acme/{uuid4()}", user="änna/ö"))


@asynccontextmanager
async def serving(
    client: Client, folder: Path, *, records: Callable[[Store], list[Callable[..., Any]]] | None = None
) -> AsyncIterator[Stack]:
    engine = open_engine(f"sqlite:///{folder / 'retold.db'}")
    await migrate(engine)
    store, aftermath, queue = Store(engine), Aftermath(), f"lifecycle-{uuid4()}"
    operations = OperationActivities(store, None, None, activation_queue=queue)  # type: ignore[arg-type]
    changing = records(store) if records is not None else list(RecordActivities(store).get_activities())
    worker = Worker(
        client,
        task_queue=queue,
        workflows=[*WORKFLOWS, NotedEvaluation],
        activities=[
            *changing,
            operations.import_lines,
            aftermath.bring_index_into_line,
            aftermath.note_evaluation,
        ],
        workflow_runner=SandboxedWorkflowRunner(),
    )
    async with worker:
        yield Stack(client, Host(client, lifecycle_queue=queue, operations_queue=queue), store, queue, aftermath)
    await store.close()


async def test_a_preference_lives_changes_and_can_be_traced(client: Client, tmp_path: Path) -> None:
    async with serving(client, tmp_path) as stack:
        records, who = stack.host.records, stack.principal
        first = await records.remember(who, "Lives in Zürich", attribute="home_city", id="home", actor="ada")
        second = await records.remember(who, "Lives in Bern", attribute="home_city", actor="ada")
        assert first.ref is not None and second.ref is not None
        assert [ref.id for ref in second.superseded] == [first.ref.id]
        old = await records.show(who, "home")
        assert (old.status, old.superseded_by, old.version) == (RecordStatus.SUPERSEDED, second.ref.id, 2)

        with pytest.raises(OperationRefusedError, match=f"record {second.ref.id} holds instead"):
            await records.restore(who, "home", reason="she says so")
        await records.expire(who, second.ref.id, reason="moved away", actor="ada")
        restored = await records.restore(who, "home", reason="moved back", actor="ada")
        (outcome,) = restored.outcomes
        assert outcome.ref is not None and outcome.ref.version == 3
        await records.correct(who, "home", "Lives in Zürich-Oerlikon", reason="more exactly", expected_version=3)
        await records.delete(who, "home", reason="private", expected_version=4)
        history = await records.history(who, "home")
        assert [event.event for event in history] == [
            "record.remembered",
            "record.superseded",
            "record.restored",
            "record.corrected",
            "record.deleted",
        ]
        assert {event.actor for event in history} == {"ada", "host"}
        assert not any("Lives" in event.model_dump_json() for event in history)
        page = await records.list(who, statuses=[RecordStatus.DELETED])
        assert [record.text for record in page.records] == ["Lives in Zürich-Oerlikon"]

        evaluated = await stack.aftermath.evaluations(6)
        assert evaluated[0] == ActivationInput(
            principal=who, record_ids=(first.ref.id,), actor="ada", cause="remembered"
        )
        assert sorted(evaluated[1].record_ids) == sorted([first.ref.id, second.ref.id])
        assert [due.cause for due in evaluated] == ["remembered"] * 2 + ["expired", "restored", "corrected", "deleted"]
        assert stack.aftermath.events.index("indexed") < stack.aftermath.events.index("remembered")


async def test_many_at_once_conflicts_and_refusals_are_told_apart(client: Client, tmp_path: Path) -> None:
    async with serving(client, tmp_path) as stack:
        records, who = stack.host.records, stack.principal
        report = await records.remember_many(
            who,
            [
                RecordWrite(text="Allergic to nuts", id="a"),
                RecordWrite(text="My password: hunter2"),
                RecordWrite(text="Eats everything", id="b"),
            ],
        )
        assert [outcome.disposition for outcome in report.outcomes] == ["written", "refused", "written"]
        assert report.outcomes[1].field == "text"
        assert "hunter2" not in str(report.outcomes[1].message)

        report = await records.contradict(who, "a", "b", reason="both cannot be")
        assert [len(outcome.conflicting) for outcome in report.outcomes] == [1, 1]
        assert (await records.show(who, "a")).conflicting
        with pytest.raises(StaleRecordVersionError, match="version 2, not 1"):
            await records.delete(who, "b", reason="wrong", expected_version=1)
        await records.delete(who, "b", reason="wrong", expected_version=2)
        assert not (await records.show(who, "a")).conflicting

        with pytest.raises(UnknownRecordError, match="no record 'c'"):
            await records.expire(who, "c", reason="x")
        with pytest.raises(UnknownRecordError):
            await records.show(Principal(tenant=who.tenant, user="somebody else"), "a")
        with pytest.raises(OperationRefusedError, match="reason"):
            await records.delete(who, "a", reason=" ")
        with pytest.raises(OperationRefusedError, match="activation"):
            await records.remember(who, "Answer briefly", activation="ambient")
        by = RecordWrite(text="Allergic to fish", attribute="allergy")
        with pytest.raises(OperationRefusedError, match="attribute: record"):
            await records.supersede(who, "a", by, reason="changed")
        report = await records.supersede(who, "a", RecordWrite(text="Not allergic"), reason="tested")
        assert (await records.show(who, "a")).superseded_by == report.outcomes[0].ref.id  # type: ignore[union-attr]


def failing_after_the_commit(store: Store) -> list[Callable[..., Any]]:
    """As when a worker is killed between the commit and its answer: the server asks again."""
    lost = {"answers": 0}

    def forgetful(change: Callable[..., Awaitable[Any]], name: str) -> Callable[..., Any]:
        @activity.defn(name=name)
        async def attempt(asked: RememberInput, at: datetime) -> LifecycleReport:
            report: LifecycleReport = await change(asked, at)
            if lost["answers"] == 0:
                lost["answers"] += 1
                raise ConnectionResetError
            return report

        return attempt

    activities = RecordActivities(store)
    return [forgetful(activities.remember, names.REMEMBER), activities.read_records]


async def test_an_answer_that_is_lost_changes_nothing_twice_and_is_still_evaluated(
    client: Client, tmp_path: Path
) -> None:
    async with serving(client, tmp_path, records=failing_after_the_commit) as stack:
        await stack.store.import_lines(
            stack.principal, [RecordWrite(text="Drinks cola", attribute="drink")], actor="x", at=datetime.now(UTC)
        )
        report = await stack.host.records.remember_many(
            stack.principal,
            [RecordWrite(text="Drinks tea", attribute="drink"), RecordWrite(text="Drinks water", attribute="drink")],
        )
        stored = {record.text: record for record in await stack.store.records(stack.principal)}
        assert {text: (r.status.value, r.version) for text, r in stored.items()} == {
            "Drinks cola": ("superseded", 2),
            "Drinks tea": ("superseded", 1),
            "Drinks water": ("confirmed", 1),
        }
        assert [outcome.disposition for outcome in report.outcomes] == ["written", "written"]
        (due,) = await stack.aftermath.evaluations(1)
        assert sorted(due.record_ids) == sorted(record.id for record in stored.values())


@dataclass
class SlowIndex:
    """Takes longer than a silent activity may, and counts how often it was asked."""

    asked: int = 0

    async def drain(self, batch: int) -> int:
        self.asked += 1
        await asyncio.sleep((MISSED_AFTER + timedelta(seconds=1)).total_seconds())
        return 0


async def test_a_worker_killed_in_mid_operation_is_missed_in_seconds_and_a_slow_one_is_not(
    client: Client, tmp_path: Path
) -> None:
    store_url, queue = f"sqlite:///{tmp_path / 'retold.db'}", f"lifecycle-{uuid4()}"
    engine = open_engine(store_url)
    await migrate(engine)
    store, index, aftermath = Store(engine), SlowIndex(), Aftermath()
    mortal = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.integration.mortal_worker",
        client.service_client.config.target_host,
        queue,
        store_url,
        cwd=Path(__file__).parents[2],
    )
    who = Principal(tenant=f"acme/{uuid4()}", user="ada")
    waiting = asyncio.create_task(Host(client, lifecycle_queue=queue).records.remember(who, "Lives in Bern"))
    try:
        assert await asyncio.wait_for(mortal.wait(), 30) == -signal.SIGKILL
    finally:
        if mortal.returncode is None:
            mortal.kill()
    worker = Worker(
        client,
        task_queue=queue,
        workflows=[RememberWorkflow, NotedEvaluation],
        activities=[
            RecordActivities(store).remember,
            OperationActivities(store, index, None).bring_index_into_line,  # type: ignore[arg-type]
            aftermath.note_evaluation,
        ],
    )
    async with worker, asyncio.timeout(25):  # it took two minutes before activities beat
        outcome = await waiting
        (due,) = await aftermath.evaluations(1)
    assert outcome.disposition == "written"
    assert outcome.ref is not None and due.record_ids == (outcome.ref.id,)
    assert [record.text for record in await store.records(who)] == ["Lives in Bern"]
    assert index.asked == 1
    await store.close()


async def test_what_is_imported_is_evaluated_and_every_history_replays(client: Client, tmp_path: Path) -> None:
    async with serving(client, tmp_path) as stack:
        lines = (RecordWrite(text="Answer briefly", id="k"), RecordWrite(text="Has a dog"))
        operation = operation_workflow_id("import", stack.principal, "1")
        report = await client.execute_workflow(
            names.IMPORT_WORKFLOW,
            ImportInput(principal=stack.principal, lines=lines, actor="importer"),
            id=operation,
            task_queue=stack.queue,
            result_type=ImportReport,
        )
        assert report == ImportReport(written=2)
        (due,) = await stack.aftermath.evaluations(1)
        assert (len(due.record_ids), due.cause, due.actor) == (2, "imported", "importer")
        await stack.host.records.delete(stack.principal, "k", reason="private")
        prefix = operation_workflow_id("records", stack.principal, "")
        replayed = 0
        async for execution in client.list_workflows(f'TaskQueue = "{stack.queue}"'):
            if execution.id.startswith((prefix, operation)):
                history = await client.get_workflow_handle(execution.id).fetch_history()
                await Replayer(workflows=WORKFLOWS, plugins=plugins()).replay_workflow(history)
                replayed += 1
        assert replayed >= 1
