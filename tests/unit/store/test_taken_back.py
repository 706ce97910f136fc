"""A standing instruction that its user takes back: no extractor makes a record of "never again", and it counts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from retold.contracts.extraction import Extraction, OwnTurn, ProposedRecord
from retold.contracts.record import Activation, TranscriptWrite
from retold.contracts.turn import Principal
from retold.policy.activation.service import ActivationService
from retold.policy.blocking import BlockingPool
from retold.policy.extraction import ExtractionService
from retold.policy.local.record_categories import LocalCategoryPolicy, LocalRetrievalCategories
from retold.store.store import Store
from tests.unit.store.conftest import ADA, BOB, NOON

HOUR = timedelta(hours=1)
FRENCH = "Please always answer me in French."
POOL = BlockingPool(max_threads=2, name="test")


class Scripted:
    """Proposes what it was told to, or nothing."""

    def __init__(self, **proposed: Any) -> None:
        self._proposed = proposed

    def extract(self, turns: Sequence[OwnTurn]) -> Extraction:
        found = [ProposedRecord(text=t.text, span=t.text, turn_ref=t.turn_ref, **self._proposed) for t in turns]
        return Extraction(proposals=found if self._proposed else (), extractor="scripted", extractor_version="1")


async def hear(
    store: Store, text: str, at: datetime, *, owner: Principal = ADA, session: str = "s", **proposed: Any
) -> None:
    """The user says it; it is read, and whatever it touches is evaluated."""
    session = f"{session}-{owner.user}"
    line = TranscriptWrite(kind="turn", session_id=session, turn_id=str(at), role="user", text=text, at=at)
    await store.import_lines(owner, [line], actor="host", at=at)
    reading = ExtractionService(
        transcripts=store.transcripts,
        extractor=Scripted(**proposed),
        embedder=None,
        pool=POOL,
        timeout_ms=2_000,
        now=lambda: at,
    )
    activation = ActivationService(
        book=store.activations,
        labels=LocalRetrievalCategories(),
        policy=LocalCategoryPolicy(),
        embedder=None,
        pool=POOL,
        timeout_ms=2_000,
        now=lambda: at,
    )
    read = await reading.read(owner, session, actor="retold")
    for id in read.changed:
        await activation.evaluate(owner, id, actor="retold", cause="extracted")


async def activations(store: Store, owner: Principal = ADA) -> dict[str, Activation]:
    return {record.text: record.activation for record in await store.records(owner)}


async def test_what_its_user_takes_back_is_conditional_at_once_and_a_reviewer_decides(store: Store) -> None:
    await hear(store, FRENCH, NOON, attribute="answer_language")
    await hear(store, FRENCH, NOON, owner=BOB, attribute="answer_language")
    assert await activations(store) == {FRENCH: Activation.AMBIENT}
    await hear(store, "Actually, never answer in French again.", NOON + HOUR)
    assert await activations(store) == {FRENCH: Activation.CONDITIONAL}
    assert await activations(store, BOB) == {FRENCH: Activation.AMBIENT}
    said = [event.event for event in await store.audit_events(ADA)]
    since = said[said.index("record.taken_back") :]
    assert since == [
        "record.taken_back",
        "record.activation_changed",
        "record.category_assigned",
        "record.activation_evidence_verified",
        "record.activation_decided",
        "review.opened",
    ]


@pytest.mark.parametrize(
    ("text", "proposed"),
    [
        ("Answer this one in English, please.", {}),
        ("Never answer in French. Sorry, always answer in French.", {}),
        # It is a record for its time, and suspends what stands.
        ("Never answer in French.", {"attribute": "answer_language", "temporary": True}),
    ],
)
async def test_what_is_not_taken_back_for_good_goes_on_standing(
    store: Store, text: str, proposed: dict[str, Any]
) -> None:
    await hear(store, FRENCH, NOON, attribute="answer_language")
    await hear(store, text, NOON + HOUR, **proposed)
    assert (await activations(store))[FRENCH] is Activation.AMBIENT


async def test_what_was_said_before_the_instruction_takes_nothing_back(store: Store) -> None:
    await hear(store, FRENCH, NOON, attribute="answer_language")
    await hear(store, "Never answer in French.", NOON - HOUR, session="earlier")
    assert await activations(store) == {FRENCH: Activation.AMBIENT}
