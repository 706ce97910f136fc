"""Activation and extraction on a real Temporal server: what is written, what is in a history, and who dies when."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.worker import Replayer

from retold.client import plugins
from retold.contracts import names
from retold.contracts.activation import ActivationInput, ActivationOutcome, ActivationReason, ActivationReport
from retold.contracts.extraction import ExtractInput, ExtractReport
from retold.contracts.identity import operation_workflow_id
from retold.contracts.operations import EndSessionInput
from retold.contracts.record import Activation, MemoryRecord, RecordStatus, RecordWrite, TranscriptWrite
from retold.contracts.turn import Principal
from retold.policy.ports import MalformedReplyError
from retold.store.engine import open_engine
from retold.store.migrations import migrate
from retold.store.store import Store
from tests.integration.activating import WORKFLOWS, Heard, Policies, activation_worker, every_span_speaks_plainly

TEXT = "Always answer me in short sentences."
EARLIER = datetime.now(UTC) - timedelta(hours=1)
BOUND_S = 60


@dataclass
class Stack:
    client: Client
    store: Store
    database: Path
    policies: Policies = field(default_factory=Policies)
    heard: Heard = field(default_factory=Heard)
    principal: Principal = field(default_factory=lambda: Principal(tenant=f"acme-{uuid4()}", user="ada"))
    queue: str = field(default_factory=lambda: f"activation-{uuid4()}")

    @asynccontextmanager
    async def worker(self, **options: Any) -> AsyncIterator[None]:
        async with activation_worker(self.client, self.store, self.policies, self.heard, queue=self.queue, **options):
            yield

    async def say(self, *texts: str, session: str = "s", at: datetime = EARLIER) -> None:
        lines = [
            TranscriptWrite(
                kind="turn", session_id=session, turn_id=f"t{n}", role="user", text=text, at=at + timedelta(minutes=n)
            )
            for n, text in enumerate(texts)
        ]
        await self.store.import_lines(self.principal, lines, actor="host", at=at)

    async def remember(self, *texts: str) -> list[str]:
        report = await self.store.lifecycle.remember(
            self.principal,
            [RecordWrite(text=text) for text in texts],
            actor="host",
            at=EARLIER,
            status=RecordStatus.PROVISIONAL,
        )
        return [outcome.ref.id for outcome in report.outcomes if outcome.ref is not None]

    async def evaluate(self, *ids: str) -> ActivationReport:
        handle = await self.begin(*ids)
        async with asyncio.timeout(BOUND_S):
            report: ActivationReport = await handle.result()
        await self.replays(handle)
        return report

    async def begin(self, *ids: str) -> Any:
        return await self.client.start_workflow(
            names.ACTIVATION_WORKFLOW,
            ActivationInput(principal=self.principal, record_ids=ids, actor="host", cause="remembered"),
            id=operation_workflow_id("activate", self.principal, str(uuid4())),
            task_queue=self.queue,
            result_type=ActivationReport,
        )

    async def extract(self) -> ExtractReport:
        async with asyncio.timeout(BOUND_S):
            report: ExtractReport = await self.client.execute_workflow(
                names.EXTRACTION_WORKFLOW,
                ExtractInput(principal=self.principal, session_id="s"),
                id=operation_workflow_id("extract", self.principal, "s"),
                task_queue=self.queue,
                result_type=ExtractReport,
            )
        return report

    async def records(self) -> dict[str, MemoryRecord]:
        return {record.text: record for record in await self.store.records(self.principal)}

    async def events(self, record_id: str) -> list[str]:
        return [event.event for event in await self.store.audit_events(self.principal, record_id)]

    async def replays(self, handle: Any) -> None:
        history = await handle.fetch_history()
        await Replayer(workflows=WORKFLOWS, plugins=plugins()).replay_workflow(history)
        kept = json.dumps(history.to_json_dict())
        for words in (TEXT, "a model's words"):
            assert words not in kept and _encoded(words) not in kept


def _encoded(words: str) -> str:
    import base64

    # Long enough a part of it appears whatever it is aligned to.
    return base64.b64encode(words.encode()).decode()[4:24]


@pytest.fixture
async def stack(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stack]:
    for name in ("activation.rules.judge_statement", "activation.service.find_evidence"):
        monkeypatch.setattr(f"retold.policy.{name}", None)  # put back when the test ends
    for name in ("judge_statement", "find_evidence"):
        monkeypatch.setattr(f"retold.policy.extraction.{name}", None)
    every_span_speaks_plainly()
    engine = open_engine(f"sqlite:///{tmp_path / 'retold.db'}")
    await migrate(engine)
    store = Store(engine)
    yield Stack(client, store, tmp_path / "retold.db")
    await store.close()


async def test_each_record_is_evaluated_once_and_reviews_are_started(stack: Stack) -> None:
    await stack.say(TEXT)
    standing, *unsaid = await stack.remember(TEXT, *(f"Fact number {number}." for number in range(14)))
    async with stack.worker():
        report = await stack.evaluate(standing, *unsaid, "no such record", standing)
        assert len(report.decisions) == 15
        first, *others = report.decisions
        assert (first.record.id, first.outcome) == (standing, ActivationOutcome.PROMOTE)
        assert {other.reason for other in others} == {ActivationReason.NO_HOST_VERIFIED_EVIDENCE}
        assert (await stack.records())[TEXT].activation is Activation.AMBIENT
        assert (stack.policies.asked, stack.heard.reviews) == (["classifier"], [])
        assert (await stack.evaluate(standing, *unsaid)).decisions == ()

        await stack.say(TEXT, "Always use metric units.", session="another")
        (doubtful,) = await stack.remember("Always use metric units.")
        stack.policies.proposal = MalformedReplyError("no_valid_object")
        report = await stack.evaluate(doubtful)
        assert report.decisions[0].reason is ActivationReason.POLICY_MALFORMED
        assert stack.heard.reviews == list(report.reviews) and len(report.reviews) == 1


async def test_one_record_that_cannot_be_evaluated_keeps_no_other_waiting(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stack.say(TEXT)
    stuck, standing = await stack.remember("A fact.", TEXT)
    subject, away = stack.store.activations.subject, {"away": True}

    async def sometimes(principal: Principal, record_id: str) -> Any:
        if away["away"] and record_id == stuck:
            raise OSError("away")
        return await subject(principal, record_id)

    monkeypatch.setattr(stack.store.activations, "subject", sometimes)
    async with stack.worker():
        running = await stack.begin(stuck, standing)
        async with asyncio.timeout(BOUND_S):
            while (await stack.records())[TEXT].activation is not Activation.AMBIENT:
                await asyncio.sleep(0.05)
            away["away"] = False
            await running.result()
    assert "record.activation_decided" in await stack.events(stuck)


@pytest.mark.parametrize("killed", ["thinking", "settled"])
async def test_kill_of_a_worker_in_mid_evaluation_leaves_one_decision_and_one_of_each_event(
    stack: Stack, tmp_path: Path, killed: str
) -> None:
    await stack.say(TEXT)
    (standing,) = await stack.remember(TEXT)
    marks = tmp_path / "marks"
    address = stack.client.service_client.config.target_host
    doomed = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.activating",
        address, stack.queue, str(stack.database), str(marks), killed,
    )  # fmt: skip
    try:
        running = await stack.begin(standing)
        await _until(marks, killed)
        # Nothing is written while the policy thinks; everything is when the settlement has committed.
        expected = [] if killed == "thinking" else EVENTS
        assert (await stack.events(standing))[1:] == expected
    finally:
        os.kill(doomed.pid, signal.SIGKILL)
        await doomed.wait()
    async with stack.worker():
        async with asyncio.timeout(BOUND_S):
            await running.result()
    assert (await stack.events(standing))[1:] == EVENTS
    assert (await stack.records())[TEXT].version == 2
    assert stack.policies.asked == (["classifier"] if killed == "thinking" else [])


EVENTS = [
    "record.category_assigned",
    "record.activation_evidence_verified",
    "record.confirmed",
    "record.activation_decided",
    "record.activation_changed",
]


async def _until(marks: Path, wanted: str) -> None:
    async with asyncio.timeout(BOUND_S):
        while not marks.exists() or wanted not in marks.read_text().split():
            await asyncio.sleep(0.02)


async def test_a_preference_said_in_passing_is_extracted_confirmed_and_promoted(stack: Stack) -> None:
    await stack.say("What time is it?", TEXT, "Please never call me before nine.")
    async with stack.worker():
        report = await stack.extract()
        assert (report.turns_read, report.proposed, len(report.written), report.failed) == (3, 2, 2, None)
        records = await stack.records()
        assert {record.activation for record in records.values()} == {Activation.AMBIENT}
        assert (await stack.events(records[TEXT].id)) == ["record.extracted", *EVENTS]
        again = await stack.extract()
        assert (again.turns_read, again.written) == (0, ())
        handle = stack.client.get_workflow_handle(operation_workflow_id("extract", stack.principal, "s"))
        await stack.replays(handle)
        assert stack.heard.drains >= 2


async def test_a_failing_extractor_is_reported_and_the_session_stays_due(stack: Stack) -> None:
    await stack.say(TEXT)
    stack.policies.extraction_fails = MalformedReplyError("no_valid_object")
    async with stack.worker():
        assert (await stack.extract()).failed == "extractor_malformed: MalformedReplyError"
        assert await stack.store.transcripts.is_due(stack.principal, "s")
        stack.policies.extraction_fails = None
        assert (await stack.extract()).turns_read == 1


@pytest.mark.parametrize("automatic", [True, False])
async def test_a_session_is_read_when_it_ends_unless_reading_is_switched_off(stack: Stack, automatic: bool) -> None:
    await stack.say(TEXT)
    async with stack.worker(automatic=automatic):
        async with asyncio.timeout(BOUND_S):
            await stack.client.execute_workflow(
                names.END_SESSION_WORKFLOW,
                EndSessionInput(principal=stack.principal, session_id="s"),
                id=operation_workflow_id("end-session", stack.principal, str(uuid4())),
                task_queue=stack.queue,
            )
            while automatic and TEXT not in await stack.records():
                await asyncio.sleep(0.05)
        assert (TEXT in await stack.records()) is automatic
        if automatic:
            handle = stack.client.get_workflow_handle(operation_workflow_id("extract", stack.principal, "s"))
            async with asyncio.timeout(BOUND_S):
                await handle.result()
