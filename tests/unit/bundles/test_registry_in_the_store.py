"""The registry on SQL: rows survive, the order they were added in decides, and nothing changes or removes one."""

from __future__ import annotations

import inspect
import io
import sqlite3
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from alembic import command

from retold.policy.bundles import BundleNotApprovedError, BundleRegistry
from retold.store import bundles
from retold.store.engine import open_engine
from retold.store.migrations import configuration, migrate
from retold.store.store import Store
from tests.unit.bundles.bundle_parts import NOON, SERVING, certified, components_of, found, serving


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    engine = open_engine(f"sqlite:///{tmp_path}/retold.db")
    await migrate(engine)
    store = Store(engine)
    yield store
    await store.close()


async def test_a_result_is_read_back_as_it_was_recorded(store: Store) -> None:
    registry = BundleRegistry(store)
    written = await registry.record(
        components_of(SERVING), passed=True, suite_version="suite-1", evidence="отчёт 7", recorded_by="ci"
    )
    assert await registry.latest(written.bundle_hash) == written
    assert (await certified(SERVING, registry)).approval == "fitness"
    assert await registry.latest("0" * 16) is None


async def test_what_was_added_last_decides_whatever_the_clock_said(store: Store) -> None:
    await found(BundleRegistry(store, now=lambda: NOON), SERVING, passed=True)
    await found(BundleRegistry(store, now=lambda: NOON - timedelta(hours=1)), SERVING, passed=False)
    await found(BundleRegistry(store, now=lambda: NOON), serving(max_gaps=1), passed=True)
    with pytest.raises(BundleNotApprovedError):
        await certified(SERVING, BundleRegistry(store))
    assert [row.passed for row in await store.fitness_history(limit=2)] == [True, False]


def test_the_store_offers_to_add_and_to_read_and_nothing_else() -> None:
    offered = {name for name, _ in inspect.getmembers(Store, inspect.isfunction) if "fitness" in name}
    assert offered == {"append_fitness", "latest_fitness", "fitness_history"}
    of_the_rows = {
        name for name, it in inspect.getmembers(bundles, inspect.isfunction) if it.__module__ == bundles.__name__
    }
    assert of_the_rows == {"append", "history"}


@pytest.mark.parametrize(
    "change", ["UPDATE bundle_fitness SET passed = 1", "DELETE FROM bundle_fitness WHERE passed = 0"]
)
async def test_the_database_itself_refuses_a_change(store: Store, tmp_path: Path, change: str) -> None:
    await found(BundleRegistry(store), SERVING, passed=False)
    connection = sqlite3.connect(tmp_path / "retold.db")
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(change)
    connection.close()
    assert [row.passed for row in await store.fitness_history()] == [False]


def test_postgresql_refuses_it_too() -> None:
    config = configuration()
    config.output_buffer = io.StringIO()
    command.upgrade(config, "head", sql=True)
    script = config.output_buffer.getvalue()
    assert "BEFORE UPDATE OR DELETE OR TRUNCATE ON bundle_fitness" in script
    assert "RAISE EXCEPTION 'bundle_fitness is append-only" in script
