"""Forgetting for good, and the receipt that says what was removed where (design section 4)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from retold.contracts._base import AuditedReason, Contract, Name, UtcTime
from retold.contracts.turn import Principal


class ForgetRecord(Contract):
    what: Literal["record"] = "record"
    record_id: Name
    """The record's id, or the host's own key of it."""


class ForgetSession(Contract):
    what: Literal["session"] = "session"
    session_id: Name


class ForgetPrincipal(Contract):
    what: Literal["principal"] = "principal"


ForgetTarget = Annotated[ForgetRecord | ForgetSession | ForgetPrincipal, Field(discriminator="what")]


class ForgetInput(Contract):
    """Forget a record, a session, or everything of one principal up to now.

    To forget what is not there is no error and tells nothing: another principal's record looks the same as none, and
    the receipt says that nothing was found.
    """

    principal: Principal
    target: ForgetTarget
    actor: Name
    reason: AuditedReason
    """Kept in the receipt: say why, never what."""

    @property
    def subject_id(self) -> str:
        """The record's or session's id; the user's own for a principal."""
        match self.target:
            case ForgetRecord(record_id=id) | ForgetSession(session_id=id):
                return id
            case _:
                return self.principal.user


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
    """Vectors, payloads and the lexical leg of the search index. Removed: the records it has no point of any more,
    whether this or the follower of the outbox was first."""
    OPEN_WORKFLOWS = "open_workflows"
    CLOSED_WORKFLOWS = "closed_workflows"


class SurfaceReceipt(Contract):
    """What was found and removed on one surface, and whether reading it back by exact text found anything."""

    surface: Surface
    removed: Annotated[int, Field(ge=0)]
    """Rows, points or executions erased or blanked."""
    read_back: Annotated[int, Field(ge=0)]
    """Exact texts looked for afterwards; for workflows, executions looked at."""
    left: Annotated[int, Field(ge=0)]
    """Of those, how many were still found. A receipt is only issued with 0 everywhere."""


class ForgetArchive(Contract):
    """Setting: a place that forgetting cannot reach, and for how long it keeps what it has."""

    name: Name
    kept_for_days: Annotated[int, Field(ge=0)] | None = None
    """None: nobody said."""
    note: str = ""


class UnreachableArchive(Contract):
    """A place that was not, and cannot be, erased from here: a backup, an export, a namespace's archive."""

    name: Name
    kept_until: UtcTime | None = None
    """Not known if None."""
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
    forgotten_at: UtcTime
    """What was said or stored before this is gone; what a principal says later is kept."""
    done_at: UtcTime
    surfaces: tuple[SurfaceReceipt, ...]
    archives: tuple[UnreachableArchive, ...] = ()

    @property
    def found_nothing(self) -> bool:
        """Nothing of it was there: forgotten before, never stored, or another name was meant."""
        return not any(surface.removed for surface in self.surfaces)


# --- between the steps of the workflow: names, times and counts, never text -----------------------------------------


class BeginForgetting(Contract):
    request: ForgetInput
    run_id: str
    """Of the workflow: the step repeated by the same run begins nothing again."""
    asked_at: UtcTime


class Forgetting(Contract):
    """One forgetting under way."""

    receipt_id: Name
    principal: Principal
    what: Literal["record", "session", "principal"]
    subject_id: Name
    forgotten_at: UtcTime


class ReadBack(Contract):
    surfaces: tuple[SurfaceReceipt, ...]

    @property
    def left(self) -> tuple[SurfaceReceipt, ...]:
        return tuple(surface for surface in self.surfaces if surface.left)


class ReceiptFilter(Contract):
    """Which receipts to list, newest first."""

    tenant: Name | None = None
    user: Name | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20
