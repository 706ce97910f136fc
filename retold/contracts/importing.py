"""What an import reports back: how much was written, what was there already, and which lines were refused and why."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from retold.contracts._base import Contract
from retold.contracts.record import RecordId

Count = Annotated[int, Field(ge=0)]


class RefusedLine(Contract):
    """One line that was not written. The message never repeats the refused text."""

    index: Count
    """Position of the line in the call, from 0."""
    field: str
    message: str


class ImportReport(Contract):
    """The outcome of one import call. Every line is counted in exactly one of the four."""

    written: Count = 0
    """Records stored for the first time or in a new version."""
    unchanged: Count = 0
    """Records and turns that were already stored as given."""
    turns_written: Count = 0
    refused: tuple[RefusedLine, ...] = ()
    changed: tuple[RecordId, ...] = ()
    """Every record whose state this call changed, those that the written ones superseded included."""
    activation_queue: str | None = None
    """Whose workers evaluate these: only a worker knows how its deployment names its task queues."""
