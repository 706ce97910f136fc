"""The one place where it is said who may find what. Adapters only translate; what they cannot translate, they refuse.

Every key that is filtered by is in :data:`INDEXED`, every point carries every one of them, and open ends are written
as dates far away: no condition depends on how an engine treats a missing or null value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from retold.contracts.record import ACTIVE_STATUSES, Activation
from retold.contracts.turn import Principal
from retold.index.port import UnfilterableError
from retold.retrieval.ports import Eligibility

# Flags are words: the embedded engine 0.9.0 reads a boolean in a filter as a number and then matches nothing.
YES, NO = "yes", "no"

UNBOUNDED_FROM = datetime.min.replace(tzinfo=UTC)
UNBOUNDED_UNTIL = datetime.max.replace(tzinfo=UTC)


class Key(StrEnum):
    """Payload keys. Those in :data:`INDEXED` are filtered by; the rest come back with a hit."""

    TENANT = "tenant"
    USER = "user"
    SCOPE = "scope"
    STATUS = "status"
    ACTIVATION = "activation"
    CONFLICTING = "conflicting"
    SUPERSEDED = "superseded"
    VALID_FROM = "valid_from"
    VALID_UNTIL = "valid_until"
    SUSPENDED_FROM = "suspended_from"
    SUSPENDED_UNTIL = "suspended_until"
    NAMES = "names"
    RECORD_ID = "record_id"
    VERSION = "version"
    TYPE = "type"
    SUBJECT = "subject"
    TOLD_AT = "told_at"
    SKETCH = "sketch"


class IndexKind(StrEnum):
    TENANT = "tenant"
    KEYWORD = "keyword"
    TIME = "time"


INDEXED: Mapping[Key, IndexKind] = {
    Key.TENANT: IndexKind.TENANT,
    Key.USER: IndexKind.KEYWORD,
    Key.SCOPE: IndexKind.KEYWORD,
    Key.STATUS: IndexKind.KEYWORD,
    Key.ACTIVATION: IndexKind.KEYWORD,
    Key.CONFLICTING: IndexKind.KEYWORD,
    Key.SUPERSEDED: IndexKind.KEYWORD,
    Key.VALID_FROM: IndexKind.TIME,
    Key.VALID_UNTIL: IndexKind.TIME,
    Key.SUSPENDED_FROM: IndexKind.TIME,
    Key.SUSPENDED_UNTIL: IndexKind.TIME,
    Key.NAMES: IndexKind.KEYWORD,
}


@dataclass(frozen=True, slots=True)
class Is:
    """The value under `key` is exactly this."""

    key: Key
    value: str


@dataclass(frozen=True, slots=True)
class IsOneOf:
    """The value under `key`, or one of its values, is exactly one of these."""

    key: Key
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotAfter:
    """The time under `key` is at or before `at`."""

    key: Key
    at: datetime


@dataclass(frozen=True, slots=True)
class After:
    """The time under `key` is after `at`."""

    key: Key
    at: datetime


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one of these holds."""

    conditions: tuple[After | NotAfter, ...]


Condition = Is | IsOneOf | NotAfter | After | AnyOf
Filter = tuple[Condition, ...]
"""All of the conditions hold."""


def owned_by(principal: Principal) -> Filter:
    """Everything of one principal, matched exactly.

    Raises:
        UnfilterableError: a blank tenant or user.
    """
    for field, name in (("tenant", principal.tenant), ("user", principal.user)):
        if not name.strip():
            raise UnfilterableError(f"{field} is blank: a search belongs to exactly one principal")
    return (Is(Key.TENANT, principal.tenant), Is(Key.USER, principal.user))


def findable(eligible: Eligibility) -> Filter:
    """What a search may find: this principal's, in these scopes, active, undisputed, conditional, and valid and not
    suspended at `at`.

    Raises:
        UnfilterableError: a blank name, no scope, or a time without a zone.
    """
    if not eligible.scopes or not all(scope.strip() for scope in eligible.scopes):
        raise UnfilterableError("scopes must name at least one scope, none of them blank")
    if eligible.at.tzinfo is None:
        raise UnfilterableError("at must carry a time zone")
    return (
        *owned_by(eligible.principal),
        IsOneOf(Key.SCOPE, eligible.scopes),
        IsOneOf(Key.STATUS, tuple(status.value for status in ACTIVE_STATUSES)),
        Is(Key.ACTIVATION, Activation.CONDITIONAL.value),
        Is(Key.CONFLICTING, NO),
        Is(Key.SUPERSEDED, NO),
        NotAfter(Key.VALID_FROM, eligible.at),
        After(Key.VALID_UNTIL, eligible.at),
        AnyOf((After(Key.SUSPENDED_FROM, eligible.at), NotAfter(Key.SUSPENDED_UNTIL, eligible.at))),
    )


def carrying(names: Sequence[str]) -> Filter:
    """Records that carry one of the names.

    Raises:
        UnfilterableError: no name.
    """
    if not names:
        raise UnfilterableError("a search by name needs a name")
    return (IsOneOf(Key.NAMES, tuple(names)),)


def utc_text(at: datetime) -> str:
    """RFC 3339 in UTC with microseconds and Z: the one spelling of times in payloads and filters."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")
