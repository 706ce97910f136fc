"""The extractor of the reference bundle: notes what a hosted model reads in the user's own turns."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from pydantic import BaseModel, ConfigDict, Field

from retold.contracts.extraction import PROPOSED_RECORDS_MAX, Extraction, OwnTurn, ProposedRecord
from retold.contracts.record import RecordType, RetrievalCategory
from retold.contracts.stages import Stage
from retold.policy.activation.evidence import span_of_same_words
from retold.policy.ports import MalformedReplyError, Message
from retold.policy.prompts import json_line, new_delimiter, template_version
from retold.policy.reference.activation_prompts import EXTRACTOR_SYSTEM, EXTRACTOR_USER
from retold.policy.reference.parsing import read_decision
from retold.policy.reference.port import OutputSchema, StructuredCompletion

EXTRACTOR = "retold.reference.extractor"
_CLOSED = ConfigDict(frozen=True, json_schema_extra={"additionalProperties": False})
_SLUG = re.compile(r"[a-z][a-z0-9_]{0,63}")


class Note(BaseModel):
    model_config = _CLOSED

    message: int
    quote: str = Field(min_length=1, max_length=2_000)
    text: str = Field(min_length=1, max_length=2_000)
    type: str
    attribute: str | None
    category: str
    until: str | None
    temporary: bool


class Notes(BaseModel):
    """What the extractor is asked to answer. Further keys a model adds are not read."""

    model_config = _CLOSED

    notes: list[Note]


def _schema() -> OutputSchema:
    """The provider is told what there is to choose from; reading decides what a wrong choice means."""
    schema = Notes.model_json_schema()
    note = schema["$defs"]["Note"]["properties"]
    note["type"]["enum"] = [each.value for each in RecordType]
    note["category"]["enum"] = [each.value for each in RetrievalCategory]
    return OutputSchema(name="notes", description="What is worth remembering about the user.", json_schema=schema)


SCHEMA = _schema()


class ReferenceExtractor:
    """Asks a hosted model what the user said that is worth keeping. It sees the given turns and nothing else.

    Args:
        completion: the model, behind its port.
        new_delimiter: draws the name of the block, once a call.
    """

    def __init__(self, completion: StructuredCompletion, *, new_delimiter: Callable[[], str] = new_delimiter) -> None:
        self._completion = completion
        self._new_delimiter = new_delimiter

    @property
    def prompt_version(self) -> str:
        """Hash of every template and of the schema: what the model is sent besides the turns."""
        return template_version(
            [EXTRACTOR_SYSTEM, EXTRACTOR_USER, json.dumps(SCHEMA.json_schema, sort_keys=True), *RetrievalCategory]
        )

    @property
    def identity(self) -> str:
        return f"{EXTRACTOR}/{self._completion.identity}@{self.prompt_version}"

    async def extract(self, turns: Sequence[OwnTurn]) -> Extraction:
        """Propose records. A proposal whose quote is not in its turn is passed on as it is: the host refuses it.

        Raises:
            MalformedReplyError: see `read_decision`; also `unknown_message`, `unknown_type`, `too_many_notes`.
            RefusedByProviderError: see `StructuredCompletion`.
        """
        if not turns:
            return Extraction(extractor=self._name, extractor_version=self.prompt_version)
        delimiter = self._new_delimiter()
        system = EXTRACTOR_SYSTEM.format(
            delimiter=delimiter, categories=", ".join(each.value for each in RetrievalCategory)
        )
        lines = (
            json_line({"number": str(number), "said": turn.text, "day": turn.said_at.date().isoformat()}, delimiter)
            for number, turn in enumerate(turns, 1)
        )
        user = EXTRACTOR_USER.format(messages="\n".join(lines), delimiter=delimiter)
        reply = await self._completion.complete(
            (Message(role="system", content=system), Message(role="user", content=user)), SCHEMA
        )
        notes = read_decision(reply.text, Notes).notes
        if len(notes) > PROPOSED_RECORDS_MAX:
            raise MalformedReplyError("too_many_notes")
        return Extraction(
            proposals=tuple(_proposal(note, turns) for note in notes),
            extractor=self._name,
            extractor_version=self.prompt_version,
            usage=(reply.use(Stage.EXTRACT, self.prompt_version),),
        )

    @property
    def _name(self) -> str:
        return f"{EXTRACTOR}/{self._completion.identity}"[:128]


def _proposal(note: Note, turns: Sequence[OwnTurn]) -> ProposedRecord:
    if not 1 <= note.message <= len(turns):
        raise MalformedReplyError("unknown_message")
    if note.type not in tuple(RecordType):
        raise MalformedReplyError("unknown_type")
    if not note.text.strip() or not note.quote.strip():
        raise MalformedReplyError("empty_note")
    turn = turns[note.message - 1]
    until = _day_after(note.until)
    ended = until is not None and until <= turn.said_at
    return ProposedRecord(
        text=note.text.strip(),
        type=RecordType(note.type),
        attribute=note.attribute if note.attribute and _SLUG.fullmatch(note.attribute) else None,
        category=RetrievalCategory(note.category)
        if note.category in tuple(RetrievalCategory)
        else RetrievalCategory.OTHER,
        valid_until=None if ended else until,
        temporary=note.temporary and (until is None or ended),
        turn_ref=turn.turn_ref,
        span=span_of_same_words(turn.text, note.quote) or note.quote,
    )


def _day_after(day: str | None) -> datetime | None:
    """The end of the named day, UTC; None: no day, or none that can be read (the note is then marked temporary)."""
    if day is None:
        return None
    try:
        return datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC) + timedelta(days=1)
    except (ValueError, OverflowError):
        return None
