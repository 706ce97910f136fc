"""The SQL schema. One class a table; the migrations under `migrations/` build the same, and a test compares them.

Everything a principal owns carries `tenant` and `user_id`, and every index that serves a turn starts with them.
(The column is not called `user`: in PostgreSQL an unquoted `user` is the database role, so a hand-written
`WHERE user = 'ada'` would quietly find nothing.)
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    Dialect,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)
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
        Index(None, "tenant", "user_id", "subject", "attribute"),
        Index(None, "suspended_by"),
        # Few records disagree. An index of the flag itself would be taken for a good one by queries about the others.
        Index(None, "valid_until", sqlite_where=text("conflicting IS 1"), postgresql_where=text("conflicting IS true")),
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
    conflicts_with: list[str] = Field(default_factory=list, sa_type=JSON, sa_column_kwargs={"server_default": "[]"})
    entities: list[str] = Field(sa_type=JSON)
    valid_from: datetime | None = Field(default=None, sa_type=UtcTimestamp)
    valid_until: datetime | None = Field(default=None, sa_type=UtcTimestamp)
    event_at: datetime | None = Field(default=None, sa_type=UtcTimestamp)
    temporary: bool = Field(default=False, sa_column_kwargs={"server_default": false()})
    created_at: datetime = Field(sa_type=UtcTimestamp)
    suspended_by: str | None = Field(default=None, max_length=RECORD_ID_CHARS)
    suspended_from: datetime | None = Field(default=None, sa_type=UtcTimestamp)
    suspended_until: datetime | None = Field(default=None, sa_type=UtcTimestamp)
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
    attempts: int = Field(default=0, sa_column_kwargs={"server_default": "0"})
    """How often the index could not take this one while it took others."""
    not_before: datetime | None = Field(default=None, sa_type=UtcTimestamp)
    """Set aside until then, so that nothing waits behind it; the error's type says why, never a text."""
    error: str | None = Field(default=None, max_length=CODE_CHARS)


class IndexLeaseRow(Row, table=True):
    """Which worker may write to an index that several can reach. Held for seconds, taken over when it runs out."""

    __tablename__ = "index_leases"

    name: str = Field(primary_key=True, max_length=CODE_CHARS)
    holder: str = Field(max_length=NAME_CHARS)
    until: datetime = Field(sa_type=UtcTimestamp)


class IndexReaderRow(Row, table=True):
    """Which generation of the index a worker answers from, and when it last said so: the others may be dropped."""

    __tablename__ = "index_readers"

    worker: str = Field(primary_key=True, max_length=NAME_CHARS)
    generation: str = Field(max_length=NAME_CHARS)
    seen_at: datetime = Field(sa_type=UtcTimestamp)


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
    extracted_until: datetime | None = Field(default=None, sa_type=UtcTimestamp)
    """What the principal said up to here has been read by an extractor; None: nothing has."""


