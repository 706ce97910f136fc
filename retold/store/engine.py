"""Connections and transactions: how SQLite is opened safely, who may write when, and one error for callers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

from sqlalchemy import Connection, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

_WRITES = "retold_writes"


class StoreUnavailableError(Exception):
    """The database could not do what was asked: away, locked, full, closed, damaged, or not migrated.

    The one error of the store that is worth a retry. Its message names the driver's error, never a value.
    """


def open_engine(url: str, *, busy_timeout_ms: int = 5_000, pool_size: int = 8) -> AsyncEngine:
    """An engine for `sqlite+aiosqlite:///path/to/file.db` or an async PostgreSQL URL. Nothing is connected yet.

    Args:
        url: SQLAlchemy URL with an async driver.
        busy_timeout_ms: how long a SQLite writer waits for one in another process.
        pool_size: most connections held at once; a call waits up to 5 s for a free one.

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
        pool_timeout=5,
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
        self._writing_engine = engine.execution_options(**{_WRITES: True})
        self._one_writer = asyncio.Lock() if engine.dialect.name == "sqlite" else None
        self._closed = False

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncSession]:
        """One consistent snapshot.

        Raises:
            StoreUnavailableError: the database could not be read.
        """
        with one_error():
            self._refuse_when_closed()
            async with AsyncSession(self._engine, expire_on_commit=False) as session:
                yield session

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncSession]:
        """One transaction: committed when the block ends, rolled back when it raises.

        Raises:
            StoreUnavailableError: the database could not be written, or a concurrent writer won; try again.
        """
        with one_error():
            async with self._writer_turn():
                self._refuse_when_closed()
                async with AsyncSession(self._writing_engine, expire_on_commit=False) as session, session.begin():
                    yield session

    async def close(self) -> None:
        self._closed = True
        await self._engine.dispose()

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise StoreUnavailableError("the store is closed")

    @asynccontextmanager
    async def _writer_turn(self) -> AsyncIterator[None]:
        if self._one_writer is None:
            yield
            return
        async with self._one_writer:
            yield


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
    except (OperationalError, InterfaceError) as error:
        raise StoreUnavailableError(f"{type(error.orig).__name__}: {error.orig}") from error
    except DBAPIError as error:  # its text may quote a row
        raise StoreUnavailableError(type(error.orig).__name__) from error
    except PoolTimeoutError as error:
        raise StoreUnavailableError("no free connection: every one of the pool is in use") from error
    except OSError as error:
        raise StoreUnavailableError(f"{type(error).__name__}: {error}") from error
