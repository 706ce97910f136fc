"""What a session is told, while the records behind it are learnt, replaced, suspended, expire, and are forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from retold.contracts.extraction import Extraction, OwnTurn, ProposedRecord
from retold.contracts.lifecycle import ExpireInput
from retold.contracts.record import RecordStatus, TranscriptWrite
from retold.policy.blocking import BlockingPool
from retold.policy.extraction import ExtractionService
from retold.policy.profile import ProfileAssembler
from retold.store.engine import open_engine
from retold.store.store import Store
from tests.unit.store.conftest import ADA, NOON
from tests.unit.store.test_activations import Policies, policies, service
from tests.unit.store.test_transcripts import words_mean_what_they_say

__all__ = ["policies", "words_mean_what_they_say"]

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
SHORT, LONG = "Always answer me in one short sentence.", "Always answer me in full and in detail."


class Worker:
    """One process with a store of its own: nothing but the database is shared."""

    def __init__(self, database: Path, policies: Policies) -> None:
        self.store = Store(open_engine(f"sqlite:///{database}"))
        self.profiles = ProfileAssembler(self.store)
        self.policies = policies

    async def instructions(self, session_id: str, at: datetime) -> list[str]:
        """What the session is told, as a turn of it finds out."""
        return [line.removeprefix("- ") for line in (await self.block(session_id, at)).split("\n")[2:-1]]

    async def block(self, session_id: str, at: datetime) -> str:
        opened = await self.store.open_turn(ADA, session_id, f"no decision at {at}", at, want_inventory=False)
        return (opened.profile or await self.profiles.build(ADA, session_id, at)).text

    async def hear(self, text: str, at: datetime, **proposed: Any) -> None:
        """The user says it in passing; it is extracted, evaluated, and so is all that it touched."""
        line = TranscriptWrite(kind="turn", session_id="s", turn_id=str(at), role="user", text=text, at=at)
        await self.store.import_lines(ADA, [line], actor="host", at=at)

        class Extractor:
            def extract(self, turns: Sequence[OwnTurn]) -> Extraction:
                found = (
                    ProposedRecord(text=turn.text, span=turn.text, turn_ref=turn.turn_ref, **proposed) for turn in turns
                )
                return Extraction(proposals=tuple(found), extractor="scripted", extractor_version="1")

        extraction = ExtractionService(
            transcripts=self.store.transcripts,
            extractor=Extractor(),
            embedder=None,
            pool=BlockingPool(max_threads=2, name="test"),
            timeout_ms=2_000,
            now=lambda: at,
        )
        read = await extraction.read(ADA, "s", actor="retold")
        assert read.report.refused == ()
        await self.evaluate(read.changed, at)

    async def evaluate(self, ids: Sequence[str], at: datetime) -> None:
        activation = service(self.store, self.policies, now=lambda: at)
        for id in ids:
            await activation.evaluate(ADA, id, actor="retold", cause="extracted")

    async def id_of(self, text: str) -> str:
        return next(record.id for record in await self.store.records(ADA) if record.text == text)


@pytest.fixture
def one(database: Path, policies: Policies) -> Worker:
    return Worker(database, policies)


@pytest.fixture
def other(database: Path, policies: Policies) -> Worker:
    return Worker(database, policies)


async def test_a_promotion_and_a_change_of_mind_reach_the_next_session_and_no_earlier_one(
    one: Worker, other: Worker
) -> None:
    assert await one.instructions("first", NOON) == []
    await one.hear(SHORT, NOON + HOUR, attribute="answer_length")
    assert await other.instructions("first", NOON + HOUR) == []
    assert await other.instructions("second", NOON + HOUR) == [SHORT]

    await other.hear(LONG, NOON + 2 * HOUR, attribute="answer_length")
    statuses = {record.text: record.status for record in await one.store.records(ADA)}
    assert statuses == {SHORT: RecordStatus.SUPERSEDED, LONG: RecordStatus.CONFIRMED}
    assert await one.instructions("second", NOON + 2 * HOUR) == [SHORT]
    assert await one.instructions("third", NOON + 2 * HOUR) == [LONG]
    assert await one.block("third", NOON + 3 * HOUR) == await other.block("third", NOON + 3 * HOUR)


async def test_expiry_and_deletion_reach_the_next_session_forgetting_reaches_this_one(
    one: Worker, other: Worker
) -> None:
    await one.hear(SHORT, NOON, attribute="answer_length")
    await one.hear("Always use metric units with me.", NOON + MINUTE, attribute="units")
    assert len(await one.instructions("first", NOON + MINUTE)) == 2
    units = await one.id_of("Always use metric units with me.")
    await other.store.lifecycle.expire(
        ExpireInput(principal=ADA, record_id=units, actor="ada", reason="asked", at=NOON + HOUR), at=NOON + HOUR
    )
    assert len(await one.instructions("first", NOON + HOUR)) == 2
    assert await one.instructions("second", NOON + HOUR) == [SHORT]

    await other.store.remove_from_profiles(ADA, {units})
    assert await one.instructions("first", NOON + HOUR) == [SHORT]


async def test_what_is_said_for_a_time_suspends_what_is_standing_and_is_not_promoted_itself(
    one: Worker, other: Worker
) -> None:
    await one.hear(SHORT, NOON, attribute="answer_length")
    begins, ends = NOON + HOUR, NOON + 5 * HOUR
    await other.hear(LONG, begins, attribute="answer_length", valid_from=begins, valid_until=ends)
    # Nobody reviewed the temporary one: for its time there is neither.
    assert await one.instructions("before", begins - timedelta(microseconds=1)) == [SHORT]
    assert await one.instructions("within", begins) == []
    assert await one.instructions("after", ends) == [SHORT]
