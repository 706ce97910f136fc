"""The SQL schema. One class a table; the migrations under `migrations/` build the same, and a test compares them.

Everything a principal owns carries `tenant` and `user_id`, and every index that serves a turn starts with them.
(The column is not called `user`: in PostgreSQL an unquoted `user` is the database role, so a hand-written
`WHERE user = 'ada'` would quietly find nothing.)
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from sqlalchemy import JSON, BigInteger, DateTime, Dialect, Index, Integer, MetaData, Table, Text, UniqueConstraint
from sqlalchemy.types import TypeDecorator
from sqlmodel import Field, SQLModel

NAME_CHARS = 128
RECORD_ID_CHARS = 64
DERIVED_ID_CHARS = 700
"""Longest id that `retold.contracts.identity` derives from names."""
CODE_CHARS = 64


class UtcTimestamp(TypeDecorator[datetime]):
    """A time that goes in aware and comes out aware, in UTC, whatever the database remembers of its zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a stored time must carry a time zone")
        value = value.astimezone(UTC)
        # SQLite keeps text without a zone; fixed-width UTC text also compares in time order.
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class _JsonOrNull(TypeDecorator[Any]):
    """JSON in which Python's None is SQL NULL, so that `IS NULL` means what it says."""

    impl = JSON(none_as_null=True)
    cache_ok = True


class _Sequence(TypeDecorator[int]):
    """A growing integer key. SQLite only numbers rows by itself in a column declared INTEGER."""

    impl = BigInteger().with_variant(Integer(), "sqlite")
    cache_ok = True


class Row(SQLModel):
    """Base of the tables; its metadata names every constraint, so that a later migration can refer to it."""

    metadata: ClassVar[MetaData] = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


def table_of(row: type[Row]) -> Table:
    """The table behind a class, for statements of a turn: on tables they cost a fraction of what rows as objects do."""
    return Row.metadata.tables[str(row.__tablename__)]


class RecordRow(Row, table=True):
    """A memory record in its current version. `content_hash` says what is stated, `host_key` is the host's own id."""

    __tablename__ = "records"
    __table_args__ = (
        UniqueConstraint("tenant", "user_id", "scope", "content_hash"),
        # NULLs are distinct in both databases: records without a host key do not collide.
        UniqueConstraint("tenant", "user_id", "host_key"),
        Index(None, "tenant", "user_id", "activation", "status"),
    )

    id: str = Field(primary_key=True, max_length=RECORD_ID_CHARS)
    tenant: str = Field(max_length=NAME_CHARS)
    user_id: str = Field(max_length=NAME_CHARS)
    scope: str = Field(max_length=NAME_CHARS)
    type: str = Field(max_length=CODE_CHARS)
    subject: str = Field(max_length=NAME_CHARS)
    attribute: str | None = Field(default=None, max_length=NAME_CHARS)
    text: str = Field(sa_type=Text)
    status: str = Field(max_length=CODE_CHARS)
    activation: str = Field(max_length=CODE_CHARS)
    category: str = Field(max_length=CODE_CHARS)
    conflicting: bool
    entities: list[str] = Field(sa_type=JSON)
    valid_from: datetime | None = Field(default=None, sa_type=UtcTimestamp)
    valid_until: datetime | None = Field(default=None, sa_type=UtcTimestamp)
    event_at: datetime | None = Field(default=None, sa_type=UtcTimestamp)
    created_at: datetime = Field(sa_type=UtcTimestamp)
    supersedes: str | None = Field(default=None, max_length=RECORD_ID_CHARS)
    superseded_by: str | None = Field(default=None, max_length=RECORD_ID_CHARS)
    source: str = Field(max_length=CODE_CHARS)
    evidence: list[str] = Field(sa_type=JSON)
    version: int
    content_hash: str = Field(max_length=CODE_CHARS)
    host_key: str | None = Field(default=None, max_length=NAME_CHARS)


class OutboxRow(Row, table=True):
    """A record the index has yet to follow; written in the transaction that changed the record."""

    __tablename__ = "index_outbox"
    # AUTOINCREMENT: a number is never given twice, so acknowledging one twice cannot drop a newer change.
    __table_args__ = {"sqlite_autoincrement": True}

    seq: int | None = Field(default=None, primary_key=True, sa_type=_Sequence)
    record_id: str = Field(max_length=RECORD_ID_CHARS, index=True)
    at: datetime = Field(sa_type=UtcTimestamp)


class SessionRow(Row, table=True):
    """A session of exactly one user of a tenant, with the profile block it was given on its first turn."""

    __tablename__ = "sessions"
    __table_args__ = (Index(None, "tenant", "user_id"), Index(None, "last_seen_at"))

    tenant: str = Field(primary_key=True, max_length=NAME_CHARS)
    session_id: str = Field(primary_key=True, max_length=NAME_CHARS)
    user_id: str = Field(max_length=NAME_CHARS)
    started_at: datetime = Field(sa_type=UtcTimestamp)
    last_seen_at: datetime = Field(sa_type=UtcTimestamp)
    ended_at: datetime | None = Field(default=None, sa_type=UtcTimestamp)
    profile: dict[str, Any] | None = Field(default=None, sa_type=_JsonOrNull)
    """The whole ProfileBlock."""


