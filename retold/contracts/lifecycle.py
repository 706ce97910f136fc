"""Changes to records, as durable operations: what each takes and what it answers (design section 4)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from retold.contracts._base import Contract, Name, RecordText, UtcTime
from retold.contracts.record import Entity, RecordId, RecordRef, RecordType, RecordWrite, RetrievalCategory
from retold.contracts.turn import Principal

REMEMBER_MAX_RECORDS = 200


class RememberInput(Contract):
    """One record or many. `RecordWrite.id` is the idempotency key: the same key with the same text is a no-op."""

    principal: Principal
    records: Annotated[tuple[RecordWrite, ...], Field(min_length=1, max_length=REMEMBER_MAX_RECORDS)]
    actor: Name
    reason: Name = "remembered"


class WriteOutcome(Contract):
    """What became of one record of a call."""

    index: Annotated[int, Field(ge=0)]
    disposition: Literal["written", "unchanged", "refused"]
    ref: RecordRef | None = None
    """The stored record; None if refused."""
    superseded: tuple[RecordRef, ...] = ()
    suspended: tuple[RecordRef, ...] = ()
    conflicting: tuple[RecordRef, ...] = ()
    """Records that this one now conflicts with; it is flagged itself too."""
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
                for ref in (outcome.ref, *outcome.superseded, *outcome.suspended, *outcome.conflicting):
                    ids[ref.id] = None
        return tuple(ids)


class RecordChange(Contract):
    """One record of one principal is to change. `expected_version` refuses the change if somebody was faster."""

    principal: Principal
    record_id: Name
    """The record's id, or the host's own key of it."""
    actor: Name
    reason: Name
    expected_version: Annotated[int, Field(ge=1)] | None = None


class SupersedeInput(RecordChange):
    """Say that `by` replaces the record. Both must be about the same subject and attribute."""

    by: RecordWrite


class CorrectInput(RecordChange):
    """The record was wrong: the same record in new words. What is not given stays."""

    text: RecordText
    type: RecordType | None = None
    attribute: Name | None = None
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
    record_ids: tuple[Name, Name]
    actor: Name
    reason: Name

    @model_validator(mode="after")
    def _two(self) -> ContradictInput:
        if self.record_ids[0] == self.record_ids[1]:
            raise ValueError("record_ids: name two different records")
        return self
