"""Forgetting for good, and the receipt that says what was removed where (design section 4)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from retold.contracts._base import Contract, Name, UtcTime
from retold.contracts.turn import Principal


class ForgetRecord(Contract):
    what: Literal["record"] = "record"
    record_id: Name


class ForgetSession(Contract):
    what: Literal["session"] = "session"
    session_id: Name


class ForgetPrincipal(Contract):
    what: Literal["principal"] = "principal"


ForgetTarget = Annotated[ForgetRecord | ForgetSession | ForgetPrincipal, Field(discriminator="what")]


class ForgetInput(Contract):
    principal: Principal
    target: ForgetTarget
    actor: Name
    reason: Name


class Surface(StrEnum):
    """Everywhere text of a principal can be. The receipt has a line for each."""

    RECORDS = "records"
    SESSION_TURNS = "session_turns"
    PROFILES = "profiles"
    DECISIONS = "decisions"
    SEARCH_LOG = "search_log"
    AUDIT = "audit"
    INDEX_OUTBOX = "index_outbox"
    REVIEWS = "reviews"
    EVIDENCE = "evidence"
    INDEX = "index"
    """Vectors, payloads and the lexical leg of the search index."""
    OPEN_WORKFLOWS = "open_workflows"
    CLOSED_WORKFLOWS = "closed_workflows"


class SurfaceReceipt(Contract):
    """What was found and removed on one surface, and whether reading it back by exact text found anything."""

    surface: Surface
    removed: Annotated[int, Field(ge=0)]
    """Rows, points or executions erased or blanked."""
    read_back: Annotated[int, Field(ge=0)]
    """Exact texts looked for afterwards."""
    left: Annotated[int, Field(ge=0)]
    """Of those, how many were still found. A receipt is only issued with 0 everywhere."""


class UnreachableArchive(Contract):
    """A place that was not, and cannot be, erased from here: a backup, an export, a namespace's archive."""

    name: Name
    kept_until: UtcTime | None = None
    note: str = ""


class ForgetReceipt(Contract):
    """Proof of one forgetting. It holds counts, names and dates, never text."""

    receipt_id: Name
    principal: Principal
    what: Literal["record", "session", "principal"]
    subject_id: Name | None = None
    actor: Name
    reason: Name
    asked_at: UtcTime
    done_at: UtcTime
    surfaces: tuple[SurfaceReceipt, ...]
    archives: tuple[UnreachableArchive, ...] = ()