class SessionTurnRow(Row, table=True):
    """One text of one turn: what the user said, the draft, the final answer, or an imported line."""

    __tablename__ = "session_turns"
    __table_args__ = (
        UniqueConstraint("tenant", "user_id", "session_id", "turn_id", "role"),
        Index(None, "tenant", "user_id", "session_id", "at"),
    )

    id: str = Field(primary_key=True, max_length=DERIVED_ID_CHARS)
    """`retold.contracts.identity.turn_ref` of the five columns below."""
    tenant: str = Field(max_length=NAME_CHARS)
    user_id: str = Field(max_length=NAME_CHARS)
    session_id: str = Field(max_length=NAME_CHARS)
    turn_id: str = Field(max_length=NAME_CHARS)
    role: str = Field(max_length=CODE_CHARS)
    text: str = Field(sa_type=Text)
    at: datetime = Field(sa_type=UtcTimestamp)


class DecisionRow(Row, table=True):
    """One turn decision: the columns an operator filters by, and the whole TurnDecision as one document."""

    __tablename__ = "turn_decisions"
    __table_args__ = (
        Index(None, "tenant", "user_id", "session_id", "at"),
        Index(None, "tenant", "user_id", "at"),
        Index(None, "disposition", "at"),
        Index(None, "at"),
    )

    decision_id: str = Field(primary_key=True, max_length=CODE_CHARS)
    workflow_id: str = Field(max_length=DERIVED_ID_CHARS)
    tenant: str = Field(max_length=NAME_CHARS)
    user_id: str = Field(max_length=NAME_CHARS)
    session_id: str = Field(max_length=NAME_CHARS)
    turn_id: str = Field(max_length=NAME_CHARS)
    at: datetime = Field(sa_type=UtcTimestamp)
    disposition: str = Field(max_length=CODE_CHARS)
    reason: str = Field(max_length=CODE_CHARS)
    shadow: bool
    durability: str = Field(max_length=CODE_CHARS)
    redelivered: bool
    requested_budget: str = Field(max_length=16)
    """`default`, `none`, or milliseconds."""
    effective_budget_ms: int | None = None
    draft_latency_ms: float | None = None
    bundle_hash: str = Field(max_length=NAME_CHARS)
    request_digest: str = Field(max_length=NAME_CHARS)
    trace_id: str | None = Field(default=None, max_length=CODE_CHARS)
    document: dict[str, Any] = Field(sa_type=JSON)


class SearchRow(Row, table=True):
    """One executed retrieval of one gap: what each stage dropped and why, and what was kept."""

    __tablename__ = "search_log"
    __table_args__ = (Index(None, "tenant", "user_id", "at"),)

    search_id: str = Field(primary_key=True, max_length=NAME_CHARS)
    decision_id: str = Field(max_length=CODE_CHARS, foreign_key="turn_decisions.decision_id", index=True)
    tenant: str = Field(max_length=NAME_CHARS)
    user_id: str = Field(max_length=NAME_CHARS)
    gap_index: int
    query: str = Field(sa_type=Text)
    generated: dict[str, Any] = Field(sa_type=JSON)
    dropped: dict[str, Any] = Field(sa_type=JSON)
    kept: list[Any] = Field(sa_type=JSON)
    elapsed_ms: float
    at: datetime = Field(sa_type=UtcTimestamp)


class FitnessRow(Row, table=True):
    """One result on record for a bundle. The one with the highest id of its hash says whether it may serve."""

    __tablename__ = "bundle_fitness"
    __table_args__ = (Index(None, "bundle_hash", "id"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True, sa_type=_Sequence)
    bundle_hash: str = Field(max_length=CODE_CHARS)
    passed: bool
    kind: str = Field(max_length=CODE_CHARS)
    suite_version: str = Field(max_length=NAME_CHARS)
    evidence: str = Field(sa_type=Text)
    components: dict[str, Any] = Field(sa_type=JSON)
    recorded_by: str = Field(max_length=NAME_CHARS)
    recorded_at: datetime = Field(sa_type=UtcTimestamp)


class AuditRow(Row, table=True):
    """One audited change: who did what to which subject, from what to what. Never the text of a record or turn."""

    __tablename__ = "audit_events"
    __table_args__ = (
        Index(None, "tenant", "user_id", "at"),
        Index(None, "subject_kind", "subject_id"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, primary_key=True, sa_type=_Sequence)
    at: datetime = Field(sa_type=UtcTimestamp)
    tenant: str = Field(max_length=NAME_CHARS)
    user_id: str = Field(max_length=NAME_CHARS)
    actor: str = Field(max_length=NAME_CHARS)
    event: str = Field(max_length=CODE_CHARS)
    subject_kind: str = Field(max_length=CODE_CHARS)
    subject_id: str = Field(max_length=NAME_CHARS)
    before: dict[str, Any] | None = Field(default=None, sa_type=_JsonOrNull)
    after: dict[str, Any] | None = Field(default=None, sa_type=_JsonOrNull)
    reason: str = Field(default="", sa_type=Text)
