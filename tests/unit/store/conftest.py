"""A migrated SQLite file and a store on it, for each test."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from retold.contracts.record import MemoryRecord
from retold.contracts.turn import Principal
from retold.store.engine import open_engine
from retold.store.migrations import migrate
from retold.store.records import as_record
from retold.store.store import Store
from retold.store.tables import RecordRow
from tests.postgres import Postgres, running_postgres

NOON = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
ADA = Principal(tenant="acme", user="ada")
BOB = Principal(tenant="acme", user="bob")
ELSEWHERE = Principal(tenant="acme2", user="ada")

PutRecord = Callable[..., Awaitable[MemoryRecord]]


@pytest.fixture(scope="session")
async def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "migrated.db"
    engine = open_engine(f"sqlite:///{path}")
    await migrate(engine)
    engine.dispose()  # the last connection to close folds the write-ahead log into the file
    return path


@pytest.fixture
def database(tmp_path: Path, migrated_file: Path) -> Path:
    return Path(shutil.copy(migrated_file, tmp_path / "retold.db"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test that asks for an engine or a store runs on both databases; one that asks for the file, on SQLite."""
    if "engine" in metafunc.fixturenames and "database" not in metafunc.definition.fixturenames:
        metafunc.parametrize("engine", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        asyncio.run(server.prepare())
        yield server


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with contextlib.ExitStack() as stack:
        if getattr(request, "param", "sqlite") == "sqlite":
            url = f"sqlite:///{request.getfixturevalue('database')}"
        else:
            url = stack.enter_context(request.getfixturevalue("postgres").database())
        engine = open_engine(url)
        yield engine
        engine.dispose()


@pytest.fixture
def store(engine: Engine) -> Store:
    return Store(engine)


@pytest.fixture
def put_record(engine: Engine) -> PutRecord:
    """Store a record in any state, also those that only later workflows produce."""

    async def put(id: str, owner: Principal = ADA, **fields: Any) -> MemoryRecord:
        row = record_row(id, owner, **fields)
        with Session(engine) as session:
            session.add(row)
            session.commit()
            return as_record(row)  # as the database gives it back

    return put


def record_row(id: str, owner: Principal = ADA, **fields: Any) -> RecordRow:
    defaults: dict[str, Any] = {
        "scope": "personal",
        "type": "semantic",
        "subject": "user",
        "text": f"text of {id}",
        "status": "confirmed",
        "activation": "conditional",
        "category": "other",
        "conflicting": False,
        "entities": [],
        "created_at": NOON,
        "source": "import",
        "evidence": [],
        "version": 1,
        "content_hash": f"hash of {id}",
    }
    return RecordRow(id=id, tenant=owner.tenant, user_id=owner.user, **{**defaults, **fields})
