"""What befalls records: superseded, suspended, contradicted, corrected, expired, restored; each change audited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from retold.contracts.lifecycle import (
    ContradictInput,
    CorrectInput,
    ExpireInput,
    LifecycleReport,
    ReadRecordsInput,
    RestoreInput,
    SupersedeInput,
)
from retold.contracts.record import Activation, MemoryRecord, RecordStatus, RecordWrite, Source
from retold.store.amending import ChangeRefusedError, StaleRecordVersionError
from retold.store.store import Store
from retold.store.tables import ReviewRow
from retold.store.writing import RefusedWriteError
from tests.unit.store.conftest import ADA, BOB, NOON

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)


def home(text: str, **fields: Any) -> RecordWrite:
    return RecordWrite(text=text, attribute="home_city", **fields)


async def say(store: Store, *writes: RecordWrite, at: datetime = NOON, **how: Any) -> LifecycleReport:
    return await store.lifecycle.remember(ADA, writes, actor="ada", at=at, **how)


async def stored(store: Store) -> dict[str, MemoryRecord]:
    return {record.text: record for record in await store.records(ADA)}


async def holding(store: Store, at: datetime) -> set[str]:
    records = await store.records(ADA)
    loaded = await store.load_current(ADA, [record.ref for record in records], at)
    assert set(loaded) == {r.id for r in records if r.is_current(at) and r.activation is Activation.CONDITIONAL}
    return {record.text for record in loaded.values()}


async def events_of(store: Store, record_id: str) -> list[str]:
    return [event.event for event in await store.audit_events(ADA, record_id)]


def change(record_id: str, **fields: Any) -> dict[str, Any]:
    return {"principal": ADA, "record_id": record_id, "actor": "ada", "reason": "a test", **fields}


# --- remembering ----------------------------------------------------------------------------------------------------


async def test_the_later_statement_about_the_same_attribute_holds_and_both_sides_are_one_transaction(
    store: Store,
) -> None:
    await say(store, home("Lives in Zürich"), RecordWrite(text="Likes Zürich", attribute="likes"))
    before = await store.pending_index_count()
    report = await say(store, home("Lives in Bern"), at=NOON + HOUR)
    now = await stored(store)
    old, new = now["Lives in Zürich"], now["Lives in Bern"]
    assert (old.status, old.superseded_by, old.version) == (RecordStatus.SUPERSEDED, new.id, 2)
    assert new.supersedes == old.id
    assert [ref.id for ref in report.outcomes[0].superseded] == [old.id]
    assert set(report.changed) == {old.id, new.id}
    assert await holding(store, NOON + HOUR) == {"Lives in Bern", "Likes Zürich"}
    assert await store.pending_index_count() == before + 2
    assert await events_of(store, old.id) == ["record.remembered", "record.superseded"]
    assert await events_of(store, new.id) == ["record.remembered"]


async def test_cola_coffee_cola_leaves_cola_and_keeps_the_history(store: Store) -> None:
    for number, text in enumerate(("Drinks cola", "Drinks coffee", "Drinks cola")):
        await say(store, RecordWrite(text=text, attribute="drink"), at=NOON + number * HOUR)
    assert await holding(store, NOON + DAY) == {"Drinks cola"}
    cola = (await stored(store))["Drinks cola"]
    assert await events_of(store, cola.id) == [
        "record.remembered",
        "record.superseded",
        "record.restated",
        "record.prevailed",
    ]
    # A copy of what was said is no new statement: importing it again changes nothing.
    before = await store.records(ADA)
    for text in ("Drinks coffee", "Drinks cola"):
        line = RecordWrite(text=text, attribute="drink")
        assert (await store.import_lines(ADA, [line], actor="host", at=NOON + DAY)).unchanged == 1
    assert await store.records(ADA) == before


@pytest.mark.parametrize(
    "other",
    [
        RecordWrite(text="Administers Bern", attribute="administers"),
        RecordWrite(text="Lives in Bern"),
        RecordWrite(text="Lives in Bern", attribute="home_city", subject="her sister"),
        RecordWrite(text="Lives in Bern", attribute="home_city", scope="work"),
        RecordWrite(text="Moved to Bern", attribute="home_city", type="episodic"),
        RecordWrite(text="Lives in Zurich", attribute="city_of_home"),
        RecordWrite(text="Lived in Bern", attribute="home_city", valid_until=NOON - DAY),
    ],
    ids=lambda write: f"{write.text}, {write.subject}, {write.attribute}, {write.scope}, {write.type}",
)
async def test_a_mere_mention_retires_nothing(store: Store, other: RecordWrite) -> None:
    await say(store, home("Lives in Zürich"))
    await say(store, other, at=NOON + HOUR)
    record = (await stored(store))["Lives in Zürich"]
    assert (record.status, record.version, record.suspended_by) == (RecordStatus.CONFIRMED, 1, None)


async def test_a_statement_is_the_same_however_its_accents_are_encoded(store: Store) -> None:
    await say(store, home("Lives in Zürich"), RecordWrite(text="Likes café"))
    again = await say(store, home("Lives in Zu\u0308rich"), RecordWrite(text="Likes cafe\u0301"), at=NOON + HOUR)
    assert [outcome.disposition for outcome in again.outcomes] == ["unchanged", "unchanged"]
    assert await holding(store, NOON + HOUR) == {"Lives in Zürich", "Likes café"}


async def test_a_weaker_statement_is_kept_as_history_and_disturbs_nothing(store: Store) -> None:
    await say(store, home("Lives in Zürich"), source=Source.PRINCIPAL)
    report = await say(
        store, home("Lives in Bern"), at=NOON + HOUR, source=Source.MODEL, status=RecordStatus.PROVISIONAL
    )
    now = await stored(store)
    assert now["Lives in Zürich"].version == 1
    weaker = now["Lives in Bern"]
    assert (weaker.status, weaker.superseded_by) == (RecordStatus.SUPERSEDED, now["Lives in Zürich"].id)
    assert report.outcomes[0].disposition == "written"
    restored = RestoreInput(**change(weaker.id))
    with pytest.raises(ChangeRefusedError, match=now["Lives in Zürich"].id):
        await store.lifecycle.restore(restored, at=NOON + 2 * HOUR)
    await store.delete_record(ADA, now["Lives in Zürich"].id, actor="ada", reason="wrong", at=NOON + 3 * HOUR)
    await store.lifecycle.restore(restored, at=NOON + 4 * HOUR)
    assert await holding(store, NOON + 4 * HOUR) == {"Lives in Bern"}


async def test_every_way_of_writing_follows_the_same_rules(store: Store) -> None:
    await store.import_lines(ADA, [home("Lives in Zürich", id="k")], actor="host", at=NOON)
    await store.import_lines(ADA, [home("Lives in Bern")], actor="host", at=NOON + HOUR)
    assert await holding(store, NOON + HOUR) == {"Lives in Bern"}
    await store.import_lines(ADA, [home("Lived in Basel", created_at=NOON - DAY)], actor="host", at=NOON + 2 * HOUR)
    assert await holding(store, NOON + 2 * HOUR) == {"Lives in Bern"}
    await say(store, RecordWrite(text="Has a flat", id="k2"), at=NOON + 2 * HOUR)
    await say(store, home("Has a flat in Chur", id="k2"), at=NOON + 3 * HOUR)  # a revision takes the attribute over
    assert await holding(store, NOON + 3 * HOUR) == {"Has a flat in Chur"}
    bern = (await stored(store))["Lives in Bern"]
    with pytest.raises(ChangeRefusedError, match="restore it first"):
        await store.lifecycle.correct(CorrectInput(**change(bern.id), text="Lives in Berne"), at=NOON + 4 * HOUR)


async def test_one_call_may_state_refuse_and_repeat_and_sent_again_it_changes_nothing(store: Store) -> None:
    writes = [
        home("Lives in Zürich"),
        RecordWrite(text="The api key: sk-abcdefghijklmnopqrstuvwx"),
        home("Lives in Bern"),
        RecordWrite(text="Has a dog", id="pet"),
        RecordWrite(text="Has a dog"),
    ]
    first = await say(store, *writes)
    dispositions = [outcome.disposition for outcome in first.outcomes]
    assert dispositions == ["written", "refused", "written", "written", "unchanged"]
    assert first.outcomes[1].field == "text"
    records, pending = await store.records(ADA), await store.pending_index_count()
    again = await say(store, *writes)
    assert (await store.records(ADA), await store.pending_index_count()) == (records, pending)
    assert set(again.changed) == set(first.changed)
    later = await say(store, *writes[3:], at=NOON + HOUR)
    assert [outcome.disposition for outcome in later.outcomes] == ["unchanged", "unchanged"]


async def test_a_proposal_that_the_host_states_too_is_confirmed(store: Store) -> None:
    await say(store, home("Lives in Bern"), source=Source.MODEL, status=RecordStatus.PROVISIONAL)
    await say(store, home("Lives in Bern", source=Source.HOST), at=NOON + HOUR)
    record = (await stored(store))["Lives in Bern"]
    assert (record.status, record.source, record.version) == (RecordStatus.CONFIRMED, Source.HOST, 2)


async def test_a_statement_from_the_future_is_told_now(store: Store) -> None:
    await say(store, home("Lives in Zürich", created_at=datetime(9999, 1, 1, tzinfo=UTC)))
    await say(store, home("Lives in Bern"), at=NOON + HOUR)
    assert await holding(store, NOON + HOUR) == {"Lives in Bern"}


# --- for a time -----------------------------------------------------------------------------------------------------


async def test_a_temporary_statement_suspends_for_its_time_and_never_replaces(store: Store) -> None:
    await say(store, home("Lives in Bern"))
    week = home("Stays in Rome", valid_from=NOON + DAY, valid_until=NOON + 3 * DAY)
    report = await say(store, week, at=NOON + HOUR)
    bern, rome = (await stored(store))["Lives in Bern"], (await stored(store))["Stays in Rome"]
    assert [ref.id for ref in report.outcomes[0].suspended] == [bern.id]
    assert (bern.status, bern.suspended_by) == (RecordStatus.CONFIRMED, rome.id)
    assert await holding(store, NOON + DAY - TICK) == {"Lives in Bern"}
    assert await holding(store, NOON + DAY) == {"Stays in Rome"}
    assert await holding(store, NOON + 3 * DAY - TICK) == {"Stays in Rome"}
    assert await holding(store, NOON + 3 * DAY) == {"Lives in Bern"}
    await store.delete_record(ADA, rome.id, actor="ada", reason="cancelled", at=NOON + 2 * DAY)
    assert await holding(store, NOON + 2 * DAY) == {"Lives in Bern"}
    assert await events_of(store, bern.id) == ["record.remembered", "record.suspended", "record.suspension_ended"]
    await store.lifecycle.restore(RestoreInput(**change(rome.id)), at=NOON + 2 * DAY + HOUR)
    assert await holding(store, NOON + 2 * DAY + HOUR) == {"Stays in Rome"}
    await store.lifecycle.correct(
        CorrectInput(**change(rome.id), text="Stays in Rome", valid_until=NOON + 4 * DAY), at=NOON + 2 * DAY + 2 * HOUR
    )
    assert await holding(store, NOON + 4 * DAY - TICK) == {"Stays in Rome"}
    assert await holding(store, NOON + 4 * DAY) == {"Lives in Bern"}


async def test_what_is_marked_temporary_holds_until_somebody_says_otherwise(store: Store) -> None:
    await say(store, home("Lives in Bern"))
    await say(store, home("Stays in Rome", temporary=True), at=NOON + HOUR)
    assert await holding(store, NOON + 300 * DAY) == {"Stays in Rome"}
    await say(store, home("Lives in Bern"), at=NOON + 2 * HOUR)  # said again, later, for good
    assert await holding(store, NOON + 2 * HOUR) == {"Lives in Bern"}


async def test_what_begins_later_takes_over_when_it_begins(store: Store) -> None:
    await say(store, home("Lives in Bern"))
    await say(store, home("Lives in Rome", valid_from=NOON + DAY), at=NOON + HOUR)
    assert await holding(store, NOON + DAY - TICK) == {"Lives in Bern"}
    assert await holding(store, NOON + DAY) == {"Lives in Rome"}
    assert await store.lifecycle.settle_due(NOON + DAY - TICK) == {}
    changed = await store.lifecycle.settle_due(NOON + DAY)
    bern = (await stored(store))["Lives in Bern"]
    assert bern.id in changed[ADA]
    assert bern.status is RecordStatus.SUPERSEDED
    assert await store.lifecycle.settle_due(NOON + DAY) == {}


async def test_one_temporary_statement_after_another_each_has_its_time(store: Store) -> None:
    await say(store, home("Lives in Bern"))
    for day, place in ((2, "Rome"), (5, "Paris")):
        trip = home(f"Stays in {place}", valid_from=NOON + day * DAY, valid_until=NOON + (day + 1) * DAY)
        await say(store, trip, at=NOON + HOUR)
    assert await holding(store, NOON + 2 * DAY) == {"Stays in Rome"}
    assert await holding(store, NOON + 3 * DAY) == {"Lives in Bern"}
    await store.lifecycle.settle_due(NOON + 3 * DAY)
    assert await holding(store, NOON + 5 * DAY) == {"Stays in Paris"}
    assert await holding(store, NOON + 6 * DAY) == {"Lives in Bern"}


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=14))], ids=["utc", "+14:00"])
@pytest.mark.parametrize(
    "clock", ["2026-06-02T00:00:00", "2026-06-01T23:59:59", "2026-03-29T02:30:00", "0002-01-01T00:00:00",
              "9999-12-30T23:59:59"]
)  # fmt: skip
async def test_an_end_is_exclusive_and_a_beginning_inclusive(store: Store, clock: str, zone: timezone) -> None:
    bound = datetime.fromisoformat(clock).replace(tzinfo=zone)
    told = bound - DAY
    await say(store, RecordWrite(text="until"), RecordWrite(text="from", valid_from=bound), at=told)
    until = (await stored(store))["until"]
    await store.lifecycle.expire(ExpireInput(**change(until.id), at=bound), at=told)
    assert await holding(store, bound - TICK) == {"until"}
    assert await holding(store, bound) == {"from"}
    assert (await stored(store))["until"].valid_until == bound


# --- contradictions -------------------------------------------------------------------------------------------------


async def conflicting_pair(store: Store) -> tuple[str, str]:
    await say(store, RecordWrite(text="Allergic to nuts", id="nuts"), RecordWrite(text="Eats everything", id="all"))
    asked = ContradictInput(principal=ADA, record_ids=("nuts", "all"), actor="ada", reason="both cannot be")
    report = await store.lifecycle.contradict(asked, at=NOON + HOUR)
    one, other = (outcome.ref.id for outcome in report.outcomes if outcome.ref is not None)
    assert set(report.changed) == {one, other}
    return one, other


async def test_what_cannot_be_decided_is_kept_flagged_and_used_by_nobody(store: Store) -> None:
    one, other = await conflicting_pair(store)
    by_id = {record.id: record for record in await store.records(ADA)}
    assert by_id[one].conflicts_with == (other,) and by_id[other].conflicts_with == (one,)
    assert await holding(store, NOON + HOUR) == set()
    assert await store.inventory(ADA, NOON + HOUR) == []
    assert (await events_of(store, one))[-1] == (await events_of(store, other))[-1] == "record.conflict_flagged"


Resolving = Callable[[Store, str], Awaitable[Any]]
RESOLUTIONS: dict[str, Resolving] = {
    "supersede": lambda store, id: store.lifecycle.supersede(
        SupersedeInput(**change(id), by=RecordWrite(text="Eats nearly everything")), at=NOON + DAY
    ),
    "correct": lambda store, id: store.lifecycle.correct(
        CorrectInput(**change(id), text="Eats everything but nuts"), at=NOON + DAY
    ),
    "delete": lambda store, id: store.delete_record(ADA, id, actor="ada", reason="wrong", at=NOON + DAY),
    "expire": lambda store, id: store.lifecycle.expire(ExpireInput(**change(id)), at=NOON + DAY),
}


@pytest.mark.parametrize("resolve", RESOLUTIONS.values(), ids=RESOLUTIONS)
async def test_when_the_last_conflict_goes_the_flag_goes(store: Store, resolve: Resolving) -> None:
    one, other = await conflicting_pair(store)
    await resolve(store, other)
    kept = (await store.records_by_id([one]))[one]
    assert (kept.conflicting, kept.conflicts_with) == (False, ())
    assert "Allergic to nuts" in await holding(store, NOON + DAY)
    assert (await events_of(store, one))[-1] == "record.conflict_resolved"


async def test_a_conflict_ends_with_the_time_of_one_side(store: Store) -> None:
    one, other = await conflicting_pair(store)
    await store.lifecycle.expire(ExpireInput(**change(other), at=NOON + DAY), at=NOON + 2 * HOUR)
    assert await holding(store, NOON + DAY) == set()
    assert set((await store.lifecycle.settle_due(NOON + DAY))[ADA]) == {one, other}
    assert await holding(store, NOON + DAY) == {"Allergic to nuts"}


async def test_a_conflict_that_is_over_is_named_by_neither_when_a_third_statement_comes(store: Store) -> None:
    """Found by a property: the one whose time was over was not settled beside the others, and went on naming one."""
    over_soon, open_ended = home("Lives in Zürich", valid_until=NOON + HOUR), home("Lives in Bern", temporary=True)
    for write in (over_soon, open_ended):
        await say(store, write.model_copy(update={"created_at": NOON - DAY}), at=NOON)
    assert all(record.conflicting for record in await store.records(ADA))
    await say(store, home("Lives in Basel", temporary=True), at=NOON + 2 * HOUR)
    assert [record.conflicts_with for record in await store.records(ADA)] == [(), (), ()]


async def test_statements_of_the_same_moment_about_one_attribute_conflict(store: Store) -> None:
    said = NOON - DAY
    await say(store, home("Lives in Zürich", event_at=said), home("Lives in Bern", event_at=said))
    assert await holding(store, NOON) == set()
    await say(store, home("Lives in Chur"), at=NOON + HOUR)
    assert await holding(store, NOON + HOUR) == {"Lives in Chur"}
    assert not any(record.conflicting for record in await store.records(ADA))


@pytest.mark.parametrize(
    ("sources", "attributes", "expected"),
    [
        ((Source.PRINCIPAL, Source.IMPORT), (None, None), {"one"}),
        ((Source.IMPORT, Source.HOST), ("a", "b"), {"other"}),
        ((Source.HOST, Source.HOST), ("a", "b"), set()),
        ((Source.HOST, Source.HOST), (None, None), set()),
    ],
)
async def test_a_contradiction_is_decided_by_authority_where_it_can_be(
    store: Store, sources: tuple[Source, Source], attributes: tuple[str | None, str | None], expected: set[str]
) -> None:
    for text, source, attribute in zip(("one", "other"), sources, attributes, strict=True):
        await say(store, RecordWrite(text=text, attribute=attribute, id=text), source=source)
    asked = ContradictInput(principal=ADA, record_ids=("one", "other"), actor="ada", reason="disagree")
    await store.lifecycle.contradict(asked, at=NOON + HOUR)
    assert await holding(store, NOON + HOUR) == expected
    once = await store.records(ADA)
    await store.lifecycle.contradict(asked, at=NOON + HOUR)
    assert await store.records(ADA) == once


# --- changes to one record ------------------------------------------------------------------------------------------


async def test_other_words_are_no_reviewed_instruction_and_withdraw_the_review(store: Store, engine: Engine) -> None:
    await say(store, RecordWrite(text="Answer briefly", id="style"))
    record = await store.mark_ambient_for_development(ADA, "style", actor="dev", reason="a test", at=NOON)
    with Session(engine) as session, session.begin():
        session.add(open_review(record))
    await store.lifecycle.correct(CorrectInput(**change("style"), text="Answer at length"), at=NOON + HOUR)
    corrected = (await store.records_by_id([record.id]))[record.id]
    assert (corrected.text, corrected.activation, corrected.version) == ("Answer at length", Activation.CONDITIONAL, 3)
    assert (await events_of(store, record.id))[-2:] == ["record.corrected", "record.activation_changed"]
    with Session(engine) as session:
        assert session.scalars(select(ReviewRow)).one().status == "withdrawn"
    assert not any("length" in event.model_dump_json() for event in await store.audit_events(ADA))


def open_review(record: MemoryRecord) -> ReviewRow:
    return ReviewRow(
        review_id="review",
        tenant=ADA.tenant,
        user_id=ADA.user,
        record_id=record.id,
        record_version=record.version,
        status="open",
        version=1,
        proposed="promote",
        reason="low_confidence",
        owner="owner",
        opened_at=NOON,
        expires_at=NOON + DAY,
    )


async def test_expiry_supersession_deletion_are_undone_to_what_was_before(store: Store) -> None:
    await say(store, home("Lives in Bern", valid_until=NOON + 30 * DAY), status=RecordStatus.PROVISIONAL)
    bern = (await stored(store))["Lives in Bern"]
    restore = RestoreInput(**change(bern.id))
    with pytest.raises(ChangeRefusedError, match="nothing to undo"):
        await store.lifecycle.restore(restore, at=NOON)
    await store.lifecycle.expire(ExpireInput(**change(bern.id)), at=NOON + HOUR)
    await store.lifecycle.restore(restore, at=NOON + 2 * HOUR)
    assert (await stored(store))["Lives in Bern"].valid_until == NOON + 30 * DAY
    await store.delete_record(ADA, bern.id, actor="ada", reason="wrong", at=NOON + 3 * HOUR)
    await store.lifecycle.restore(restore, at=NOON + 4 * HOUR)
    back = (await stored(store))["Lives in Bern"]
    assert (back.status, back.version) == (RecordStatus.PROVISIONAL, 5)


async def test_a_restored_record_does_not_push_its_successor_aside(store: Store) -> None:
    await say(store, home("Lives in Zürich"))
    await say(store, home("Lives in Bern"), at=NOON + HOUR)
    now = await stored(store)
    restore = RestoreInput(**change(now["Lives in Zürich"].id))
    with pytest.raises(ChangeRefusedError, match=f"record {now['Lives in Bern'].id} holds.*supersede, expire or del"):
        await store.lifecycle.restore(restore, at=NOON + 2 * HOUR)
    await store.lifecycle.expire(ExpireInput(**change(now["Lives in Bern"].id)), at=NOON + 3 * HOUR)
    await store.lifecycle.restore(restore, at=NOON + 4 * HOUR)
    assert await holding(store, NOON + 4 * HOUR) == {"Lives in Zürich"}
    restore = RestoreInput(**change(now["Lives in Bern"].id))
    with pytest.raises(ChangeRefusedError, match="holds instead"):
        await store.lifecycle.restore(restore, at=NOON + 5 * HOUR)


async def test_a_stale_version_is_refused_by_every_change(store: Store) -> None:
    await say(store, RecordWrite(text="Has a dog", id="pet"))
    stale = change("pet", expected_version=7)
    for asked in (
        store.lifecycle.supersede(SupersedeInput(**stale, by=RecordWrite(text="Has a cat")), at=NOON),
        store.lifecycle.correct(CorrectInput(**stale, text="Has a cat"), at=NOON),
        store.lifecycle.expire(ExpireInput(**stale), at=NOON + HOUR),
        store.lifecycle.restore(RestoreInput(**stale), at=NOON),
        store.lifecycle.delete(ADA, "pet", actor="a", reason="b", at=NOON, expected_version=7),
    ):
        with pytest.raises(StaleRecordVersionError, match="version 1, not 7"):
            await asked
    assert (await stored(store))["Has a dog"].version == 1


@pytest.mark.parametrize(
    ("by", "why"),
    [
        (RecordWrite(text="Lives in Bern"), "attribute"),
        (home("Lives in Bern", subject="her sister"), "subject"),
        (home("Lives in Bern", scope="work"), "scope"),
        (home("Lives in Bern", valid_until=NOON + DAY), "valid_until"),
        (home("Lives in Bern", valid_from=NOON + DAY), "valid_from"),
        (home("Lives in Zürich"), "says this already"),
    ],
)
async def test_only_a_statement_about_the_same_thing_supersedes(store: Store, by: RecordWrite, why: str) -> None:
    await say(store, home("Lives in Zürich", id="home"))
    with pytest.raises(ChangeRefusedError, match=why):
        await store.lifecycle.supersede(SupersedeInput(**change("home"), by=by), at=NOON + HOUR)
    assert len(await store.records(ADA)) == 1


async def test_superseding_by_a_secret_or_correcting_into_one_is_refused(store: Store) -> None:
    await say(store, RecordWrite(text="Has a dog", id="pet"))
    secret = "Her password: hunter2"
    with pytest.raises(RefusedWriteError) as refused:
        await store.lifecycle.supersede(SupersedeInput(**change("pet"), by=RecordWrite(text=secret)), at=NOON)
    assert "hunter2" not in str(refused.value)
    with pytest.raises(RefusedWriteError):
        await store.lifecycle.correct(CorrectInput(**change("pet"), text=secret), at=NOON)


async def test_correcting_into_what_is_stored_names_the_other_record(store: Store) -> None:
    await say(store, RecordWrite(text="Has a dog", id="a"), RecordWrite(text="Has a cat", id="b"))
    other = (await stored(store))["Has a cat"]
    with pytest.raises(ChangeRefusedError, match=other.id):
        await store.lifecycle.correct(CorrectInput(**change("a"), text="Has a cat"), at=NOON)


async def test_records_are_read_in_pages_with_their_history(store: Store) -> None:
    await say(store, *(RecordWrite(text=f"fact {number}", id=f"k{number}") for number in range(5)))
    await store.import_lines(BOB, [RecordWrite(text="bob's")], actor="host", at=NOON)
    seen: list[str] = []
    after: str | None = None
    while True:
        page = await store.lifecycle.read(ReadRecordsInput(principal=ADA, limit=2, after=after))
        seen += [record.text for record in page.records]
        if not page.more:
            break
        after = page.records[-1].id
    assert sorted(seen) == [f"fact {number}" for number in range(5)]
    page = await store.lifecycle.read(ReadRecordsInput(principal=ADA, record_id="k1", history=True))
    assert [event.event for event in page.history] == ["record.remembered"]


async def test_two_writers_at_once_leave_one_value(store: Store, engine: Engine) -> None:
    others = [Store(engine) for _ in range(3)]
    writers = [store, *others]
    await asyncio.gather(
        *(say(writers[number % 4], home(f"Lives in city {number}"), at=NOON + number * TICK) for number in range(24))
    )
    assert len(await holding(store, NOON + DAY)) == 1
    statuses = [record.status for record in await store.records(ADA)]
    assert statuses.count(RecordStatus.SUPERSEDED) == 23
