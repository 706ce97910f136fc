"""Records with their index outbox, sessions and turns, the decision and search logs, the audit trail."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NAME = sa.String(128)
CODE = sa.String(64)
DERIVED_ID = sa.String(700)
TIME = sa.DateTime(timezone=True)
SEQUENCE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "records",
        sa.Column("id", CODE, nullable=False),
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("user_id", NAME, nullable=False),
        sa.Column("scope", NAME, nullable=False),
        sa.Column("type", CODE, nullable=False),
        sa.Column("subject", NAME, nullable=False),
        sa.Column("attribute", NAME, nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("status", CODE, nullable=False),
        sa.Column("activation", CODE, nullable=False),
        sa.Column("category", CODE, nullable=False),
        sa.Column("conflicting", sa.Boolean(), nullable=False),
        sa.Column("entities", sa.JSON(), nullable=False),
        sa.Column("valid_from", TIME, nullable=True),
        sa.Column("valid_until", TIME, nullable=True),
        sa.Column("event_at", TIME, nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("supersedes", CODE, nullable=True),
        sa.Column("superseded_by", CODE, nullable=True),
        sa.Column("source", CODE, nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("content_hash", CODE, nullable=False),
        sa.Column("host_key", NAME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_records"),
        sa.UniqueConstraint(
            "tenant", "user_id", "scope", "content_hash", name="uq_records_tenant_user_id_scope_content_hash"
        ),
        sa.UniqueConstraint("tenant", "user_id", "host_key", name="uq_records_tenant_user_id_host_key"),
    )
    op.create_index(
        "ix_records_tenant_user_id_activation_status", "records", ["tenant", "user_id", "activation", "status"]
    )

    op.create_table(
        "index_outbox",
        sa.Column("seq", SEQUENCE, nullable=False),
        sa.Column("record_id", CODE, nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_index_outbox"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_index_outbox_record_id", "index_outbox", ["record_id"])

    op.create_table(
        "sessions",
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("session_id", NAME, nullable=False),
        sa.Column("user_id", NAME, nullable=False),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("last_seen_at", TIME, nullable=False),
        sa.Column("ended_at", TIME, nullable=True),
        sa.Column("profile", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("tenant", "session_id", name="pk_sessions"),
    )
    op.create_index("ix_sessions_tenant_user_id", "sessions", ["tenant", "user_id"])
    op.create_index("ix_sessions_last_seen_at", "sessions", ["last_seen_at"])

    op.create_table(
        "session_turns",
        sa.Column("id", DERIVED_ID, nullable=False),
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("user_id", NAME, nullable=False),
        sa.Column("session_id", NAME, nullable=False),
        sa.Column("turn_id", NAME, nullable=False),
        sa.Column("role", CODE, nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_session_turns"),
        sa.UniqueConstraint(
            "tenant",
            "user_id",
            "session_id",
            "turn_id",
            "role",
            name="uq_session_turns_tenant_user_id_session_id_turn_id_role",
        ),
    )
    op.create_index(
        "ix_session_turns_tenant_user_id_session_id_at", "session_turns", ["tenant", "user_id", "session_id", "at"]
    )

    op.create_table(
        "turn_decisions",
        sa.Column("decision_id", CODE, nullable=False),
        sa.Column("workflow_id", DERIVED_ID, nullable=False),
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("user_id", NAME, nullable=False),
        sa.Column("session_id", NAME, nullable=False),
        sa.Column("turn_id", NAME, nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("disposition", CODE, nullable=False),
        sa.Column("reason", CODE, nullable=False),
        sa.Column("shadow", sa.Boolean(), nullable=False),
        sa.Column("durability", CODE, nullable=False),
        sa.Column("redelivered", sa.Boolean(), nullable=False),
        sa.Column("requested_budget", sa.String(16), nullable=False),
        sa.Column("effective_budget_ms", sa.Integer(), nullable=True),
        sa.Column("draft_latency_ms", sa.Float(), nullable=True),
        sa.Column("bundle_hash", NAME, nullable=False),
        sa.Column("request_digest", NAME, nullable=False),
        sa.Column("trace_id", CODE, nullable=True),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("decision_id", name="pk_turn_decisions"),
    )
    op.create_index(
        "ix_turn_decisions_tenant_user_id_session_id_at", "turn_decisions", ["tenant", "user_id", "session_id", "at"]
    )
    op.create_index("ix_turn_decisions_tenant_user_id_at", "turn_decisions", ["tenant", "user_id", "at"])
    op.create_index("ix_turn_decisions_disposition_at", "turn_decisions", ["disposition", "at"])
    op.create_index("ix_turn_decisions_at", "turn_decisions", ["at"])

    op.create_table(
        "search_log",
        sa.Column("search_id", NAME, nullable=False),
        sa.Column("decision_id", CODE, nullable=False),
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("user_id", NAME, nullable=False),
        sa.Column("gap_index", sa.Integer(), nullable=False),
        sa.Column("query", sa.Text(), nullable=False),
        sa.Column("generated", sa.JSON(), nullable=False),
        sa.Column("dropped", sa.JSON(), nullable=False),
        sa.Column("kept", sa.JSON(), nullable=False),
        sa.Column("elapsed_ms", sa.Float(), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("search_id", name="pk_search_log"),
        sa.ForeignKeyConstraint(["decision_id"], ["turn_decisions.decision_id"], name="fk_search_log_decision_id"),
    )
    op.create_index("ix_search_log_decision_id", "search_log", ["decision_id"])
    op.create_index("ix_search_log_tenant_user_id_at", "search_log", ["tenant", "user_id", "at"])

    op.create_table(
        "audit_events",
        sa.Column("id", SEQUENCE, nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("user_id", NAME, nullable=False),
        sa.Column("actor", NAME, nullable=False),
        sa.Column("event", CODE, nullable=False),
        sa.Column("subject_kind", CODE, nullable=False),
        sa.Column("subject_id", NAME, nullable=False),
        sa.Column("before", sa.JSON(), nullable=True),
        sa.Column("after", sa.JSON(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit_events"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_events_tenant_user_id_at", "audit_events", ["tenant", "user_id", "at"])
    op.create_index("ix_audit_events_subject_kind_subject_id", "audit_events", ["subject_kind", "subject_id"])


def downgrade() -> None:
    for table in (
        "audit_events",
        "search_log",
        "turn_decisions",
        "session_turns",
        "sessions",
        "index_outbox",
        "records",
    ):
        op.drop_table(table)
