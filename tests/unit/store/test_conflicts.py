"""Writers that get in each other's way on PostgreSQL: the one that loses tries again, and nobody waits for ever."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from sqlalchemy import text
from sqlalchemy.orm import Session

from retold.store.engine import StoreUnavailableError, Transactions, open_engine
from tests.postgres import Postgres


async def test_both_sides_of_a_deadlock_are_written(postgres: Postgres) -> None:
    with postgres.database() as url:
        transactions = Transactions(open_engine(url))
        await transactions.write(_made)
        both_hold_one = threading.Barrier(2)
        span = TracerProvider().get_tracer("test").start_span("write retold")

        def in_order(first: str, second: str) -> int:
            attempts = 0

            def body(session: Session) -> int:
                nonlocal attempts
                attempts += 1
                _count_up(session, first)
                if attempts == 1:
                    both_hold_one.wait(5)
                _count_up(session, second)
                return attempts

            return transactions._write(span, body)

        with ThreadPoolExecutor(2) as threads:
            tried = list(threads.map(in_order, "ab", "ba"))
        assert sorted(tried) == [1, 2], "one of them lost the deadlock and tried once more"
        assert isinstance(span, ReadableSpan)
        retried = [(event.name, dict(event.attributes or {})) for event in span.events]
        assert retried == [("retried", {"attempt": 2, "error.type": "40P01"})]
        counts = await transactions.read(lambda session: session.execute(text("SELECT n FROM counted")).scalars().all())
        assert counts == [2, 2]
        await transactions.close()


async def test_a_lock_somebody_keeps_is_given_up_on_and_said(postgres: Postgres) -> None:
    with postgres.database() as url:
        holder, waiter = open_engine(url), Transactions(open_engine(url, lock_timeout_ms=100))
        await waiter.write(_made)
        with holder.connect() as connection, connection.begin():
            connection.execute(text("SELECT n FROM counted WHERE name = 'a' FOR UPDATE"))
            began = time.monotonic()
            with pytest.raises(StoreUnavailableError, match="LockNotAvailable"):
                await waiter.write(lambda session: _count_up(session, "a"))
            assert time.monotonic() - began < 4, "it is not retried: whoever holds the lock still holds it"
        await waiter.close()
        holder.dispose()


async def test_a_statement_without_end_is_cut(postgres: Postgres) -> None:
    with postgres.database() as url:
        transactions = Transactions(open_engine(url, statement_timeout_ms=100))
        with pytest.raises(StoreUnavailableError, match="QueryCanceled"):
            await transactions.read(lambda session: session.execute(text("SELECT pg_sleep(30)")).all())
        assert await transactions.read(lambda session: session.execute(text("SELECT 1")).scalar()) == 1
        await transactions.close()


def _made(session: Session) -> None:
    session.execute(text("CREATE TABLE counted (name text PRIMARY KEY, n int NOT NULL)"))
    session.execute(text("INSERT INTO counted VALUES ('a', 0), ('b', 0)"))


def _count_up(session: Session, name: str) -> None:
    session.execute(text("UPDATE counted SET n = n + 1 WHERE name = :name"), {"name": name})
