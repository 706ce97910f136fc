"""One writer at a time without "database is locked", cancellation that leaves nothing behind, one error for callers."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from retold.contracts.record import RecordWrite
from retold.policy.limits import LimitReachedError, within
from retold.store.engine import Transactions, open_engine
from retold.store.store import Store, StoreUnavailableError
from tests.unit.store.conftest import ADA, NOON, record_row


async def test_sqlite_is_opened_for_durability(engine: Engine, database: Path) -> None:
    expected = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 5_000}
    with engine.connect() as connection:
        found = {name: (connection.execute(text(f"PRAGMA {name}"))).scalar_one() for name in expected}
    assert found == expected


@pytest.mark.parametrize(
    "url",
    ["sqlite://", "sqlite+aiosqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true"],
)
def test_a_memory_database_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="file"):
        open_engine(url)


async def test_many_writers_and_readers_at_once_never_meet_a_lock(database: Path) -> None:
    engine = open_engine(f"sqlite:///{database}", busy_timeout_ms=0)  # a wait would hide a conflict
    store = Store(engine)

    async def write_and_read(number: int) -> None:
        await store.open_session(ADA, f"s{number}", NOON)
        await store.import_lines(ADA, [RecordWrite(text=f"fact {number}")], actor="host", at=NOON)
        await store.inventory(ADA, NOON)

    await asyncio.gather(*(write_and_read(number) for number in range(40)))
    assert len(await store.records(ADA)) == await store.pending_index_count() == 40
    await store.close()


async def test_another_process_that_is_writing_is_waited_for(database: Path, store: Store) -> None:
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writing = asyncio.create_task(store.open_session(ADA, "s", NOON))
    assert await store.inventory(ADA, NOON) == []  # readers do not wait
    await asyncio.sleep(0.05)
    assert not writing.done()
    other.execute("COMMIT")
    assert await writing is None
    other.close()


async def test_another_process_that_never_ends_its_write_is_an_error_that_can_be_retried(database: Path) -> None:
    store = Store(open_engine(f"sqlite:///{database}", busy_timeout_ms=20))
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailableError, match="locked"):
        await store.open_session(ADA, "s", NOON)
    other.execute("ROLLBACK")
    assert await store.open_session(ADA, "s", NOON) is None
    other.close()
    await store.close()


async def test_calls_abandoned_at_any_moment_are_whole_or_absent_and_block_nobody(store: Store, engine: Engine) -> None:
    chance = random.Random(7)

    async def abandoned(number: int) -> None:
        lines = [RecordWrite(text=f"fact {number} part {part}") for part in range(3)]
        try:
            await within(chance.uniform(0, 30), store.import_lines(ADA, lines, actor="host", at=NOON))
        except LimitReachedError:
            return

    await asyncio.gather(*(abandoned(number) for number in range(60)))
    await store.import_lines(ADA, [RecordWrite(text="the last word")], actor="host", at=NOON)
    await store.close()  # lets what has begun end: on PostgreSQL abandoned writers go on beside the last one
    store = Store(engine)
    texts = [record.text for record in await store.records(ADA)]
    assert "the last word" in texts
    assert (len(texts) - 1) % 3 == 0
    assert len(texts) == await store.pending_index_count() == len(await store.audit_events(ADA, limit=1_000))


async def test_a_transaction_that_has_begun_survives_its_caller_and_holds_up_closing(
    store: Store, engine: Engine
) -> None:
    transactions = Transactions(engine)
    begun, go_on = threading.Event(), threading.Event()

    def body(session: Session) -> None:
        session.add(record_row("kept"))
        session.flush()
        begun.set()
        go_on.wait()

    caller = asyncio.create_task(transactions.write(body))
    waiting = asyncio.create_task(transactions.write(body))
    while not begun.is_set():
        await asyncio.sleep(0.001)
    caller.cancel()
    waiting.cancel()  # it has not begun: it never will
    closing = asyncio.create_task(transactions.close())
    await asyncio.sleep(0.02)
    assert caller.cancelled()
    assert waiting.cancelled()
    assert not closing.done()
    go_on.set()
    await closing
    assert [record.id for record in await store.records(ADA)] == ["kept"]


async def test_a_closed_store_says_so(store: Store) -> None:
    await store.ping()
    await store.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        await store.ping()
    with pytest.raises(StoreUnavailableError, match="closed"):
        await store.open_session(ADA, "s", NOON)


async def test_a_disposed_engine_reconnects(store: Store, engine: Engine) -> None:
    await store.open_session(ADA, "s", NOON)
    engine.dispose()
    await store.open_session(ADA, "s", NOON + timedelta(hours=1))


async def test_a_damaged_file_is_unavailable_for_reading_and_writing(
    database: Path, store: Store, engine: Engine
) -> None:
    await store.ping()
    engine.dispose()
    _damage(database)
    with pytest.raises(StoreUnavailableError, match="not a database"):
        await store.inventory(ADA, NOON)
    with pytest.raises(StoreUnavailableError, match="not a database"):
        await store.open_session(ADA, "s", NOON)


def _damage(file: Path) -> None:
    file.write_bytes(b"not a database at all" * 500)


async def test_a_directory_that_is_gone_is_unavailable(tmp_path: Path) -> None:
    store = Store(open_engine(f"sqlite:///{tmp_path}/gone/retold.db"))
    with pytest.raises(StoreUnavailableError, match="unable to open"):
        await store.ping()


async def test_tables_that_vanish_in_mid_life_are_unavailable_and_the_message_holds_no_value(
    store: Store, engine: Engine
) -> None:
    await store.ping()
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE records RENAME TO elsewhere"))
    with pytest.raises(StoreUnavailableError, match=r"no such table|UndefinedTable"):
        await store.ping()
    with pytest.raises(StoreUnavailableError) as raised:
        await store.import_lines(ADA, [RecordWrite(text="private words")], actor="host", at=NOON)
    error: BaseException | None = raised.value
    while error is not None:
        assert "private words" not in str(error)
        error = error.__cause__


async def test_when_every_connection_is_taken_the_caller_hears_it(database: Path) -> None:
    engine = open_engine(f"sqlite:///{database}", pool_size=1, pool_timeout_s=0.05)
    store = Store(engine)
    with engine.connect(), pytest.raises(StoreUnavailableError, match="connection"):
        await store.ping()
    await store.ping()
    await store.close()
