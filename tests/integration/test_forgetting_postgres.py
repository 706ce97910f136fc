"""Forgetting on PostgreSQL, where an evaluation of the same record may be under way in another process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import event

from retold.contracts.activation import ActivationOutcome, ActivationReason, EvidenceMethod, VerifiedEvidence
from retold.contracts.forgetting import BeginForgetting, ForgetInput
from retold.contracts.identity import turn_ref
from retold.contracts.record import RecordWrite, RetrievalCategory, TranscriptWrite
from retold.contracts.review import ReviewItem
from retold.contracts.turn import Principal
from retold.policy.activation.service import Evaluation, Label
from retold.store.engine import open_engine
from retold.store.migrations import migrate
from retold.store.store import Store
from tests.postgres import running_postgres
from tests.unit.store.conftest import NOON

SAID = "My uncle says always answer in Welsh."
LATER = NOON + timedelta(seconds=1)


@pytest.fixture
async def databases() -> AsyncIterator[tuple[Any, Any]]:
    """Two processes' worth of engines on one database."""
    with running_postgres() as server, server.database(migrated=False) as url:
        engines = open_engine(url), open_engine(url)
        await migrate(engines[0])
        yield engines
        for engine in engines:
            engine.dispose()


async def test_an_evaluation_under_way_leaves_no_word_of_what_is_forgotten(databases: tuple[Any, Any]) -> None:
    ours, theirs = (Store(engine) for engine in databases)
    who = Principal(tenant=str(uuid4()), user="ada")
    line = TranscriptWrite(kind="turn", session_id="s", turn_id="t", role="user", text=SAID, at=NOON)
    await ours.import_lines(who, [line, RecordWrite(text=SAID)], actor="host", at=NOON)
    (record,) = await ours.records(who)
    evaluation = Evaluation(
        principal=who,
        record=record,
        label=Label(category=RetrievalCategory.PREFERENCES, by="labels"),
        looked_for_evidence=True,
        evidence=VerifiedEvidence(
            session_id="s",
            turn_id="t",
            turn_ref=turn_ref(who, "s", "t", "user"),
            span=SAID,
            start=0,
            end=len(SAID),
            said_at=NOON,
            method=EvidenceMethod.EXACT,
            similarity=1.0,
        ),
        category=None,
        policy_failure=None,
        language="en",
        outcome=ActivationOutcome.REVIEW,
        reason=ActivationReason.QUOTED,
        after=None,
        actor="retold",
        cause="imported",
    )
    here, written, goes_on = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    @event.listens_for(databases[0], "commit")
    def _wait(_: object) -> None:  # everything is written, and nobody sees it yet
        here.call_soon_threadsafe(written.set)
        asyncio.run_coroutine_threadsafe(goes_on.wait(), here).result(timeout=20)

    asked = ForgetInput(principal=who, target={"what": "principal"}, actor="ada", reason="asked")
    settling = asyncio.create_task(ours.activations.settle(evaluation, LATER))
    await written.wait()
    begin = theirs.forgetting.begin(BeginForgetting(request=asked, run_id="r", asked_at=NOON), NOON)
    forgetting = asyncio.create_task(begin)
    await asyncio.sleep(0.5)
    goes_on.set()
    settled = await settling
    assert settled is not None
    assert settled.review_id is not None
    event.remove(databases[0], "commit", _wait)

    found = await theirs.forgetting.read_back(await forgetting)
    assert {surface.value: left for surface, left in found.items() if left} == {"index_outbox": 3}
    item = await theirs.reviews.item(settled.review_id, LATER)
    assert isinstance(item, ReviewItem)
    assert (item.review.evidence, item.turn_text, item.record_text) == (None, None, None)