class SessionTurnRow(Row, table=True):
    """One text of one turn: what the user said, the draft, the final answer, or an imported line."""

    __tablename__ = "session_turns"
    __table_args__ = (
        UniqueConstraint("tenant", "user_id", "session_id", "turn_id", "role"),
        Index(None, "tenant", "user_id", "session_id", "at"),
        Index(None, "tenant", "user_id", "role", "at"),
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


class EvidenceRow(Row, table=True):
    """The principal's own words behind a record, as the host found them. The latest verification stays."""

    __tablename__ = "activation_evidence"

    record_id: str = Field(primary_key=True, max_length=RECORD_ID_CHARS)
    tenant: str = Field(max_length=NAME_CHARS)
    user_id: str = Field(max_length=NAME_CHARS)
    record_version: int
    """The version whose text was matched."""
    session_id: str = Field(max_length=NAME_CHARS)
    turn_id: str = Field(max_length=NAME_CHARS)
    turn_ref: str = Field(max_length=DERIVED_ID_CHARS, index=True)
    span: str = Field(sa_type=Text)
    span_start: int
    span_end: int
    said_at: datetime = Field(sa_type=UtcTimestamp)
    method: str = Field(max_length=CODE_CHARS)
    similarity: float
    verified_at: datetime = Field(sa_type=UtcTimestamp)


class ActivationRow(Row, table=True):
    """The latest evaluation of a record: one a record, so that the same version is not evaluated twice."""

    __tablename__ = "activation_decisions"
    __table_args__ = (Index(None, "reason"),)

    record_id: str = Field(primary_key=True, max_length=RECORD_ID_CHARS)
    tenant: str = Field(max_length=NAME_CHARS)
    user_id: str = Field(max_length=NAME_CHARS)
    record_version: int
    """The version that was left behind: a later one is due again."""
    content_hash: str | None = Field(default=None, max_length=CODE_CHARS)
    """Of the statement that was evaluated: a later version that says the same keeps what was decided for it."""
    outcome: str = Field(max_length=CODE_CHARS)
    reason: str = Field(max_length=CODE_CHARS)
    category: dict[str, Any] | None = Field(default=None, sa_type=_JsonOrNull)
    """The whole CategoryDecision."""
    decided_at: datetime = Field(sa_type=UtcTimestamp)


class ReviewRow(Row, table=True):
    """One item of the review queue, in its present state. Its history is in the audit trail."""

    __tablename__ = "activation_reviews"
    __table_args__ = (
        Index(None, "status", "opened_at"),
        Index(None, "tenant", "user_id"),
        Index(None, "record_id"),
        Index(None, "workflow_state", "status"),
    )

    review_id: str = Field(primary_key=True, max_length=CODE_CHARS)
    tenant: str = Field(max_length=NAME_CHARS)
    user_id: str = Field(max_length=NAME_CHARS)
    record_id: str = Field(max_length=RECORD_ID_CHARS)
    record_version: int
    status: str = Field(max_length=CODE_CHARS)
    version: int
    proposed: str = Field(max_length=CODE_CHARS)
    reason: str = Field(max_length=CODE_CHARS)
    category: str | None = Field(default=None, max_length=CODE_CHARS)
    confidence: float | None = None
    policy: str | None = Field(default=None, max_length=NAME_CHARS)
    policy_version: str | None = Field(default=None, max_length=NAME_CHARS)
    evidence: dict[str, Any] | None = Field(default=None, sa_type=_JsonOrNull)
    """The VerifiedEvidence the item was opened with, span included."""
    language: str | None = Field(default=None, max_length=CODE_CHARS)
    owner: str = Field(max_length=NAME_CHARS)
    opened_at: datetime = Field(sa_type=UtcTimestamp)
    expires_at: datetime = Field(sa_type=UtcTimestamp)
    reminded_at: datetime | None = Field(default=None, sa_type=UtcTimestamp)
    escalated_at: datetime | None = Field(default=None, sa_type=UtcTimestamp)
    resolved_at: datetime | None = Field(default=None, sa_type=UtcTimestamp)
    resolved_by: str | None = Field(default=None, max_length=NAME_CHARS)
    resolution_reason: str | None = Field(default=None, sa_type=Text)
    decision_digest: str | None = Field(default=None, max_length=NAME_CHARS)
    """Of the decision that resolved it: the same one sent again is answered, not refused."""
    workflow_state: str | None = Field(default=None, max_length=CODE_CHARS)
    """NULL: its workflow is yet to be started; `running`; `told` that the item has ended."""


class ReviewerRow(Row, table=True):
    """A person who may see or decide reviews. The token itself is nowhere."""

    __tablename__ = "reviewers"
    __table_args__ = (UniqueConstraint("token_hash"),)

    reviewer_id: str = Field(primary_key=True, max_length=NAME_CHARS)
    name: str = Field(max_length=NAME_CHARS)
    role: str = Field(max_length=CODE_CHARS)
    tenants: list[str] | None = Field(default=None, sa_type=_JsonOrNull)
    token_hash: str = Field(max_length=NAME_CHARS)
    public_key: str = Field(max_length=NAME_CHARS)
    created_at: datetime = Field(sa_type=UtcTimestamp)
    disabled_at: datetime | None = Field(default=None, sa_type=UtcTimestamp)


class ConsoleSessionRow(Row, table=True):
    """A reviewer signed in on the page. The cookie's value is kept as a hash, and nothing that could sign for them."""

    __tablename__ = "console_sessions"
    __table_args__ = (Index(None, "expires_at"),)

    session_hash: str = Field(primary_key=True, max_length=NAME_CHARS)
    reviewer_id: str = Field(max_length=NAME_CHARS, foreign_key="reviewers.reviewer_id")
    created_at: datetime = Field(sa_type=UtcTimestamp)
    last_seen_at: datetime = Field(sa_type=UtcTimestamp)
    expires_at: datetime = Field(sa_type=UtcTimestamp)


class TombstoneRow(Row, table=True):
    """What was forgotten, by name and never by text: a row of it that arrives late is not written."""

    __tablename__ = "tombstones"
    __table_args__ = (Index(None, "tenant", "user_id", "what", "subject_id"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True, sa_type=_Sequence)
    tenant: str = Field(max_length=NAME_CHARS)
    user_id: str = Field(max_length=NAME_CHARS)
    what: str = Field(max_length=CODE_CHARS)
    """`principal`, `session`, `record`, `key` (a host's key of a record), `turn`, `answer` (of a turn only that), or
    `review`."""
    subject_id: str = Field(max_length=DERIVED_ID_CHARS)
    """Of the record, session, review, or the decision of the turn; a digest of a host's key; the user's own id for a
    principal."""
    receipt_id: str = Field(max_length=CODE_CHARS)
    forgotten_at: datetime = Field(sa_type=UtcTimestamp)
    """What was said before this is gone; what a principal says later is kept."""


class ForgettingRow(Row, table=True):
    """A forgetting that has begun and has no receipt yet, and what it has removed so far. It goes with the receipt."""

    __tablename__ = "forgettings"
    __table_args__ = (Index(None, "tenant", "user_id", "what", "subject_id"),)

    receipt_id: str = Field(primary_key=True, max_length=CODE_CHARS)
    run_id: str = Field(max_length=CODE_CHARS)
    """Of the workflow run that began it, or took it over from one that gave up."""
    tenant: str = Field(max_length=NAME_CHARS)
    user_id: str = Field(max_length=NAME_CHARS)
    what: str = Field(max_length=CODE_CHARS)
    subject_id: str = Field(max_length=NAME_CHARS)
    actor: str = Field(max_length=NAME_CHARS)
    reason: str = Field(max_length=NAME_CHARS)
    asked_at: datetime = Field(sa_type=UtcTimestamp)
    forgotten_at: datetime = Field(sa_type=UtcTimestamp)
    removed: dict[str, Any] = Field(sa_type=JSON)
    """By surface."""


class ForgetProbeRow(Row, table=True):
    """Exact texts a forgetting looks for afterwards. They go with the transaction that writes its receipt."""

    __tablename__ = "forget_probes"
    __table_args__ = (Index(None, "receipt_id"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True, sa_type=_Sequence)
    receipt_id: str = Field(max_length=CODE_CHARS)
    text: str = Field(sa_type=Text)


class ForgetReceiptRow(Row, table=True):
    """Proof of one forgetting, as one document: counts, names and dates."""

    __tablename__ = "forget_receipts"
    __table_args__ = (Index(None, "tenant", "user_id"), Index(None, "done_at"))

    receipt_id: str = Field(primary_key=True, max_length=CODE_CHARS)
    tenant: str = Field(max_length=NAME_CHARS)
    user_id: str = Field(max_length=NAME_CHARS)
    done_at: datetime = Field(sa_type=UtcTimestamp)
    document: dict[str, Any] = Field(sa_type=JSON)


class SwitchRow(Row, table=True):
    """The last change of one kill switch for one scope; `tenant` is empty for all tenants."""

    __tablename__ = "kill_switches"

    switch: str = Field(primary_key=True, max_length=CODE_CHARS)
    tenant: str = Field(primary_key=True, max_length=NAME_CHARS)
    on: bool
    actor: str = Field(max_length=NAME_CHARS)
    reason: str = Field(sa_type=Text)
    changed_at: datetime = Field(sa_type=UtcTimestamp)
