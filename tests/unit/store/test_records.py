"""Which records a turn may see, decided in SQL: owner, lifecycle, validity, version."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from retold.contracts.record import (
    Activation,
    MemoryRecord,
    RecordRef,
    RecordStatus,
    RecordWrite,
    RetrievalCategory,
)  # fmt: skip
from retold.contracts.turn import Principal
from retold.store.store import NotEligibleError, RecordNotFoundError, Store
from tests.unit.store.conftest import ADA, BOB, ELSEWHERE, NOON, PutRecord, record_row

SECOND = timedelta(seconds=1)
TICK = timedelta(microseconds=1)
KIRITIMATI = timezone(timedelta(hours=14))


async def test_sql_and_the_contract_agree_on_every_combination_of_state(engine: Engine, store: Store) -> None:
    states = product(
        RecordStatus,
        (False, True),
        (None, "another"),
        (None, NOON - TICK, NOON, NOON + TICK),
        (None, NOON - TICK, NOON, NOON + TICK),
        Activation,
        (ADA, BOB, ELSEWHERE),
    )
    rows = [
        record_row(
            f"r{number}",
            owner,
            status=status.value,
            conflicting=conflicting,
            superseded_by=superseded_by,
            valid_from=valid_from,
            valid_until=valid_until,
            activation=activation.value,
        )
        for number, (status, conflicting, superseded_by, valid_from, valid_until, activation, owner) in enumerate(
            states
        )
    ]
    with Session(engine) as session, session.begin():
        session.add_all(rows)

    stored = [*await store.records(ADA), *await store.records(BOB), *await store.records(ELSEWHERE)]
    assert len(stored) == 5 * 2 * 2 * 4 * 4 * 2 * 3
    refs = [record.ref for record in stored]
    for owner in (ADA, BOB, ELSEWHERE):
        current = {r.id for r in stored if (r.tenant, r.user) == (owner.tenant, owner.user) and r.is_current(NOON)}
        by_id = {record.id: record for record in stored}
        loaded = await store.load_current(owner, refs, NOON)
        assert set(loaded) == {id for id in current if by_id[id].activation is Activation.CONDITIONAL}
        assert all(loaded[id] == by_id[id] for id in loaded)
        ambient = await store.ambient_records(owner, NOON)
        assert {record.id for record in ambient} == {
            id
            for id in current
            if by_id[id].activation is Activation.AMBIENT and by_id[id].status is RecordStatus.CONFIRMED
        }
        assert ambient


@pytest.mark.parametrize("asked_in", [NOON.tzinfo, KIRITIMATI], ids=["utc", "+14:00"])
async def test_validity_begins_on_its_first_instant_and_ends_before_its_last(
    put_record: PutRecord, store: Store, asked_in: timezone
) -> None:
    midnight = datetime(2026, 6, 2, 0, 0, tzinfo=KIRITIMATI)  # 10:00 UTC the day before
    record = await put_record("day", valid_from=midnight, valid_until=midnight + timedelta(days=1))
    assert record.valid_from is not None
    assert record.valid_from.isoformat() == "2026-06-01T10:00:00+00:00"

    async def seen(at: datetime) -> bool:
        at = at.astimezone(asked_in)
        loaded = bool(await store.load_current(ADA, [record.ref], at))
        assert loaded == bool(await store.inventory(ADA, at))
        return loaded

    assert not await seen(midnight - SECOND)
    assert await seen(midnight)
    assert await seen(midnight + timedelta(hours=23, minutes=59, seconds=59))
    assert not await seen(midnight + timedelta(days=1))


async def test_years_1_and_9999_are_kept_and_compared_as_times(put_record: PutRecord, store: Store) -> None:
    first = datetime(1, 1, 1, tzinfo=NOON.tzinfo)
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=NOON.tzinfo)
    record = await put_record("always", valid_from=first, valid_until=last, created_at=NOON)
    assert (await store.load_current(ADA, [record.ref], NOON))["always"] == record


async def test_only_the_named_version_is_loaded(put_record: PutRecord, store: Store) -> None:
    await put_record("r", version=3)
    named = [RecordRef(id="r", version=2), RecordRef(id="missing", version=3)]
    assert await store.load_current(ADA, named, NOON) == {}
    assert set(await store.load_current(ADA, [*named, RecordRef(id="r", version=3)], NOON)) == {"r"}
    assert await store.load_current(ADA, [], NOON) == {}


async def test_naming_records_does_not_walk_everything_their_user_has(
    store: Store, engine: Engine, database: Path
) -> None:
    asked: list[tuple[str, Any]] = []

    def note(_connection: object, _cursor: object, statement: str, parameters: Any, *_: object) -> None:
        asked.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    await store.load_current(ADA, [RecordRef(id=f"r{number}", version=1) for number in range(48)], NOON)
    event.remove(engine, "before_cursor_execute", note)
    begin, (statement, parameters) = asked
    assert begin[0] == "BEGIN"
    with engine.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
    assert [row.detail for row in plan] == ["SEARCH records USING INDEX sqlite_autoindex_records_1 (id=?)"]


async def test_the_inventory_lists_labels_in_the_order_of_the_taxonomy(put_record: PutRecord, store: Store) -> None:
    assert await store.inventory(ADA, NOON) == []
    await put_record("1", category="people")
    await put_record("2", category="time_zone")
    await put_record("3", category="people")
    await put_record("4", category="preferences", activation="ambient")
    await put_record("5", BOB, category="limits")
    assert await store.inventory(ADA, NOON) == [RetrievalCategory.TIME_ZONE, RetrievalCategory.PEOPLE]


@pytest.mark.parametrize("fields", [{"type": "episodic"}, {"subject": "her brother"}, {"status": "provisional"}])
async def test_what_is_not_a_confirmed_statement_about_the_user_is_never_ambient(
    put_record: PutRecord, store: Store, fields: dict[str, str]
) -> None:
    await put_record("marked anyway", activation="ambient", **fields)
    assert await store.ambient_records(ADA, NOON) == []
    await put_record("conditional", **fields)
    with pytest.raises(NotEligibleError, match=next(iter(fields.values()))):
        await store.mark_ambient_for_development(ADA, "conditional", actor="dev", reason="demo", at=NOON)


@pytest.mark.parametrize(
    "name",
    [
        "a/b",
        "100%",
        "👩‍👩‍👧 née",
        'O\'Brien "Bob"',
        "'; DROP TABLE records; --",
        "*",
        "ada_",
        "%",
        "A",
        "a",
        " a",
        "x" * 128,
    ],
)
async def test_names_are_matched_exactly_whatever_they_contain(put_record: PutRecord, store: Store, name: str) -> None:
    await put_record("ada's", ADA)
    await put_record("upper", Principal(tenant="T", user="ADA"))
    owner = Principal(tenant=name, user=name)
    mine = await put_record("mine", owner, subject=name, scope=name)
    assert await store.records(owner) == [mine]
    assert set(await store.load_current(owner, [mine.ref, RecordRef(id="ada's", version=1)], NOON)) == {"mine"}
    assert await store.open_session(owner, name, NOON) is None
    assert len(await store.records(ADA)) == 1


async def test_marking_ambient_is_a_new_version_named_as_development_and_done_once(store: Store) -> None:
    record = await _imported(store, "Answer in German")
    for _ in range(2):
        marked = await store.mark_ambient_for_development(ADA, record.id, actor="dev", reason="demo", at=NOON)
        assert (marked.activation, marked.version) == (Activation.AMBIENT, 2)
    assert await store.ambient_records(ADA, NOON) == [marked]
    assert await store.load_current(ADA, [record.ref, marked.ref], NOON) == {}
    _, event = await store.audit_events(ADA, record.id)
    assert event.event == "development.record_made_ambient"
    assert (event.actor, event.reason) == ("dev", "demo")
    assert event.before is not None and event.after is not None
    assert (event.before["activation"], event.after["activation"]) == ("conditional", "ambient")
    assert [entry.record_id for entry in await store.pending_index(10)] == [record.id] * 2


async def test_a_deleted_record_is_out_of_every_reading_and_told_to_the_index(store: Store) -> None:
    record = await _imported(store, "Answer in German")
    await store.mark_ambient_for_development(ADA, record.id, actor="dev", reason="demo", at=NOON)
    for _ in range(2):
        deleted = await store.delete_record(ADA, record.id, actor="ada", reason="asked to", at=NOON)
        assert (deleted.status, deleted.version) == (RecordStatus.DELETED, 3)
    assert await store.ambient_records(ADA, NOON) == []
    assert await store.inventory(ADA, NOON) == []
    assert await store.load_current(ADA, [record.ref, deleted.ref], NOON) == {}
    assert (await store.records_by_id([record.id]))[record.id].status is RecordStatus.DELETED
    assert await store.pending_index_count() == 3
    events = [event.event for event in await store.audit_events(ADA)]
    assert events[-2:] == ["record.deleted", "record.activation_changed"]
    with pytest.raises(NotEligibleError, match="deleted"):
        await store.mark_ambient_for_development(ADA, record.id, actor="dev", reason="demo", at=NOON)


async def test_another_users_record_looks_like_none(store: Store) -> None:
    record = await _imported(store, "Answer in German")
    for stranger in (BOB, ELSEWHERE):
        with pytest.raises(RecordNotFoundError):
            await store.delete_record(stranger, record.id, actor="x", reason="x", at=NOON)
        with pytest.raises(RecordNotFoundError):
            await store.mark_ambient_for_development(stranger, record.id, actor="x", reason="x", at=NOON)
        assert await store.audit_events(stranger) == []
    assert await store.records(ADA) == [record]


async def test_a_change_without_a_reason_is_refused_and_leaves_nothing(store: Store) -> None:
    record = await _imported(store, "Answer in German")
    with pytest.raises(ValueError, match="reason"):
        await store.delete_record(ADA, record.id, actor="ada", reason="  ", at=NOON)
    assert await store.records(ADA) == [record]
    assert await store.pending_index_count() == 1


async def test_an_acknowledged_change_is_gone_and_its_number_is_never_reused(store: Store) -> None:
    record = await _imported(store, "Answer in German")
    (first,) = await store.pending_index(10)
    await store.index_done([first.seq])
    assert await store.pending_index_count() == 0
    await store.delete_record(ADA, record.id, actor="ada", reason="asked to", at=NOON)
    await store.index_done([first.seq])  # acknowledged twice
    (second,) = await store.pending_index(10)
    assert second.seq > first.seq
    assert second.record_id == record.id


async def _imported(store: Store, text: str) -> MemoryRecord:
    await store.import_lines(ADA, [RecordWrite(text=text)], actor="host", at=NOON)
    (record,) = await store.records(ADA)
    return record


async def test_a_record_is_found_by_its_own_id_or_by_the_hosts_key(store: Store) -> None:
    await store.import_lines(ADA, [RecordWrite(id="pref-1", text="Keep answers short.")], actor="test", at=NOON)
    marked = await store.mark_ambient_for_development(ADA, "pref-1", actor="dev", reason="demo", at=NOON)
    deleted = await store.delete_record(ADA, marked.id, actor="dev", reason="demo", at=NOON)
    assert deleted.id == marked.id
