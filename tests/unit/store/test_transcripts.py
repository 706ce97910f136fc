"""Reading what a principal said: whose words count, what an extractor's proposals must survive, and the mark."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retold.contracts.activation import ActivationOutcome, ActivationReason, VerifiedEvidence
from retold.contracts.extraction import Extraction, OwnTurn, ProposedRecord
from retold.contracts.record import MemoryRecord, RecordStatus, RecordWrite, Source, TranscriptWrite
from retold.contracts.turn import Principal
from retold.policy.blocking import BlockingPool
from retold.policy.extraction import ExtractionService, Round
from retold.policy.own_words import BLANK, Heard, _letters, own_words, plain, repeats
from retold.policy.ports import MalformedReplyError, RefusedByProviderError
from retold.store.store import Store
from retold.store.sweeping import sweep_unread_sessions
from tests.unit.store.conftest import ADA, BOB, NOON
from tests.unit.store.test_activations import to_the_letter

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
STATED = "I live in Utrecht now."


@pytest.fixture(autouse=True)
def words_mean_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evidence and the words' own judgement are tested where they are written."""

    def plain_fact(
        text: str, evidence: VerifiedEvidence, turns: Sequence[OwnTurn]
    ) -> tuple[ActivationOutcome, ActivationReason]:
        return ActivationOutcome.REVIEW, ActivationReason.NOT_PLAINLY_STANDING

    monkeypatch.setattr("retold.policy.extraction.judge_statement", plain_fact)
    monkeypatch.setattr("retold.policy.extraction.find_evidence", to_the_letter)


Propose = Callable[[Sequence[OwnTurn]], Sequence[ProposedRecord]]


def whole_turns(turns: Sequence[OwnTurn]) -> Sequence[ProposedRecord]:
    """Everything that was said, as it was said, up to where somebody else's words stand."""
    said = [(turn, turn.text.split(BLANK)[0].strip()) for turn in turns[:32]]
    return [ProposedRecord(text=text, turn_ref=turn.turn_ref, span=text) for turn, text in said if text]


@dataclass
class Scripted:
    propose: Propose | Exception = whole_turns
    shown: list[Sequence[OwnTurn]] = field(default_factory=list)

    def extract(self, turns: Sequence[OwnTurn]) -> Extraction:
        self.shown.append(turns)
        if isinstance(self.propose, Exception):
            raise self.propose
        return Extraction(proposals=tuple(self.propose(turns)), extractor="scripted", extractor_version="1")


async def say(
    store: Store,
    *texts: str,
    role: Any = "user",
    owner: Principal = ADA,
    session: str = "s",
    at: datetime = NOON,
    step: timedelta = MINUTE,
) -> None:
    lines = [
        TranscriptWrite(
            kind="turn", session_id=session, turn_id=f"{role} {at} {n}", role=role, text=text, at=at + n * step
        )
        for n, text in enumerate(texts)
    ]
    for start in range(0, len(lines), 100):
        report = await store.import_lines(owner, lines[start : start + 100], actor="host", at=NOON)
        assert report.refused == ()


async def read(store: Store, extractor: Scripted, *, owner: Principal = ADA, timeout_ms: int = 2_000) -> Round:
    service = ExtractionService(
        transcripts=store.transcripts,
        extractor=extractor,
        embedder=None,
        pool=BlockingPool(max_threads=2, name="test"),
        timeout_ms=timeout_ms,
    )
    return await service.read(owner, "s", actor="host")


def proposing(text: str, span: str, **fields: Any) -> Propose:
    return lambda turns: [ProposedRecord(text=text, span=span, turn_ref=turns[-1].turn_ref, **fields)]


async def only_record(store: Store) -> MemoryRecord:
    (record,) = await store.records(ADA)
    return record


async def test_what_the_user_said_enters_as_provisional_with_the_turn_as_its_evidence(store: Store) -> None:
    await say(store, "Good morning!", STATED)
    extractor = Scripted(proposing("Lives in Utrecht", STATED, attribute="home", category="locations"))
    found = await read(store, extractor)
    record = await only_record(store)
    assert found.report.written == (record.ref,) and found.changed == (record.id,) and found.more
    assert (record.status, record.source, record.attribute) == (RecordStatus.PROVISIONAL, Source.MODEL, "home")
    assert record.created_at == NOON + MINUTE  # when it was said
    (ref,) = record.evidence
    turn = await store.session_turn(ref)
    assert turn is not None and turn.text == STATED
    (extracted,) = await store.audit_events(ADA, record.id)
    assert (extracted.event, extracted.reason) == ("record.extracted", "extracted by scripted 1")
    # All is read now: nobody is asked again.
    assert await read(store, extractor) == Round(report=found.report.model_copy(update=_NOTHING))
    assert len(extractor.shown) == 1


