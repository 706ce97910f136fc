"""Connections and transactions: how SQLite is opened safely, who may write when, and one error for callers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, TypeVar

from opentelemetry.trace import Span
from sqlalchemy import Connection, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DatabaseError, DBAPIError, IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from retold.telemetry.names import client_span

T = TypeVar("T")

_WRITES = "retold_writes"


class StoreUnavailableError(Exception):
    """The database could not do what was asked: away, locked, full, closed, damaged, or not migrated.

    The one error of the store that is worth a retry. Its message names the driver's error, never a value.
    """


def open_engine(
    url: str, *, busy_timeout_ms: int = 5_000, pool_size: int = 8, pool_timeout_s: float = 5.0
) -> AsyncEngine:
    """An engine for `sqlite+aiosqlite:///path/to/file.db` or an async PostgreSQL URL. Nothing is connected yet.

    Args:
        url: SQLAlchemy URL with an async driver.
        busy_timeout_ms: how long a SQLite writer waits for one in another process.
        pool_size: most connections held at once.
        pool_timeout_s: how long a call waits for a free one.

    Raises:
        ValueError: the URL names SQLite without a file: every connection would see a database of its own.
    """
    parsed = make_url(url)
    sqlite = parsed.get_backend_name() == "sqlite"
    if sqlite and (not parsed.database or ":memory:" in parsed.database or "mode=memory" in url):
        raise ValueError("the store needs a SQLite file, such as sqlite+aiosqlite:///retold.db, not a memory database")
    engine = create_async_engine(
        url,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=pool_timeout_s,
        pool_pre_ping=not sqlite,
        # An exception must not carry what a user said into a log.
        hide_parameters=True,
        # Text stays readable inside JSON, so that an erasure can look for it.
        json_serializer=partial(json.dumps, ensure_ascii=False, separators=(",", ":")),
    )
    if sqlite:
        _prepare_sqlite(engine, busy_timeout_ms)
    return engine


class Transactions:
    """Read and write transactions on one engine. Make one per engine and process.

    SQLite has one writer at a time. Inside the process writers queue on a lock, so that none of them ever meets a
    locked database; a second process is waited for by the busy timeout, because a writer takes its lock when it
    begins and never has to upgrade a read.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._writing_engine = engine.execution_options(**writing_connection_options())
        self._one_writer = asyncio.Lock() if engine.dialect.name == "sqlite" else None
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def read(self, body: Callable[[AsyncSession], Awaitable[T]]) -> T:
        """What `body` finds in one transaction that writes nothing.

        Raises:
            StoreUnavailableError: the database could not be read.
        """
        with self._span("read"):
            return await self._to_its_end(self._read(body))

    async def write(self, body: Callable[[AsyncSession], Awaitable[T]]) -> T:
        """`body` in one transaction: committed when it returns, rolled back when it raises.

        When it breaks a constraint it is run once more, in a transaction of its own.

        Raises:
            StoreUnavailableError: the database could not be written.
        """
        with self._span("write"):
            if self._one_writer is not None:
                await self._one_writer.acquire()  # a caller that gives up here has begun nothing
            return await self._to_its_end(self._write(body))

    def _span(self, operation: str) -> AbstractContextManager[Span]:
        """One span a transaction, its wait for the writer's turn included."""
        system: dict[str, str | int] = {"db.system.name": self._engine.dialect.name, "db.operation.name": operation}
        return client_span(f"{operation} retold", system)

    async def close(self) -> None:
        """Let what has begun end, then release every connection."""
        self._closed = True
        if self._running:
            await asyncio.wait(self._running)
        await self._engine.dispose()

    async def _read(self, body: Callable[[AsyncSession], Awaitable[T]]) -> T:
        with one_error():
            self._refuse_when_closed()
            async with AsyncSession(self._engine, expire_on_commit=False) as session:
                return await body(session)

    async def _write(self, body: Callable[[AsyncSession], Awaitable[T]]) -> T:
        try:
            with one_error():
                try:
                    return await self._commit(body)
                except IntegrityError:
                    # Another process wrote the same row between our look and our insert: the second look sees it.
                    return await self._commit(body)
        finally:
            if self._one_writer is not None:
                self._one_writer.release()

    async def _commit(self, body: Callable[[AsyncSession], Awaitable[T]]) -> T:
        self._refuse_when_closed()
        async with AsyncSession(self._writing_engine, expire_on_commit=False) as session, session.begin():
            return await body(session)

    async def _to_its_end(self, transaction: Coroutine[Any, Any, T]) -> T:
        """Run a transaction that outlives its caller's patience.

        Callers give up at their limits, at any moment. A driver call cut off in the middle leaves a connection
        behind that may hold the write lock until it is garbage, so a transaction that has begun is left to end.
        """
        task = asyncio.ensure_future(transaction)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # seen: if nobody waits any more, nobody needs to hear of it

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise StoreUnavailableError("the store is closed")


def writing_connection_options() -> dict[str, bool]:
    """Execution options of a connection that will write: on SQLite it takes the write lock as it begins."""
    return {_WRITES: True}


def _prepare_sqlite(engine: AsyncEngine, busy_timeout_ms: int) -> None:
    @event.listens_for(engine.sync_engine, "connect")
    def _configure(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # the driver begins nothing on its own; `_begin` below does
        cursor = connection.cursor()
        # The timeout first: another process may be holding the file while this one switches it to WAL.
        cursor.execute(f"PRAGMA busy_timeout = {int(busy_timeout_ms)}")
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
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
