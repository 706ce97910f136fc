"""Whatever is done to records in whatever order: one value an attribute, every change audited, nothing of others."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select
from sqlalchemy.orm import Session
from sqlmodel import col

from retold.contracts.lifecycle import ContradictInput, CorrectInput, ExpireInput, RestoreInput, SupersedeInput
from retold.contracts.record import ACTIVE_STATUSES, MemoryRecord, RecordRef, RecordStatus, RecordWrite, Source
from retold.contracts.turn import Principal
from retold.store.amending import ChangeRefusedError
from retold.store.engine import open_engine
from retold.store.store import NotEligibleError, RecordNotFoundError, Store
from retold.store.tables import AuditRow, OutboxRow
from retold.store.writing import RefusedWriteError
from tests.unit.store.conftest import ADA, BOB, NOON

HOUR = timedelta(hours=1)
TEXTS = ("Drinks cola", "Drinks coffee", "Drinks tea", "Drinks water")
ATTRIBUTES = ("drink", "drink", "drink", "food", None)
Step = dict[str, Any]

times = st.one_of(st.none(), st.none(), st.none(), st.integers(-6, 30))
writes = st.fixed_dictionaries(
    {
        "text": st.sampled_from(TEXTS),
        "attribute": st.sampled_from(ATTRIBUTES),
        "type": st.sampled_from(("semantic", "semantic", "semantic", "procedural", "episodic")),
        "scope": st.sampled_from(("personal", "personal", "personal", "work")),
        "valid_from": times,
        "valid_until": times,
        "event_at": st.sampled_from((None, None, None, 0, 0, -1)),
        "created_at": st.sampled_from((None, None, None, -2, 0)),
        "id": st.sampled_from((None, None, "k1", "k2")),
        "temporary": st.sampled_from((False, False, False, True)),
    }
)
CHANGES = ("remember", "import", "supersede", "contradict", "contradict", "correct", "expire", "restore", "delete",
           "ambient", "time")  # fmt: skip


def _steps(*do: str, least: int, most: int) -> st.SearchStrategy[list[Step]]:
    step = st.fixed_dictionaries(
        {
            "do": st.sampled_from(do),
            "write": writes,
            "source": st.sampled_from((None, None, None, None, *Source)),
            "provisional": st.booleans(),
            "which": st.integers(0, 9),
            "other": st.integers(0, 9),
            "when": times,
        }
    )
    return st.lists(step, min_size=least, max_size=most)


steps = st.builds(list.__add__, _steps("remember", "import", least=3, most=5), _steps(*CHANGES, least=4, most=8))


def moment(hours: int | None) -> datetime | None:
    return None if hours is None else NOON + hours * HOUR


def write_of(step: Step) -> RecordWrite:
    fields = dict(step["write"])
    for field in ("valid_from", "valid_until", "event_at", "created_at"):
        fields[field] = moment(fields[field])
    if fields["valid_from"] and fields["valid_until"] and fields["valid_from"] >= fields["valid_until"]:
        fields["valid_from"] = None
    return RecordWrite(**fields)


async def play(store: Store, owner: Principal, step: Step, at: datetime, mine: list[str]) -> None:
    """One operation on some of `mine`, which may be refused. Refusals are typed; anything else fails the test."""
    named = [mine[step[place] % len(mine)] for place in ("which", "other") if mine]
    change: dict[str, Any] = {"principal": owner, "actor": "tester", "reason": "a test"}
    try:
        match step["do"]:
            case "remember":
                status = RecordStatus.PROVISIONAL if step["provisional"] else RecordStatus.CONFIRMED
                await store.lifecycle.remember(
                    owner, [write_of(step)], actor="tester", at=at, status=status, source=step["source"]
                )
            case "import":
                await store.import_lines(owner, [write_of(step)], actor="tester", at=at)
            case "time":
                await store.lifecycle.settle_due(at)
            case _ if not named:
                pass
            case "supersede":
                await store.lifecycle.supersede(SupersedeInput(**change, record_id=named[0], by=write_of(step)), at=at)
            case "contradict" if named[0] != named[1]:
                ids = (named[0], named[1])
                await store.lifecycle.contradict(ContradictInput(**change, record_ids=ids), at=at)
            case "correct":
                write = write_of(step)
                corrected = CorrectInput(
                    **change,
                    record_id=named[0],
                    text=write.text,
                    attribute=write.attribute,
                    valid_until=write.valid_until,
                )
                await store.lifecycle.correct(corrected, at=at)
            case "expire":
                ends = moment(step["when"])
                await store.lifecycle.expire(ExpireInput(**change, record_id=named[0], at=ends), at=at)
            case "restore":
                await store.lifecycle.restore(RestoreInput(**change, record_id=named[0]), at=at)
            case "delete":
                await store.delete_record(owner, named[0], actor="tester", reason="a test", at=at)
            case "ambient":
                await store.mark_ambient_for_development(owner, named[0], actor="tester", reason="a test", at=at)
    except (ChangeRefusedError, RefusedWriteError, RecordNotFoundError, NotEligibleError):
        pass


Check = Callable[[Store, Session, datetime], Any]


def on_a_fresh_store(migrated: Path, body: Callable[[Store, Any], Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        engine = open_engine(f"sqlite:///{shutil.copy(migrated, Path(folder) / 'retold.db')}")
        numbers = itertools.count()
        store = Store(engine, new_id=lambda: f"r{next(numbers)}")

        async def run() -> None:
            await body(store, engine)
            await store.close()

        asyncio.run(run())


def standing(record: MemoryRecord) -> bool:
    return not record.temporary and record.attribute is not None and record.type != "episodic"


def assert_one_value(records: list[MemoryRecord], at: datetime) -> None:
    held: dict[tuple[str, str, str | None], str] = {}
    for record in records:
        if record.is_current(at) and standing(record):
            slot = (record.scope, record.subject, record.attribute)
            assert slot not in held, f"{held[slot]} and {record.id} both hold {slot}"
            held[slot] = record.id


def assert_consistent(records: list[MemoryRecord]) -> None:
    by_id = {record.id: record for record in records}
    for record in records:
        assert record.conflicting == bool(record.conflicts_with)
        for peer in record.conflicts_with:
            assert record.id in by_id[peer].conflicts_with
        if record.status not in ACTIVE_STATUSES:
            assert not record.conflicting
            assert record.suspended_by is None
            assert record.activation == "conditional"
        assert (record.status is RecordStatus.SUPERSEDED) <= (record.superseded_by is not None)
        if record.status in ACTIVE_STATUSES:
            assert record.superseded_by is None


def changes_of(session: Session, record_id: str) -> tuple[int, int]:
    outbox = select(func.count()).select_from(OutboxRow).where(col(OutboxRow.record_id) == record_id)
    versions = {
        (row.after or {}).get("version")
        for row in session.scalars(select(AuditRow).where(col(AuditRow.subject_id) == record_id))
    }
    return session.scalar(outbox) or 0, len(versions)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(played=steps)
def test_any_sequence_of_operations_keeps_the_invariants(migrated_file: Path, played: list[Step]) -> None:
    async def body(store: Store, engine: Any) -> None:
        await store.import_lines(BOB, [RecordWrite(text=TEXTS[0], attribute="drink")], actor="bob", at=NOON)
        bobs = await store.records(BOB)
        before: list[MemoryRecord] = []
        for number, step in enumerate(played):
            at = NOON + number * HOUR
            await play(store, ADA, step, at, [record.id for record in before])
            records = list(await store.records(ADA))
            assert_one_value(records, at)
            assert_consistent(records)
            assert_only_versions_change(before, records)
            before = records
        assert await store.records(BOB) == bobs
        with Session(engine) as session:
            for record in before:
                # One outbox row and one audited state a version, at least; a version nobody audited is missing here.
                assert changes_of(session, record.id) == (record.version, record.version)

    on_a_fresh_store(migrated_file, body)


def assert_only_versions_change(before: list[MemoryRecord], after: list[MemoryRecord]) -> None:
    now = {record.id: record for record in after}
    for record in before:
        assert now[record.id] == record or now[record.id].version == record.version + 1


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(played=steps)
def test_an_operation_that_is_sent_again_changes_nothing(migrated_file: Path, played: list[Step]) -> None:
    async def body(store: Store, engine: Any) -> None:
        for number, step in enumerate(played):
            at = NOON + number * HOUR
            mine = [record.id for record in await store.records(ADA)]
            await play(store, ADA, step, at, mine)
            once = list(await store.records(ADA))
            await play(store, ADA, step, at, mine)
            assert list(await store.records(ADA)) == once

    on_a_fresh_store(migrated_file, body)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(played=steps, at_hours=st.integers(-10, 40), offset=st.sampled_from((0, 14, -12)))
def test_sql_and_contract_agree_on_what_is_current(
    migrated_file: Path, played: list[Step], at_hours: int, offset: int
) -> None:
    async def body(store: Store, engine: Any) -> None:
        for number, step in enumerate(played):
            mine = [record.id for record in await store.records(ADA)]
            await play(store, ADA, step, NOON + number * HOUR, mine)
        records = list(await store.records(ADA))
        for tick in (-timedelta(microseconds=1), timedelta(0), timedelta(microseconds=1)):
            at = NOON + at_hours * HOUR + tick
            refs = [RecordRef(id=record.id, version=record.version) for record in records]
            loaded = await store.load_current(ADA, refs, at)
            current = {r.id for r in records if r.is_current(at) and r.activation == "conditional"}
            assert set(loaded) == current

    on_a_fresh_store(migrated_file, body)
