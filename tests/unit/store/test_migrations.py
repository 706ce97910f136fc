"""The migrations and the table classes describe the same schema, and migrating is safe to repeat."""

from __future__ import annotations

import asyncio
import io
import re
import tomllib
from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, create_engine, create_mock_engine, inspect
from sqlalchemy.schema import CreateTable

import retold
from retold.store.engine import open_engine
from retold.store.migrations import configuration, migrate
from retold.store.tables import Row


def test_the_migrated_schema_is_the_one_the_code_reads(engine: Engine) -> None:
    with engine.connect() as connection:
        # PostgreSQL cannot compare two defaults of type JSON; the script's test below does.
        defaults = connection.dialect.name == "sqlite"
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": defaults}
        )
        assert list(compare_metadata(context, Row.metadata)) == []


async def test_down_removes_everything_and_up_again_restores_it(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/100%25 sure's.db")
    await migrate(engine)
    tables = _tables(engine)
    assert set(Row.metadata.tables) <= tables
    await migrate(engine, "base")
    assert _tables(engine) <= {"alembic_version", "sqlite_sequence"}
    await migrate(engine)
    assert _tables(engine) == tables
    engine.dispose()


async def test_several_processes_may_migrate_one_database_at_once(tmp_path: Path) -> None:
    engines = [open_engine(f"sqlite:///{tmp_path}/new.db") for _ in range(4)]
    await asyncio.gather(*(migrate(engine) for engine in engines))
    assert set(Row.metadata.tables) <= _tables(engines[0])
    for engine in engines:
        engine.dispose()


async def test_an_engine_that_another_program_opened_is_migrated_too(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/other.db")
    await migrate(engine)
    assert set(Row.metadata.tables) <= _tables(engine)
    engine.dispose()


def test_an_administrator_can_have_the_postgresql_script_instead() -> None:
    config = configuration()
    config.output_buffer = io.StringIO()
    command.upgrade(config, "head", sql=True)
    script = config.output_buffer.getvalue()
    dialect = create_mock_engine("postgresql://", lambda *_: None).dialect
    for table in Row.metadata.sorted_tables:
        declared = str(CreateTable(table).compile(dialect=dialect))
        columns = [line.strip().rstrip(",") for line in declared.splitlines() if line.startswith("\t")]
        body = script[script.index(f"CREATE TABLE {table.name} (") :].split(";", 1)[0]
        created = [line.strip().rstrip(",") for line in body.splitlines() if line.startswith("    ")]
        added = re.findall(rf"ALTER TABLE {table.name} ADD COLUMN (.*);", script)
        assert sorted(columns) == sorted(created + added)


def test_the_wheel_carries_every_file_of_the_migrations() -> None:
    here = Path(retold.__file__).parent
    project = tomllib.loads((here.parent / "pyproject.toml").read_text())
    carried = {path for glob in project["tool"]["setuptools"]["package-data"]["retold"] for path in here.glob(glob)}
    needed = {path for path in (here / "store" / "migrations").rglob("*") if path.suffix in (".py", ".mako")}
    assert {path for path in needed - carried if not (path.parent / "__init__.py").exists()} == set()
    assert any(path.name == "script.py.mako" for path in carried)


def _tables(engine: Engine) -> set[str]:
    with engine.connect() as connection:
        return set(inspect(connection).get_table_names())
