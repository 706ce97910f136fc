"""Connections and transactions: how SQLite is opened safely, who may write when, and one error for callers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from opentelemetry.trace import Span
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DatabaseError, DBAPIError, IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session
from sqlalchemy.pool import QueuePool

from retold.telemetry.names import RETRIED, client_span, in_a_trace, note

logger = logging.getLogger(__name__)

T = TypeVar("T")

_WRITES = "retold_writes"

_ASYNC_ONLY = ("asyncpg", "psycopg_async")

CONFLICT_WAITS_MS = (5, 25, 100)
"""Between attempts of a transaction that lost against others."""

_LOST_AGAINST_OTHERS = ("40001", "40P01")
"""PostgreSQL's serialization_failure and deadlock_detected: nothing was written, and trying again is the answer."""

SQLITE_READERS = 4
"""Threads that read. One answers turns as fast as four (measured: most of a query's cost is Python, which runs one at a
time); the others are there so that a long query of an operator holds nobody up."""


class StoreUnavailableError(Exception):
    """The database could not do what was asked: away, locked, full, closed, damaged, or not migrated.

    The one error of the store that is worth a retry. Its message names the driver's error, never a value.
    """


def open_engine(
    url: str,
    *,
    busy_timeout_ms: int = 5_000,
    pool_size: int = 8,
    pool_timeout_s: float = 5.0,
    statement_timeout_ms: int = 30_000,
    lock_timeout_ms: int = 5_000,
) -> Engine:
    """An engine for `sqlite:///path/to/file.db` or `postgresql+psycopg://...`. Nothing is connected yet.

    Args:
        url: SQLAlchemy URL. `sqlite+aiosqlite://`, as earlier versions wrote it, opens the same file.
        busy_timeout_ms: how long a SQLite writer waits for one in another process.
        pool_size: most connections held at once.
        pool_timeout_s: how long a transaction waits for a free one.
        statement_timeout_ms: on PostgreSQL, when a statement is given up; a turn has given up on it long before.
        lock_timeout_ms: on PostgreSQL, how long a statement waits for what another transaction holds.

    Raises:
        ValueError: the URL names SQLite without a file (every connection would see a database of its own), or a
            driver that only works on an event loop.
    """
    parsed = make_url(url)
    sqlite = parsed.get_backend_name() == "sqlite"
    if sqlite and (not parsed.database or ":memory:" in parsed.database or "mode=memory" in url):
        raise ValueError("the store needs a SQLite file, such as sqlite:///retold.db, not a memory database")
    if parsed.get_driver_name() in _ASYNC_ONLY:
        raise ValueError(
            f"the store talks to PostgreSQL by psycopg: write postgresql+psycopg://, not {parsed.drivername}://"
        )
    engine = create_engine(
        parsed.set(drivername="sqlite") if sqlite else parsed,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=pool_timeout_s,
        pool_pre_ping=not sqlite,
        # An exception must not carry what a user said into a log.
        hide_parameters=True,
        json_serializer=_as_json,
        connect_args={} if sqlite else _postgresql_options(statement_timeout_ms, lock_timeout_ms),
    )
    if sqlite:
        _prepare_sqlite(engine, busy_timeout_ms)
    return engine


class JsonText(str):
    """A value for a JSON column that is JSON already, and is not written twice."""

    __slots__ = ()


