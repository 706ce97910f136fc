"""Schema migrations. `await migrate(engine)` brings a database of either kind to the newest revision."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine

from retold.store.engine import one_error, writing_connection_options

# Any number does, as long as every process that migrates asks for the same.
_POSTGRES_LOCK = 7_305_411_208


async def migrate(engine: AsyncEngine | Engine, revision: str = "head") -> None:
    """Upgrade (or downgrade) the database to `revision`, in one transaction. Two processes at once take turns.

    Args:
        engine: async or sync. A sync engine is used on the calling thread.
        revision: a revision id, `head`, or `base` for an empty schema.

    Raises:
        StoreUnavailableError: the database could not be reached or changed; it is as it was.
    """
    with one_error():
        if isinstance(engine, Engine):
            with engine.execution_options(**writing_connection_options()).begin() as connection:
                _run(connection, revision)
            return
        async with engine.execution_options(**writing_connection_options()).begin() as async_connection:
            await async_connection.run_sync(_run, revision)


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
