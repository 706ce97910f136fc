"""A memory record as it is stored, written and referred to (design section 4)."""

from __future__ import annotations

import unicodedata
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from retold.contracts._base import Contract, Name, NewRecordText, RecordText, TurnText, UtcTime, _not_blank, _storable


class RecordType(StrEnum):
    SEMANTIC = "semantic"
    EPISODIC = "episodic"
    PROCEDURAL = "procedural"


class RecordStatus(StrEnum):
    PROVISIONAL = "provisional"
    CONFIRMED = "confirmed"
    SUPERSEDED = "superseded"
    REJECTED = "rejected"
    DELETED = "deleted"


ACTIVE_STATUSES = (RecordStatus.PROVISIONAL, RecordStatus.CONFIRMED)


class Activation(StrEnum):
    CONDITIONAL = "conditional"
    AMBIENT = "ambient"


class RetrievalCategory(StrEnum):
    """The fixed, content-free taxonomy. These labels are all a gap planner may see of what is stored."""

    TIME_ZONE = "time_zone"
    PEOPLE = "people"
    INFRASTRUCTURE = "infrastructure"
    DECISIONS = "decisions"
    CONSTRAINTS = "constraints"
    LIMITS = "limits"
    SCHEDULES = "schedules"
    LOCATIONS = "locations"
    PERSONAL = "personal"
    PREFERENCES = "preferences"
    OTHER = "other"


class Source(StrEnum):
    """Who said it, strongest first: the order decides who wins when statements disagree."""

    PRINCIPAL = "principal"
    HOST = "host"
    IMPORT = "import"
    MODEL = "model"


RecordId = Annotated[str, Field(min_length=1, max_length=64)]


def composed(name: str) -> str:
    """The one form (NFC) in which names that look the same are the same code points."""
    return unicodedata.normalize("NFC", name)


def _composed(value: object) -> object:
    return composed(value) if isinstance(value, str) else value


ComparedName = Annotated[Name, BeforeValidator(_composed)]
"""A name that is compared, to find what a statement is about: taken in the composed form, whose length counts, so that
it is the same however its accents were typed. Case and width are the host's own."""

Entity = Annotated[str, Field(min_length=1, max_length=128)]
EvidenceRef = Annotated[str, Field(max_length=700), AfterValidator(_not_blank), BeforeValidator(_storable)]
"""Where something was said: the `turn_ref` of a stored turn (up to 700 characters), or a name a host gives it."""


class RecordRef(Contract):
    """One version of one record: what travels between stages instead of its text."""

    id: RecordId
    version: Annotated[int, Field(ge=1)]


class MemoryRecord(Contract):
    """One stored record of one principal. `valid_from` is inclusive, `valid_until` exclusive."""

    id: RecordId
    tenant: Name
    user: Name
    scope: Name = "personal"
    type: RecordType
    subject: Name
    """Whom or what the text is about; `user` means the principal."""
    attribute: Name | None = None
    text: RecordText
    status: RecordStatus = RecordStatus.CONFIRMED
    activation: Activation = Activation.CONDITIONAL
    category: RetrievalCategory = RetrievalCategory.OTHER
    conflicting: bool = False
    conflicts_with: tuple[RecordId, ...] = ()
    """The records it disagrees with; none of them is used before somebody says which holds."""
    entities: tuple[Entity, ...] = ()
    valid_from: UtcTime | None = None
    valid_until: UtcTime | None = None
    event_at: UtcTime | None = None
    temporary: bool = False
    """It was said for a time only: while it holds it suspends a standing statement, and it never replaces one."""
    created_at: UtcTime
    suspended_by: RecordId | None = None
    """A temporary statement that holds instead of this one for its time, and never replaces it."""
    suspended_from: UtcTime | None = None
    """Inclusive, as `valid_from`."""
    suspended_until: UtcTime | None = None
    """Exclusive, as `valid_until`."""
    supersedes: RecordId | None = None
    superseded_by: RecordId | None = None
    source: Source = Source.IMPORT
    evidence: tuple[EvidenceRef, ...] = ()
    version: Annotated[int, Field(ge=1)] = 1

    @property
    def ref(self) -> RecordRef:
        return RecordRef(id=self.id, version=self.version)

    @property
    def told_at(self) -> UtcTime:
        """When the text is about: the event's time where known, else when it was stored."""
        return self.event_at or self.created_at

    def is_current(self, at: UtcTime) -> bool:
        """Active, conflict-free, `valid_from <= at < valid_until`, and not suspended at that time."""
        return (
            self.status in ACTIVE_STATUSES
            and not self.conflicting
            and self.superseded_by is None
            and (self.valid_from is None or self.valid_from <= at)
            and (self.valid_until is None or at < self.valid_until)
            and not self.is_suspended(at)
        )

    def is_suspended(self, at: UtcTime) -> bool:
        """A temporary statement holds instead: `suspended_from <= at < suspended_until`."""
        return (
            self.suspended_by is not None
            and (self.suspended_from is None or self.suspended_from <= at)
            and (self.suspended_until is None or at < self.suspended_until)
        )


class RecordWrite(Contract):
    """What an import may write. It cannot set activation, status or version: such a field is refused."""

    kind: Literal["record"] = "record"
    id: Name | None = None
    """The host's own key: the same key with the same text again is a no-op."""
    type: RecordType = RecordType.SEMANTIC
    scope: Name = "personal"
    subject: ComparedName = "user"
    attribute: ComparedName | None = None
    """Names what holds one value at a time, as `home_city` does: a later statement about the same subject and attribute
    replaces an earlier one. Leave it out for what holds many, as `likes` does. Episodes never replace each other."""
    text: NewRecordText
    category: RetrievalCategory = RetrievalCategory.OTHER
    entities: Annotated[tuple[Entity, ...], Field(max_length=32)] = ()
    valid_from: UtcTime | None = None
    valid_until: UtcTime | None = None
    event_at: UtcTime | None = None
    temporary: bool = False
    """Said for a time only, even if nobody said until when. With `valid_until` it is temporary anyway."""
    created_at: UtcTime | None = None
    """When it was said, where that is known; None, or a time still to come: now."""
    source: Literal[Source.HOST, Source.IMPORT] = Source.IMPORT
    evidence: Annotated[tuple[EvidenceRef, ...], Field(max_length=32)] = ()

    @model_validator(mode="after")
    def _window(self) -> Self:
        if self.valid_from and self.valid_until and self.valid_from >= self.valid_until:
            raise ValueError("valid_until must be later than valid_from")
        return self


class TranscriptWrite(Contract):
    """One past turn of a session, as an import line."""

    kind: Literal["turn"]
    session_id: Name
    turn_id: Name
    role: Literal["user", "assistant", "tool"]
    text: TurnText
    at: UtcTime


ImportLine = Annotated[RecordWrite | TranscriptWrite, Field(discriminator="kind")]
