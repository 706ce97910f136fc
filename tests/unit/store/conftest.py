"""A migrated SQLite file and a store on it, for each test."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
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


@pytest.fixture
async def engine(database: Path) -> AsyncIterator[Engine]:
    engine = open_engine(f"sqlite:///{database}")
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
