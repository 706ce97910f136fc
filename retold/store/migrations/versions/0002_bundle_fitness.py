"""The bundle registry: fitness results, added and never changed. The database itself refuses anything else."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

NAME = sa.String(128)
CODE = sa.String(64)
SEQUENCE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

REFUSAL = "bundle_fitness is append-only: add a newer result instead"


def upgrade() -> None:
    op.create_table(
        "bundle_fitness",
        sa.Column("id", SEQUENCE, nullable=False),
        sa.Column("bundle_hash", CODE, nullable=False),
        sa.Column("passed", sa.Boolean(), nullable=False),
        sa.Column("kind", CODE, nullable=False),
        sa.Column("suite_version", NAME, nullable=False),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("components", sa.JSON(), nullable=False),
        sa.Column("recorded_by", NAME, nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_bundle_fitness"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_bundle_fitness_bundle_hash_id", "bundle_fitness", ["bundle_hash", "id"])
    if op.get_context().dialect.name == "sqlite":
        _append_only_on_sqlite()
    else:
        _append_only_on_postgresql()


def downgrade() -> None:
    op.drop_table("bundle_fitness")
    if op.get_context().dialect.name != "sqlite":
        op.execute("DROP FUNCTION bundle_fitness_is_append_only()")


def _append_only_on_sqlite() -> None:
    for change in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER bundle_fitness_no_{change.lower()} BEFORE {change} ON bundle_fitness"
            f" BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
        )


def _append_only_on_postgresql() -> None:
    op.execute(
        "CREATE FUNCTION bundle_fitness_is_append_only() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN RAISE EXCEPTION '{REFUSAL}'; END $$"
    )
    # Per statement, not per row: TRUNCATE has no rows, and a statement that would change none is refused alike.
    op.execute(
        "CREATE TRIGGER bundle_fitness_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON bundle_fitness"
        " FOR EACH STATEMENT EXECUTE FUNCTION bundle_fitness_is_append_only()"
    )