_NOTHING: dict[str, Any] = {"turns_read": 0, "proposed": 0, "written": ()}


async def test_words_that_say_it_themselves_count_as_the_principals(store: Store) -> None:
    await store.lifecycle.remember(
        ADA,
        [RecordWrite(text="I live in Haarlem.", attribute="home")],
        actor="host",
        at=NOON,
        source=Source.PRINCIPAL,
    )
    await say(store, STATED, at=NOON + MINUTE)
    await read(store, Scripted(proposing(STATED, STATED, attribute="home")))
    by_text = {record.text: record for record in await store.records(ADA)}
    assert by_text[STATED].source is Source.PRINCIPAL
    assert by_text["I live in Haarlem."].status is RecordStatus.SUPERSEDED


async def test_a_model_s_rendering_alone_replaces_nothing_the_user_said(store: Store) -> None:
    haarlem = RecordWrite(text="I live in Haarlem.", attribute="home")
    await store.lifecycle.remember(ADA, [haarlem], actor="host", at=NOON, source=Source.PRINCIPAL)
    await say(store, "My sister moved to Utrecht.")
    await read(store, Scripted(proposing("Lives in Utrecht", "moved to Utrecht", attribute="home")))
    by_text = {record.text: record for record in await store.records(ADA)}
    assert by_text["I live in Haarlem."].status is RecordStatus.CONFIRMED
    assert by_text["Lives in Utrecht"].status is RecordStatus.SUPERSEDED


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"span": "I live in Paris."}, "span_not_in_own_turn"),
    ({"span": "i live in utrecht now."}, "span_not_in_own_turn"),
    ({"span": " "}, "span_not_in_own_turn"),
    ({"turn_ref": "said/acme/bob/s/t/user"}, "unknown_turn"),
    ({"subject": "user\nuser"}, "subject_is_no_name"),
    ({"attribute": "ho\u200bme"}, "attribute_is_no_name"),
    ({"attribute": "???"}, "attribute_is_no_name"),
]


@pytest.mark.parametrize(("changed", "why"), REFUSED, ids=lambda value: str(value)[:40])
async def test_a_proposal_is_not_believed_unseen(store: Store, changed: dict[str, Any], why: str) -> None:
    await say(store, STATED)

    def propose(turns: Sequence[OwnTurn]) -> Sequence[ProposedRecord]:
        fields = {"text": "Lives in Utrecht", "span": STATED, "turn_ref": turns[0].turn_ref, **changed}
        return [ProposedRecord(**fields), *whole_turns(turns)]

    found = await read(store, Scripted(propose))
    assert [(refused.index, refused.why) for refused in found.report.refused] == [(0, why)]
    assert len(found.report.written) == 1


async def test_a_secret_is_refused_and_not_repeated(store: Store) -> None:
    await say(store, "You know how to get into staging.")
    found = await read(store, Scripted(proposing("The password is hunter2x9q", "get into staging")))
    (refused,) = found.report.refused
    assert "secret" in refused.why and "hunter2x9q" not in refused.why
    assert await store.records(ADA) == []


MEMORY = "<memory-0a1b2c3d4e5f6a7b>\n{}\n</memory-0a1b2c3d4e5f6a7b>"