def _as_json(value: Any) -> str:
    # Text stays readable inside JSON, so that an erasure can look for it.
    return value if isinstance(value, JsonText) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Transactions:
    """Read and write transactions on one engine, each run whole on a thread. Make one per engine and process.

    A transaction is a plain function over a session: it crosses to its thread and back once, however many statements
    it makes, and the event loop never waits for the database.

    Callers give up at their limits, at any moment. One whose transaction still queues for a thread has begun nothing;
    what has begun is left to end, because a transaction cut off in the middle could keep the write lock.

    SQLite has one writer at a time, so writes have one thread: inside the process none of them ever meets a locked
    database. A second process is waited for by the busy timeout, because a writer takes its lock when it begins and
    never has to upgrade a read.
    """

    def __init__(self, engine: Engine) -> None:
        sqlite = engine.dialect.name == "sqlite"
        self._engine = engine
        self._writing_engine = engine.execution_options(**writing_connection_options())
        connections = cast(QueuePool, engine.pool).size()
        self._readers = ThreadPoolExecutor(min(SQLITE_READERS, connections) if sqlite else connections, "store")
        self._writers = ThreadPoolExecutor(1, "store-writer") if sqlite else self._readers
        self._address = _address(engine)
        self._closed = False

    async def read(self, body: Callable[[Session], T]) -> T:
        """What `body` finds in one transaction that writes nothing.

        Raises:
            StoreUnavailableError: the database could not be read.
        """
        # What a process looks at every few seconds unasked (outbox, switches) would be most of all traces.
        with self._span("read") if in_a_trace() else nullcontext():
            return await self._on_a_thread(self._readers, self._read, body)

    async def write(self, body: Callable[[Session], T]) -> T:
        """`body` in one transaction: committed when it returns, rolled back when it raises.

        When it breaks a constraint it is run once more, in a transaction of its own; when the database picks it out of
        a deadlock or cannot put it in order with others, a few times more.

        Raises:
            StoreUnavailableError: the database could not be written.
        """
        with self._span("write") as span:
            return await self._on_a_thread(self._writers, partial(self._write, span), body)

    async def rewrite(self) -> None:
        """Have SQLite's file hold what the tables hold and nothing else, and its write-ahead log nothing.

        Overwriting what is deleted is not enough for that: cells that move between pages leave copies behind. Writers
        wait meanwhile (about a second for 100 MB), readers do not. On PostgreSQL this does nothing.

        Raises:
            StoreUnavailableError: somebody is still reading an earlier version.
        """
        if self._engine.dialect.name == "sqlite":
            self._refuse_when_closed()
            await asyncio.get_running_loop().run_in_executor(self._writers, self._rewrite)

    async def close(self) -> None:
        """Let what has begun end, then release every connection."""
        self._closed = True
        await in_a_thread(self._release)

    def _span(self, operation: str) -> AbstractContextManager[Span]:
        """One span a transaction, its wait for a thread included."""
        return client_span(f"{operation} retold", {**self._address, "db.operation.name": operation})

    async def _on_a_thread(
        self, threads: Executor, transaction: Callable[[Callable[[Session], T]], T], body: Callable[[Session], T]
    ) -> T:
        self._refuse_when_closed()
        # Cancelling this wait takes the call out of the queue, or, when it has begun, lets it end unheard.
        return await asyncio.get_running_loop().run_in_executor(threads, transaction, body)

    def _read(self, body: Callable[[Session], T]) -> T:
        with one_error():
            self._refuse_when_closed()
            with Session(self._engine, expire_on_commit=False) as session:
                return body(session)

    def _write(self, span: Span, body: Callable[[Session], T]) -> T:
        with one_error():
            for attempt, wait_ms in enumerate(CONFLICT_WAITS_MS, start=2):
                try:
                    return self._commit(body)
                except IntegrityError:
                    # Another process wrote the same row between our look and our insert: the second look sees it.
                    note(RETRIED, span, attempt=attempt, error_type="IntegrityError")
                    return self._commit(body)
                except OperationalError as error:
                    state = getattr(error.orig, "sqlstate", None)
                    if state not in _LOST_AGAINST_OTHERS:
                        raise
                    note(RETRIED, span, attempt=attempt, error_type=state)
                    # Not at once, and not all at the same moment: whoever won has to get out of the way first.
                    time.sleep(random.uniform(0.5, 1.5) * wait_ms / 1_000)
            return self._commit(body)

    def _commit(self, body: Callable[[Session], T]) -> T:
        self._refuse_when_closed()
        with Session(self._writing_engine, expire_on_commit=False) as session, session.begin():
            return body(session)

    def _rewrite(self) -> None:
        with one_error():
            connection = self._engine.raw_connection()
            try:
                connection.cursor().execute("VACUUM")
                busy, *_ = connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                connection.close()
        if busy:
            raise StoreUnavailableError("the write-ahead log could not be emptied: a transaction is still reading it")

    def _release(self) -> None:
        self._writers.shutdown()
        self._readers.shutdown()
        self._engine.dispose()

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise StoreUnavailableError("the store is closed")


def rewrite_sqlite(file: Path) -> None:
    """Rewrite a SQLite file that nobody has open, and empty its write-ahead log; nothing happens if it is in use."""
    with contextlib.closing(sqlite3.connect(file, timeout=1.0, isolation_level=None)) as connection:
        try:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.OperationalError as error:
            logger.warning("%s could not be rewritten (%s): the next start tries again", file, error)


async def in_a_thread(call: Callable[[], T]) -> T:
    """What `call` returns, from a thread of its own. A caller that gives up leaves what has begun to end."""
    thread = ThreadPoolExecutor(1, "store-once")
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, call)
    finally:
        thread.shutdown(wait=False)


def writing_connection_options() -> dict[str, bool]:
    """Execution options of a connection that will write: on SQLite it takes the write lock as it begins."""
    return {_WRITES: True}


def _postgresql_options(statement_timeout_ms: int, lock_timeout_ms: int) -> dict[str, object]:
    settings = {
        "statement_timeout": statement_timeout_ms,
        "lock_timeout": lock_timeout_ms,
        # A worker that dies in the middle of a transaction must not hold its locks until TCP notices.
        "idle_in_transaction_session_timeout": 2 * statement_timeout_ms,
    }
    return {
        "options": " ".join(f"-c {name}={value}" for name, value in settings.items()),
        "connect_timeout": 5,
        "application_name": "retold",
    }


def _prepare_sqlite(engine: Engine, busy_timeout_ms: int) -> None:
    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # the driver begins nothing on its own; `_begin` below does
        cursor = connection.cursor()
        # The timeout first: another process may be holding the file while this one switches it to WAL.
        cursor.execute(f"PRAGMA busy_timeout = {int(busy_timeout_ms)}")
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        # What is deleted is overwritten: to forget is not to leave it in free pages.
        cursor.execute("PRAGMA secure_delete = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def one_error() -> Iterator[None]:
    """Turn whatever the driver raises into StoreUnavailableError."""
    try:
        yield
    except DBAPIError as error:
        raise StoreUnavailableError(_described(error)) from error
    except PoolTimeoutError as error:
        raise StoreUnavailableError("no free connection: every one of the pool is in use") from error
    except OSError as error:
        raise StoreUnavailableError(f"{type(error).__name__}: {error}") from error


def _described(error: DBAPIError) -> str:
    name = type(error.orig).__name__
    # These are about the database as a whole; other errors may quote a row.
    about_the_database = isinstance(error, OperationalError | InterfaceError) or type(error) is DatabaseError
    return f"{name}: {error.orig}" if about_the_database else name


def _address(engine: Engine) -> dict[str, str | int]:
    """Where it is, as the database conventions name it; of a file its path says more than it should."""
    address: dict[str, str | int] = {"db.system.name": engine.dialect.name}
    if engine.dialect.name != "sqlite":
        known = {"db.namespace": engine.url.database, "server.address": engine.url.host, "server.port": engine.url.port}
        address |= {name: value for name, value in known.items() if value is not None}
    return address
