"""Schema migrations. `await migrate(engine)` brings a database of either kind to the newest revision."""

from __future__ import annotations

import threading
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Connection, Engine, text

from retold.store.engine import in_a_thread, one_error, writing_connection_options

# Any number does, as long as every process that migrates asks for the same.
_POSTGRES_LOCK = 7_305_411_208

# Alembic keeps the migration it is running in module globals.
_one_at_a_time = threading.Lock()


async def migrate(engine: Engine, revision: str = "head") -> None:
    """Upgrade (or downgrade) the database to `revision`, in one transaction. Two processes at once take turns.

    Args:
        engine: of `retold.store.engine.open_engine`, or any other of SQLAlchemy's.
        revision: a revision id, `head`, or `base` for an empty schema.

    Raises:
        StoreUnavailableError: the database could not be reached or changed; it is as it was.
    """

    def migrated() -> None:
        with (
            one_error(),
            _one_at_a_time,
            engine.execution_options(**writing_connection_options()).begin() as connection,
        ):
            _run(connection, revision)

    await in_a_thread(migrated)


def revision_of(engine: Engine) -> str | None:
    """The revision a database is at; None: none of ours was ever there.

    Raises:
        StoreUnavailableError: the database could not be reached.
    """
    with one_error(), engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def configuration() -> Config:
    """Alembic's configuration of these migrations, wherever the package is installed."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config


def _run(connection: Connection, revision: str) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _POSTGRES_LOCK})
    config = configuration()
    config.attributes["connection"] = connection
    if revision == "base":
        command.downgrade(config, revision)
    else:
        command.upgrade(config, revision)
