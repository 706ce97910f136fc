"""Conflicts and suspensions on records; evidence, evaluations, reviews and reviewers; what was forgotten."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

NAME = sa.String(128)
CODE = sa.String(64)
DERIVED = sa.String(700)
TIME = sa.DateTime(timezone=True)
SEQUENCE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    # One column at a time, not a rebuilt table: adding is all SQLite needs, and it keeps the rows where they are.
    op.add_column("records", sa.Column("conflicts_with", sa.JSON(), nullable=False, server_default="[]"))
    op.add_column("records", sa.Column("temporary", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("records", sa.Column("suspended_by", CODE, nullable=True))
    op.add_column("records", sa.Column("suspended_from", TIME, nullable=True))
    op.add_column("records", sa.Column("suspended_until", TIME, nullable=True))
    op.create_index(
        "ix_records_tenant_user_id_subject_attribute", "records", ["tenant", "user_id", "subject", "attribute"]
    )
    op.create_index("ix_records_suspended_by", "records", ["suspended_by"])
    op.create_index(
        "ix_records_valid_until",
        "records",
        ["valid_until"],
        sqlite_where=sa.text("conflicting IS 1"),
        postgresql_where=sa.text("conflicting IS true"),
    )
    op.add_column("sessions", sa.Column("extracted_until", TIME, nullable=True))
    op.create_index("ix_session_turns_tenant_user_id_role_at", "session_turns", ["tenant", "user_id", "role", "at"])
    op.add_column("index_outbox", sa.Column("attempts", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("index_outbox", sa.Column("not_before", TIME, nullable=True))
    op.add_column("index_outbox", sa.Column("error", CODE, nullable=True))
    op.create_table(
        "index_leases",
        sa.Column("name", CODE, nullable=False),
        sa.Column("holder", NAME, nullable=False),
        sa.Column("until", TIME, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_index_leases"),
    )
    op.create_table(
        "index_readers",
        sa.Column("worker", NAME, nullable=False),
        sa.Column("generation", NAME, nullable=False),
        sa.Column("seen_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("worker", name="pk_index_readers"),
    )
    op.create_table(
        "activation_evidence",
        sa.Column("record_id", CODE, nullable=False),
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("user_id", NAME, nullable=False),
        sa.Column("record_version", sa.Integer(), nullable=False),
        sa.Column("session_id", NAME, nullable=False),
        sa.Column("turn_id", NAME, nullable=False),
        sa.Column("turn_ref", DERIVED, nullable=False),
        sa.Column("span", sa.Text(), nullable=False),
        sa.Column("span_start", sa.Integer(), nullable=False),
        sa.Column("span_end", sa.Integer(), nullable=False),
        sa.Column("said_at", TIME, nullable=False),
        sa.Column("method", CODE, nullable=False),
        sa.Column("similarity", sa.Float(), nullable=False),
        sa.Column("verified_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("record_id", name="pk_activation_evidence"),
    )
    op.create_index("ix_activation_evidence_turn_ref", "activation_evidence", ["turn_ref"])
    op.create_table(
        "activation_decisions",
        sa.Column("record_id", CODE, nullable=False),
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("user_id", NAME, nullable=False),
        sa.Column("record_version", sa.Integer(), nullable=False),
        sa.Column("content_hash", CODE, nullable=True),
        sa.Column("outcome", CODE, nullable=False),
        sa.Column("reason", CODE, nullable=False),
        sa.Column("category", sa.JSON(), nullable=True),
        sa.Column("decided_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("record_id", name="pk_activation_decisions"),
    )
    op.create_index("ix_activation_decisions_reason", "activation_decisions", ["reason"])
    op.create_table(
        "activation_reviews",
        sa.Column("review_id", CODE, nullable=False),
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("user_id", NAME, nullable=False),
        sa.Column("record_id", CODE, nullable=False),
        sa.Column("record_version", sa.Integer(), nullable=False),
        sa.Column("status", CODE, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("proposed", CODE, nullable=False),
        sa.Column("reason", CODE, nullable=False),
        sa.Column("category", CODE, nullable=True),
        sa.Column("confidence", sa.Float(), nullable=True),
        sa.Column("policy", NAME, nullable=True),
        sa.Column("policy_version", NAME, nullable=True),
        sa.Column("evidence", sa.JSON(), nullable=True),
        sa.Column("language", CODE, nullable=True),
        sa.Column("owner", NAME, nullable=False),
        sa.Column("opened_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.Column("reminded_at", TIME, nullable=True),
        sa.Column("escalated_at", TIME, nullable=True),
        sa.Column("resolved_at", TIME, nullable=True),
        sa.Column("resolved_by", NAME, nullable=True),
        sa.Column("resolution_reason", sa.Text(), nullable=True),
        sa.Column("decision_digest", NAME, nullable=True),
        sa.Column("workflow_state", CODE, nullable=True),
        sa.PrimaryKeyConstraint("review_id", name="pk_activation_reviews"),
    )
    op.create_index("ix_activation_reviews_record_id", "activation_reviews", ["record_id"])
    op.create_index("ix_activation_reviews_status_opened_at", "activation_reviews", ["status", "opened_at"])
    op.create_index("ix_activation_reviews_tenant_user_id", "activation_reviews", ["tenant", "user_id"])
    op.create_index("ix_activation_reviews_workflow_state_status", "activation_reviews", ["workflow_state", "status"])
    op.create_table(
        "reviewers",
        sa.Column("reviewer_id", NAME, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("role", CODE, nullable=False),
        sa.Column("tenants", sa.JSON(), nullable=True),
        sa.Column("token_hash", NAME, nullable=False),
        sa.Column("public_key", NAME, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("disabled_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("reviewer_id", name="pk_reviewers"),
        sa.UniqueConstraint("token_hash", name="uq_reviewers_token_hash"),
    )
    op.create_table(
        "console_sessions",
        sa.Column("session_hash", NAME, nullable=False),
        sa.Column("reviewer_id", NAME, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("last_seen_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("session_hash", name="pk_console_sessions"),
        sa.ForeignKeyConstraint(["reviewer_id"], ["reviewers.reviewer_id"], name="fk_console_sessions_reviewer_id"),
    )
    op.create_index("ix_console_sessions_expires_at", "console_sessions", ["expires_at"])
    op.create_table(
        "tombstones",
        sa.Column("id", SEQUENCE, nullable=False),
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("user_id", NAME, nullable=False),
        sa.Column("what", CODE, nullable=False),
        sa.Column("subject_id", DERIVED, nullable=False),
        sa.Column("receipt_id", CODE, nullable=False),
        sa.Column("forgotten_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tombstones"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_tombstones_tenant_user_id_what_subject_id", "tombstones", ["tenant", "user_id", "what", "subject_id"]
    )
    op.create_table(
        "forgettings",
        sa.Column("receipt_id", CODE, nullable=False),
        sa.Column("run_id", CODE, nullable=False),
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("user_id", NAME, nullable=False),
        sa.Column("what", CODE, nullable=False),
        sa.Column("subject_id", NAME, nullable=False),
        sa.Column("actor", NAME, nullable=False),
        sa.Column("reason", NAME, nullable=False),
        sa.Column("asked_at", TIME, nullable=False),
        sa.Column("forgotten_at", TIME, nullable=False),
        sa.Column("removed", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("receipt_id", name="pk_forgettings"),
    )
    op.create_index(
        "ix_forgettings_tenant_user_id_what_subject_id", "forgettings", ["tenant", "user_id", "what", "subject_id"]
    )
    op.create_table(
        "forget_probes",
        sa.Column("id", SEQUENCE, nullable=False),
        sa.Column("receipt_id", CODE, nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_forget_probes"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_forget_probes_receipt_id", "forget_probes", ["receipt_id"])
    op.create_table(
        "forget_receipts",
        sa.Column("receipt_id", CODE, nullable=False),
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("user_id", NAME, nullable=False),
        sa.Column("done_at", TIME, nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("receipt_id", name="pk_forget_receipts"),
    )
    op.create_index("ix_forget_receipts_done_at", "forget_receipts", ["done_at"])
    op.create_index("ix_forget_receipts_tenant_user_id", "forget_receipts", ["tenant", "user_id"])


def downgrade() -> None:
    op.drop_table("forget_receipts")
    op.drop_table("forget_probes")
    op.drop_table("forgettings")
    op.drop_table("tombstones")
    op.drop_table("console_sessions")
    op.drop_table("reviewers")
    op.drop_table("activation_reviews")
    op.drop_table("activation_decisions")
    op.drop_table("activation_evidence")
    op.drop_table("index_readers")
    op.drop_table("index_leases")
    for column in ("error", "not_before", "attempts"):
        op.drop_column("index_outbox", column)
    op.drop_index("ix_session_turns_tenant_user_id_role_at", "session_turns")
    op.drop_column("sessions", "extracted_until")
    op.drop_index("ix_records_valid_until", "records")
    op.drop_index("ix_records_suspended_by", "records")
    op.drop_index("ix_records_tenant_user_id_subject_attribute", "records")
    for column in ("suspended_until", "suspended_from", "suspended_by", "temporary", "conflicts_with"):
        op.drop_column("records", column)
