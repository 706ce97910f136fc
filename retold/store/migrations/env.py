"""Run by Alembic: on the connection that `migrate` hands over, or to print the SQL for a database administrator."""

from __future__ import annotations

from alembic import context

from retold.store.tables import Row

config = context.config

if context.is_offline_mode():
    context.configure(
        dialect_name=config.get_main_option("dialect") or "postgresql",
        target_metadata=Row.metadata,
        literal_binds=True,
    )
    with context.begin_transaction():
        context.run_migrations()
else:
    context.configure(
        connection=config.attributes["connection"],
        target_metadata=Row.metadata,
        # SQLite alters a table by copying it.
        render_as_batch=True,
    )
    context.run_migrations()
