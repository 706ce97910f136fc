"""What every contract shares: frozen, closed to unknown fields, and plain about why it refuses an input."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from retold.contracts.secrets import find_secret

NAME_MAX_CHARS = 128
TURN_TEXT_MAX_CHARS = 32_000
CONTEXT_MAX_CHARS = 64_000
RECORD_TEXT_MAX_CHARS = 4_000
QUERY_MAX_CHARS = 400


class Contract(BaseModel):
    """A value that crosses a process boundary. Frozen; an unknown field is refused, never ignored.

    Persisted payloads are contracts too: later versions may only add optional fields with defaults.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


def _storable(value: object) -> object:
    """Refuse text that some part of the path (UTF-8, SQL, Qdrant) could not carry unchanged."""
    if isinstance(value, str):
        if "\x00" in value:
            raise ValueError("must not contain the NUL character (U+0000)")
        try:
            value.encode()  # far cheaper than a look at each character, and every text of a turn comes through here
        except UnicodeEncodeError:
            raise ValueError("must not contain lone surrogates (U+D800 to U+DFFF): send valid Unicode") from None
    return value


_UNSEEN = ("Cc", "Cf", "Zs", "Zl", "Zp")
"""Categories of characters that show nothing by themselves: controls, zero-width ones, spaces."""


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty or blank")
    return value


def _shows_something(value: str) -> str:
    if all(unicodedata.category(char) in _UNSEEN for char in value):  # ends at the first that is seen
        raise ValueError("must not be empty or blank")
    return value


def _aware_utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("must carry a time zone (for example 2026-01-31T12:00:00Z)")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("must lie within the years 1 to 9999 in UTC") from None


Name = Annotated[str, Field(max_length=NAME_MAX_CHARS), AfterValidator(_not_blank), BeforeValidator(_storable)]
"""An opaque identifier chosen by a host: 1 to 128 characters, not blank, any character but NUL."""


def without_secret(value: str) -> str:
    """The reason as it was given.

    Raises:
        ValueError: it seems to hold a secret; the message names its kind, never its value.
    """
    if (kind := find_secret(value)) is not None:
        raise ValueError(f"seems to hold a secret ({kind}); it would be kept in the audit trail: say why without it")
    return value


AuditedReason = Annotated[Name, AfterValidator(without_secret)]
"""Why somebody does it, kept in the audit trail: 1 to 128 characters, not blank, without a secret."""

TurnText = Annotated[str, Field(max_length=TURN_TEXT_MAX_CHARS), AfterValidator(_not_blank), BeforeValidator(_storable)]
"""What the user said: 1 to 32,000 characters, not blank."""

AnswerText = Annotated[
    str, Field(max_length=TURN_TEXT_MAX_CHARS), AfterValidator(_not_blank), BeforeValidator(_storable)
]
"""A draft or a final answer: 1 to 32,000 characters, not blank."""

ContextText = Annotated[str, Field(max_length=CONTEXT_MAX_CHARS), BeforeValidator(_storable)]
"""Public context (what the host shows the model anyway): at most 64,000 characters."""

RecordText = Annotated[
    str, Field(max_length=RECORD_TEXT_MAX_CHARS), AfterValidator(_not_blank), BeforeValidator(_storable)
]
"""The text of one record: 1 to 4,000 characters, not blank."""

NewRecordText = Annotated[RecordText, AfterValidator(_shows_something)]
"""As it may be written: not of invisible characters only. What is stored stays readable, whatever it is."""

Query = Annotated[str, Field(max_length=QUERY_MAX_CHARS), AfterValidator(_not_blank), BeforeValidator(_storable)]
"""A gap's retrieval query: 1 to 400 characters, not blank."""

UtcTime = Annotated[datetime, AfterValidator(_aware_utc)]
"""An aware time, kept in UTC. A naive time is refused."""

Milliseconds = Annotated[float, Field(ge=0)]
