"""Changes to records, as durable operations: what each takes and what it answers (design section 4)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue, model_validator

from retold.contracts._base import AuditedReason, Contract, Name, NewRecordText, UtcTime
from retold.contracts.record import (
    ComparedName,
    Entity,
    MemoryRecord,
    RecordId,
    RecordRef,
    RecordStatus,
    RecordType,
    RecordWrite,
    RetrievalCategory,
)  # fmt: skip
from retold.contracts.turn import Principal

REMEMBER_MAX_RECORDS = 200
REMEMBER_MAX_BYTES = 1_000_000
"""Of the text of one call: Temporal refuses payloads over 2 MB, again and again."""
READ_MAX_RECORDS = 100
HISTORY_MAX_EVENTS = 500


class RememberInput(Contract):
    """One record or many. `RecordWrite.id` is the idempotency key: the same key with the same text is a no-op."""

    principal: Principal
    records: Annotated[tuple[RecordWrite, ...], Field(min_length=1, max_length=REMEMBER_MAX_RECORDS)]
    actor: Name
    reason: AuditedReason = "remembered"

    @model_validator(mode="after")
    def _fits_a_payload(self) -> RememberInput:
        size = sum(len(record.text.encode()) for record in self.records)
        if size > REMEMBER_MAX_BYTES:
            raise ValueError(f"records: {size} bytes of text; send at most {REMEMBER_MAX_BYTES} at a time")
        return self


class WriteOutcome(Contract):
    """What became of one record of a call."""

    index: Annotated[int, Field(ge=0)]
    disposition: Literal["written", "unchanged", "refused"]
    ref: RecordRef | None = None
    """The stored record; None if refused. It may itself be superseded or suspended: a stronger statement held."""
    superseded: tuple[RecordRef, ...] = ()
    suspended: tuple[RecordRef, ...] = ()
    conflicting: tuple[RecordRef, ...] = ()
    """Records that this one now conflicts with; it is flagged itself too."""
    released: tuple[RecordRef, ...] = ()
    """Records that are no longer suspended by this one, or no longer in conflict with it."""
    field: str | None = None
    message: str | None = None
    """Why it was refused. Never the refused text."""


class LifecycleReport(Contract):
    """Outcomes in the order of the call."""

    outcomes: tuple[WriteOutcome, ...]

    @property
    def changed(self) -> tuple[RecordId, ...]:
        """Every record whose state this call changed: their activation is due for evaluation."""
        ids: dict[RecordId, None] = {}
        for outcome in self.outcomes:
            if outcome.disposition == "written" and outcome.ref is not None:
                others = (*outcome.superseded, *outcome.suspended, *outcome.conflicting, *outcome.released)
                ids |= dict.fromkeys(ref.id for ref in (outcome.ref, *others))
        return tuple(ids)


class RecordChange(Contract):
    """One record of one principal is to change. `expected_version` refuses the change if somebody was faster."""

    principal: Principal
    record_id: Name
    """The record's id, or the host's own key of it."""
    actor: Name
    reason: AuditedReason
    expected_version: Annotated[int, Field(ge=1)] | None = None


class SupersedeInput(RecordChange):
    """Say that `by` replaces the record. Both must be about the same subject and attribute."""

    by: RecordWrite


class CorrectInput(RecordChange):
    """The record was wrong: the same record in new words. What is not given stays."""

    text: NewRecordText
    type: RecordType | None = None
    attribute: ComparedName | None = None
    category: RetrievalCategory | None = None
    entities: Annotated[tuple[Entity, ...], Field(max_length=32)] | None = None
    valid_from: UtcTime | None = None
    valid_until: UtcTime | None = None


class ExpireInput(RecordChange):
    """The record stops being valid at `at` (exclusive); None: now."""

    at: UtcTime | None = None


class RestoreInput(RecordChange):
    """Undo an expiry, a supersession, a rejection or a deletion. What was forgotten has no text to restore."""


class ContradictInput(Contract):
    """Two records disagree. The authority order decides; if it cannot, both are flagged until somebody resolves it."""

    principal: Principal
    record_ids: Annotated[tuple[Name, ...], Field(min_length=2, max_length=2)]
    actor: Name
    reason: AuditedReason

    @model_validator(mode="after")
    def _two(self) -> ContradictInput:
        if self.record_ids[0] == self.record_ids[1]:
            raise ValueError("record_ids: name two different records")
        return self


RecordOperation = RememberInput | SupersedeInput | ContradictInput | CorrectInput | ExpireInput | RestoreInput
"""Every change that answers with a LifecycleReport."""


class ReadRecordsInput(Contract):
    """What is stored about a principal: a page of records, or one record with its history."""

    principal: Principal
    record_id: Name | None = None
    """The record's id, or the host's own key of it. Then only `history` is looked at of the rest."""
    history: bool = False
    """With the record's audited changes."""
    statuses: tuple[RecordStatus, ...] | None = None
    """None: records of any status."""
    subject: ComparedName | None = None
    attribute: ComparedName | None = None
    after: RecordId | None = None
    """The last record of the page before this one."""
    limit: Annotated[int, Field(ge=1, le=READ_MAX_RECORDS)] = 50


class RecordEvent(Contract):
    """One audited change of a record: who, when, from what to what. States and digests, never text."""

    at: UtcTime
    actor: Name
    event: str
    before: dict[str, JsonValue] | None = None
    after: dict[str, JsonValue] | None = None
    reason: str = ""


class RecordPage(Contract):
    records: tuple[MemoryRecord, ...] = ()
    """Oldest first."""
    more: bool = False
    """There are records after the last of these."""
    history: tuple[RecordEvent, ...] = ()
    """Oldest first; of the latest 500."""