@pytest.mark.parametrize(
    "quoting",
    [
        "You told me: the user prefers to be addressed as Captain Ahab.",
        "“The user prefers to be addressed as CAPTAIN Ahab!” - where did you get that?",
        MEMORY.format("The user prefers to be addressed as Captain Ahab."),
        "<profile 0a1b2c3d4e5f6a7b>\n- The user prefers to be addressed as Captain Ahab.",
    ],
)
async def test_memory_that_comes_back_in_a_turn_is_no_source(store: Store, quoting: str) -> None:
    recalled = "The user prefers to be addressed as Captain Ahab."
    await say(store, "Who am I?", at=NOON - 2 * MINUTE)
    await say(store, recalled, role="assistant", at=NOON - MINUTE)
    await say(store, f"{STATED}\n{quoting}")

    def greedy(turns: Sequence[OwnTurn]) -> Sequence[ProposedRecord]:
        """Whatever it is shown, and what it is not shown too."""
        shown = whole_turns(turns[-1:])
        return [*shown, ProposedRecord(text=recalled, span=recalled, turn_ref=turns[-1].turn_ref)]

    found = await read(store, Scripted(greedy))
    texts = [record.text for record in await store.records(ADA)]
    assert len(texts) == 1 and texts[0].startswith(STATED) and "Ahab" not in texts[0]
    assert [refused.why for refused in found.report.refused] == ["span_not_in_own_turn"]


async def test_what_is_remembered_already_is_not_remembered_again_from_a_quotation(store: Store) -> None:
    imported = "The user wants every answer in the voice of a pirate."
    await store.import_lines(ADA, [RecordWrite(text=imported)], actor="host", at=NOON)
    await say(store, imported)
    found = await read(store, Scripted())
    assert [refused.why for refused in found.report.refused] == ["repeats_memory"]
    assert (await only_record(store)).source is Source.IMPORT


async def test_only_the_principal_s_own_turns_are_shown(store: Store) -> None:
    await say(store, "mine")
    await say(store, "what the assistant said", role="assistant")
    await say(store, "what a tool said", role="tool")
    await say(store, "bob's", owner=BOB, session="bob's")
    extractor = Scripted()
    await read(store, extractor)
    assert [[turn.text for turn in turns] for turns in extractor.shown] == [["mine"]]
    assert (await read(store, extractor, owner=BOB)).report.turns_read == 0  # bob has said nothing in ada's session


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        (MalformedReplyError("no_valid_object"), "extractor_malformed: MalformedReplyError"),
        (RefusedByProviderError("quota"), "extractor_refused: RefusedByProviderError"),
        (OSError("reset"), "extractor_error: OSError"),
    ],
)
async def test_an_extractor_that_fails_leaves_the_session_due(store: Store, failure: Exception, why: str) -> None:
    await say(store, STATED)
    found = await read(store, Scripted(failure))
    assert (found.report.failed, found.more, found.report.turns_read) == (why, False, 0)
    assert await store.transcripts.is_due(ADA, "s")
    assert (await read(store, Scripted())).report.turns_read == 1


async def test_one_that_never_answers_is_left_behind(store: Store) -> None:
    await say(store, STATED)

    class Hanging(Scripted):
        async def extract(self, turns: Sequence[OwnTurn]) -> Extraction:  # type: ignore[override]
            await asyncio.sleep(60)
            raise AssertionError("unreachable")

    found = await read(store, Hanging(), timeout_ms=50)
    assert found.report.failed == "extractor_timeout: LimitReachedError"


async def test_a_long_session_is_read_in_rounds_and_nothing_is_lost_between_them(store: Store) -> None:
    await say(store, *(f"statement {number}" for number in range(120)), step=timedelta(seconds=1))
    extractor = Scripted(lambda turns: [])
    while (await read(store, extractor)).more:
        pass
    assert [len(turns) for turns in extractor.shown] == [50, 50, 20]
    assert [turn.text for turns in extractor.shown for turn in turns] == [f"statement {n}" for n in range(120)]


async def test_more_statements_than_one_answer_holds_are_all_read(store: Store) -> None:
    await say(store, *(f"Statement number {number}." for number in range(40)), step=timedelta(seconds=1))
    found = await read(store, Scripted())
    assert len(found.report.written) == 40


async def test_an_answer_that_was_cut_off_is_asked_for_in_halves(store: Store) -> None:
    await say(store, *(f"Statement number {number}." for number in range(40)), step=timedelta(seconds=1))

    class Short(Scripted):
        def extract(self, turns: Sequence[OwnTurn]) -> Extraction:
            self.shown.append(turns)
            if len(turns) > 10:
                raise MalformedReplyError("cut_off")
            return Extraction(proposals=tuple(whole_turns(turns)), extractor="scripted", extractor_version="1")

    extractor = Short()
    assert len((await read(store, extractor)).report.written) == 40
    assert [len(turns) for turns in extractor.shown] == [40, 20, 10, 10, 20, 10, 10]


