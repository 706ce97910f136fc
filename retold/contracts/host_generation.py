"""The contract of a host that generates on its own worker, in any language (design section 3.8).

A host names a task queue in its turns' options and serves two activities there, `generate_draft` and `regenerate`.
Both get JSON and answer JSON in exactly these shapes (`retold schema` prints them). Everything else of the turn
stays the service's: planning, retrieval, admission, deadlines and the record.

Field names are a durable contract: later versions may add optional fields, so a host ignores what it does not know.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from retold.contracts._base import AnswerText, ContextText, Contract, Milliseconds, Name, TurnText, UtcTime
from retold.contracts.record import RecordRef
from retold.contracts.stages import StageResult
from retold.contracts.turn import Principal


class HostDraftInput(Contract):
    """Argument of the host's `generate_draft`: answer the user from this and nothing remembered."""

    schema_version: Literal[1] = 1
    principal: Principal
    session_id: Name
    turn_id: Name
    text: TurnText
    public_context: ContextText | None = None
    profile: Annotated[str, Field(max_length=16_000)] = ""
    """Reviewed standing instructions, the same bytes all session long: put it where a prefix cache can hold it."""
    limit_ms: Milliseconds
    deadline_at: UtcTime | None = None
    """An answer after this time is not used."""


class HostRegenerateInput(HostDraftInput):
    """Argument of the host's `regenerate`: the same, plus what memory may add. Change nothing else in the prompt."""

    memory: Annotated[str, Field(min_length=1)]
    """The admitted records, escaped, inside a delimiter drawn for this turn: data for the model, not instructions."""


class HostAnswer(BaseModel):
    """What both activities return. Fields beyond these are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    text: AnswerText
    model: Annotated[str, Field(max_length=200)] = "host"
    prompt_tokens: Annotated[int, Field(ge=0)] = 0
    completion_tokens: Annotated[int, Field(ge=0)] = 0


class AdmittedMemory(StageResult):
    """The admitted records that are still there, as the block a host puts into its prompt."""

    memory: str = ""
    applied: tuple[RecordRef, ...] = ()
    gone: tuple[RecordRef, ...] = ()
