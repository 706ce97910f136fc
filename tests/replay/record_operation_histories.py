"""Records the histories `test_operation_histories.py` replays: `python -m tests.replay.record_operation_histories`.

One short life on the product's own workers: records, sessions, evaluations, switches, the index, and forgetting. Run
it when a change to one of these workflows is meant and versioned, never to make a failing replay pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowFailureError
from temporalio.testing import WorkflowEnvironment

from retold.client import plugins
from retold.client.tracing import install_tracing
from retold.composition import compose
from retold.contracts import names
from retold.contracts.activation import ActivationInput
from retold.contracts.decision import TurnRecord
from retold.contracts.extraction import ExtractInput
from retold.contracts.forgetting import ForgetInput, ForgetRecord, ForgetSession
from retold.contracts.identity import operation_workflow_id
from retold.contracts.indexing import OverviewInput, RebuildInput, ReconcileInput
from retold.contracts.lifecycle import (
    ContradictInput,
    CorrectInput,
    ExpireInput,
    ReadRecordsInput,
    RememberInput,
    RestoreInput,
    SupersedeInput,
)
from retold.contracts.operations import (
    DeleteRecordInput,
    DevelopmentAmbientInput,
    EndSessionInput,
    ImportInput,
    InspectDecisions,
    InspectInput,
)
from retold.contracts.record import RecordWrite, TranscriptWrite
from retold.contracts.review import Resolution
from retold.contracts.switches import SwitchChange, SwitchName
from retold.contracts.turn import Principal
from retold.credentials import ReviewerCredential
from retold.ending import end_process
from retold.policy.orchestrator import UtilityAwareOrchestrator
from retold.policy.recording import TurnRecorder
from retold.settings import Settings
from tests.conftest import TEMPORAL
from tests.replay.record_histories import _without_traces
from tests.scripted import Script, request, scripted
from worker import running

HISTORIES = Path(__file__).parent / "operation_histories"
ADA = Principal(tenant="acme", user="ada")
SAID_AT = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
STANDING = "Please always answer me in short sentences."
DOUBTFUL = "Never explain things twice, and always use simple words when you answer me."
"""Not plain enough for a rule: a person is to look."""


async def record_all() -> None:
    HISTORIES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, install_tracing("retold-histories"):
        environment = await WorkflowEnvironment.start_local(
            dev_server_existing_path=str(TEMPORAL), plugins=plugins(), identity="recorder"
        )
        settings = Settings(data_dir=Path(folder))
        async with environment, compose(settings) as adapters, running(environment.client, adapters, settings):
            await Life(environment.client).is_lived()


@dataclass(frozen=True)
class Life:
    """Runs workflows one after another, and keeps what each left in its history."""

    client: Client

    async def has(self, name: str, workflow: str, asked: Any, *, queue: str = names.LIFECYCLE_QUEUE) -> str:
        """The run's id."""
        handle = await self.client.start_workflow(workflow, asked, id=f"recorded/{name}", task_queue=queue)
        with contextlib.suppress(WorkflowFailureError):  # a refusal is a history, too
            await handle.result()
        await self.keep(name, handle.id)
        assert handle.first_execution_run_id is not None
        return handle.first_execution_run_id

    async def keep(self, name: str, workflow_id: str) -> None:
        handle = self.client.get_workflow_handle(workflow_id)
        with contextlib.suppress(WorkflowFailureError):
            await handle.result()
        shown = _without_traces(json.loads((await handle.fetch_history()).to_json()))
        (HISTORIES / f"{name}.json").write_text(json.dumps(shown, indent=2, ensure_ascii=False) + "\n")

    async def is_lived(self) -> None:
        await self._remembers_and_changes_its_mind()
        await self._says_what_it_prefers()
        await self._is_operated()
        await self._is_forgotten()

    async def _remembers_and_changes_its_mind(self) -> None:
        written = (_home("home", "Lives in Zürich."), _home("second-home", "Lives in Bern."))
        change: dict[str, Any] = {"principal": ADA, "actor": "recorder", "reason": "recorded"}
        home, second = {**change, "record_id": "home"}, {**change, "record_id": "second-home"}
        run_id = await self.has(
            "remember", names.REMEMBER_WORKFLOW, RememberInput(principal=ADA, records=written, actor="recorder")
        )
        await self.keep("activation-nothing-to-promote", operation_workflow_id("activate", ADA, f"{run_id}-0"))
        both = ContradictInput(**change, record_ids=("home", "second-home"))
        await self.has("contradict", names.CONTRADICT_RECORDS_WORKFLOW, both)
        await self.has("expire", names.EXPIRE_RECORD_WORKFLOW, ExpireInput(**second))
        await self.has("restore", names.RESTORE_RECORD_WORKFLOW, RestoreInput(**second))
        await self.has("correct", names.CORRECT_RECORD_WORKFLOW, CorrectInput(**home, text="Lives near Zürich."))
        moved = SupersedeInput(**home, by=_home("third-home", "Lives in Chur."))
        await self.has("supersede", names.SUPERSEDE_RECORD_WORKFLOW, moved)
        await self.has("delete", names.DELETE_RECORD_WORKFLOW, DeleteRecordInput(**second))
        unknown = DeleteRecordInput(**{**change, "record_id": "never-written"})
        await self.has("delete-refused", names.DELETE_RECORD_WORKFLOW, unknown)
        await self.has("read", names.READ_RECORDS_WORKFLOW, ReadRecordsInput(principal=ADA, limit=2))

    async def _says_what_it_prefers(self) -> None:
        said = tuple(
            TranscriptWrite(kind="turn", session_id="s1", turn_id=f"t{n}", role="user", text=text, at=SAID_AT)
            for n, text in enumerate((STANDING, DOUBTFUL))
        )
        unread = said[0].model_copy(update={"session_id": "s2"})
        imported = ImportInput(
            principal=ADA, lines=(*said, unread, _home("cabin", "Has a cabin in Arosa.")), actor="recorder"
        )
        await self.has("import", names.IMPORT_WORKFLOW, imported, queue=names.OPERATIONS_QUEUE)
        read = ExtractInput(principal=ADA, session_id="s1", actor="recorder")
        run_id = await self.has("extraction", names.EXTRACTION_WORKFLOW, read, queue=names.OPERATIONS_QUEUE)
        await self.keep("activation-of-what-was-said", operation_workflow_id("activate", ADA, f"{run_id}-0-0"))
        again = ActivationInput(principal=ADA, record_ids=("cabin", "gone"), actor="recorder", cause="recorded")
        await self.has("activation-again", names.ACTIVATION_WORKFLOW, again)
        unknown = ReviewerCredential.issue("rita").decide(
            "never-opened", Resolution.REJECT, expected_version=1, reason="recorded"
        )
        await self.has("decide-refused", names.DECIDE_REVIEW_WORKFLOW, unknown)
        ended = EndSessionInput(principal=ADA, session_id="s2")
        await self.has("end-session", names.END_SESSION_WORKFLOW, ended, queue=names.OPERATIONS_QUEUE)

    async def _is_operated(self) -> None:
        for on in (False, True):
            asked = SwitchChange(switch=SwitchName.GAP, on=on, actor="recorder", reason="recorded")
            await self.has(f"switch-{'on' if on else 'off'}", names.SWITCH_WORKFLOW, asked)
        await self.has("list-switches", names.LIST_SWITCHES_WORKFLOW, None)
        ambient = DevelopmentAmbientInput(principal=ADA, record_id="cabin", actor="recorder", reason="recorded")
        for name, workflow, what in (
            ("ambient", names.DEVELOPMENT_AMBIENT_WORKFLOW, ambient),
            ("inspect", names.INSPECT_WORKFLOW, InspectInput(request=InspectDecisions())),
            ("reconcile", names.RECONCILE_INDEX_WORKFLOW, ReconcileInput(repair=True)),
            ("rebuild", names.REBUILD_INDEX_WORKFLOW, RebuildInput(same_embedder=True)),
            ("index-overview", names.INDEX_OVERVIEW_WORKFLOW, OverviewInput()),
        ):
            await self.has(name, workflow, what, queue=names.OPERATIONS_QUEUE)
        await self.has("record-late", names.RECORD_TURN_WORKFLOW, await _a_turn(), queue=names.TURNS_QUEUE)

    async def _is_forgotten(self) -> None:
        asked = {"principal": ADA, "actor": "recorder", "reason": "recorded"}
        for name, target in (
            ("forget-a-record", ForgetRecord(record_id="cabin")),
            ("forget-a-session", ForgetSession(session_id="s1")),
        ):
            # Its executions go as well, so this comes last.
            await self.has(
                name, names.FORGET_WORKFLOW, ForgetInput(target=target, **asked), queue=names.OPERATIONS_QUEUE
            )


def _home(id: str, text: str) -> RecordWrite:
    return RecordWrite(id=id, text=text)


async def _a_turn() -> TurnRecord:
    """A turn's record, as its activity hands it over when the store is away."""
    script = Script()
    stack, asked = scripted(script), request(script)
    driver = UtilityAwareOrchestrator(stack.bodies, TurnRecorder(stack.store))
    await driver.prepare_turn(asked.principal, asked.session_id, asked.turn_id, asked.text)
    (record,) = stack.store.written.values()
    return record


if __name__ == "__main__":
    asyncio.run(record_all())
    end_process(0)