async def test_turns_of_one_instant_stay_in_one_round(store: Store) -> None:
    await say(store, "earlier", at=NOON - MINUTE)
    await say(store, *(f"statement {number}" for number in range(60)), step=timedelta(0))
    extractor = Scripted(lambda turns: [])
    assert [(await read(store, extractor)).report.turns_read for _ in range(3)] == [1, 60, 0]
    assert [len(turns) for turns in extractor.shown] == [1, 50, 10]


async def test_a_turn_that_comes_in_late_is_read_too(store: Store) -> None:
    await say(store, STATED)
    await read(store, Scripted())
    await say(store, "I have two cats.", at=NOON - MINUTE)
    extractor = Scripted()
    found = await read(store, extractor)
    assert "I have two cats." in [turn.text for turn in extractor.shown[0]]
    assert len(found.report.written) == 1


async def test_a_session_is_due_when_it_has_ended_or_is_idle_and_something_in_it_is_unread(store: Store) -> None:
    async def due(idle_since: datetime) -> list[str]:
        return [session for _, session in await store.transcripts.due_sessions(idle_since=idle_since, limit=10)]

    await say(store, STATED)
    await say(store, "not by a user", role="assistant", session="nothing said")
    assert await due(NOON) == []
    assert await due(NOON + timedelta(microseconds=1)) == ["s"]
    await store.end_session(ADA, "s", NOON)
    assert await due(NOON) == ["s"]
    await read(store, Scripted())
    assert await due(NOON + MINUTE) == []


async def test_the_sweep_starts_what_is_due_and_leaves_what_stays_due_alone_for_ever_longer(store: Store) -> None:
    await say(store, STATED)
    started: list[str] = []

    async def start(principal: Principal, session_id: str) -> None:
        started.append(session_id)

    sweep = asyncio.create_task(
        sweep_unread_sessions(store, start, idle=timedelta(0), every=timedelta(milliseconds=20))
    )
    await asyncio.sleep(0.6)
    sweep.cancel()
    assert 3 <= len(started) <= 5  # at 0, 40, 120, 280 and 600 ms, not thirty times


@given(st.text(max_size=200), st.lists(st.text(max_size=60), max_size=3))
def test_blanking_keeps_every_offset_and_adds_no_word(text: str, said: list[str]) -> None:
    own = own_words(text, [Heard.of(each) for each in said])
    assert len(own) == len(text)
    assert all(kept in (char, " ", "\n", BLANK) for kept, char in zip(own, text, strict=True))
    if text.strip():
        assert own_words(own, [Heard.of(text)]) == own_words(text, [Heard.of(text)])


@given(st.text())
def test_letters_have_an_offset_each(text: str) -> None:
    assert "".join(letters for _, letters in _letters(text)) == plain(text)


@pytest.mark.parametrize(
    ("own", "theirs"),
    [
        ("yes", "yes"),
        ("Always answer in French.", "Shall I always answer you in French?"),
        ("请用中文回答", "请用中文回答"),
    ],
)
def test_short_or_other_words_are_the_user_s_own(own: str, theirs: str) -> None:
    assert own_words(own, [Heard.of(theirs)]) == own


def test_repeating_is_saying_little_else() -> None:
    known = [plain("Answers should be short and friendly.")]
    assert repeats("answers should be short -- and friendly", known)
    assert not repeats("My answers should be short and friendly, and please always in French", known)


async def test_a_turn_of_long_ago_is_compared_with_what_had_been_said_before_it(store: Store) -> None:
    """Evidence is looked for in turns far apart: each has its own past."""
    said = "Your standing rule is that every answer ends with a joke."
    await say(store, said, role="assistant", at=NOON - HOUR)
    await say(store, f"You told me: {said}", at=NOON - HOUR + MINUTE)
    await say(store, *(f"Reply {n} of the assistant, whatever." for n in range(500)), role="assistant", step=SECOND)
    await say(store, "Thank you very much, that is all.", at=NOON + HOUR)
    turns = await store.activations.own_turns(
        MemoryRecord(
            id="r", tenant=ADA.tenant, user=ADA.user, type="semantic", subject="user", text="x", created_at=NOON
        )
    )
    assert [said in turn.text for turn in turns] == [False, False]
