"""What an extractor reads and proposes: the principal's own turns only, and every proposal names its source."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from retold.contracts._base import Contract, Name, NewRecordText, TurnText, UtcTime
from retold.contracts.record import Entity, RecordId, RecordRef, RecordType, RetrievalCategory
from retold.contracts.stages import ModelUse
from retold.contracts.turn import Principal

EXTRACTION_TURNS_MAX = 50
PROPOSED_RECORDS_MAX = 32


class OwnTurn(Contract):
    """One thing the principal said. Text of assistants, tools and memory has no way into this type's producers."""

    session_id: Name
    turn_id: Name
    turn_ref: str
    text: TurnText
    said_at: UtcTime


class ProposedRecord(Contract):
    """One statement an extractor found. It is stored as provisional, after the host has found the span itself."""

    text: NewRecordText
    type: RecordType = RecordType.SEMANTIC
    subject: Name = "user"
    attribute: Name | None = None
    category: RetrievalCategory = RetrievalCategory.OTHER
    entities: Annotated[tuple[Entity, ...], Field(max_length=32)] = ()
    valid_from: UtcTime | None = None
    valid_until: UtcTime | None = None
    event_at: UtcTime | None = None
    temporary: bool = False
    """Said to hold for a while only, but until when could not be told: never a standing record."""
    turn_ref: str
    span: Annotated[str, Field(min_length=1, max_length=2_000)]
    """The user's own words it rests on, verbatim from that turn."""

    @model_validator(mode="after")
    def _window(self) -> Self:
        if self.valid_from and self.valid_until and self.valid_from >= self.valid_until:
            raise ValueError("valid_until must be later than valid_from")
        return self


class Extraction(Contract):
    proposals: Annotated[tuple[ProposedRecord, ...], Field(max_length=PROPOSED_RECORDS_MAX)] = ()
    extractor: Name
    extractor_version: Name
    usage: tuple[ModelUse, ...] = ()


class ExtractInput(Contract):
    """Read what the principal has said in a session since it was last read."""

    principal: Principal
    session_id: Name
    actor: Name = "retold"


class RefusedProposal(Contract):
    index: int
    why: str
    """Never the text: `span_not_in_own_turn`, `holds_a_secret`, ..."""


class ExtractReport(Contract):
    turns_read: int = 0
    proposed: int = 0
    written: tuple[RecordRef, ...] = ()
    unchanged: int = 0
    refused: tuple[RefusedProposal, ...] = ()
    failed: str | None = None
    """Why the extractor gave nothing usable (timeout, malformed, refused); the session stays due."""

    def followed_by(self, other: ExtractReport) -> ExtractReport:
        """Both rounds as one. A refused proposal keeps its number within its own round."""
        return ExtractReport(
            turns_read=self.turns_read + other.turns_read,
            proposed=self.proposed + other.proposed,
            written=(*self.written, *other.written),
            unchanged=self.unchanged + other.unchanged,
            refused=(*self.refused, *other.refused),
            failed=other.failed,
        )


class ExtractRound(Contract):
    """One round of reading, as the workflow hears of it: ids and counts, no text."""

    report: ExtractReport
    changed: tuple[RecordId, ...] = ()
    """Every record that is different now: their activation is due for evaluation."""
    more: bool = False
    """Something may be left to read."""
    activation_queue: str
