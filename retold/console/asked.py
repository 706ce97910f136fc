"""What somebody asked the queue for: the query string of the page, and the filter it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Self
from urllib.parse import urlencode

from retold.contracts._base import NAME_MAX_CHARS
from retold.contracts.activation import ActivationCategory, ActivationReason
from retold.contracts.review import ENDED_REVIEW_STATUSES, OPEN_REVIEW_STATUSES, ReviewFilter, ReviewStatus

PAGE_ITEMS = 50
_ALL = "all"
_ENDED = "ended"


class Age(StrEnum):
    """How long an item has waited, at least."""

    DAY = "1"
    THREE_DAYS = "3"
    WEEK = "7"

    @property
    def length(self) -> timedelta:
        return timedelta(days=int(self.value))


class UnknownFilterError(ValueError):
    """A filter nobody knows. It is refused: a list that ignored it would look like its answer."""


@dataclass(frozen=True)
class Asked:
    """Empty strings do not narrow; without a status it is the open items, oldest first."""

    status: str = ""
    tenant: str = ""
    reason: str = ""
    category: str = ""
    language: str = ""
    age: str = ""
    sort: str = ""

    @classmethod
    def by(cls, query: Mapping[str, str]) -> Self:
        """Read a query string; what it says besides is somebody else's.

        Raises:
            UnknownFilterError: a value that is none of those on offer.
        """
        asked = cls(**{field.name: query.get(field.name, "").strip() for field in fields(cls)})
        _known("status", asked.status, [*ReviewStatus, _ALL, _ENDED])
        _known("reason", asked.reason, list(ActivationReason))
        _known("category", asked.category, list(ActivationCategory))
        _known("age", asked.age, list(Age))
        _known("sort", asked.sort, ["newest"])
        for name in (asked.tenant, asked.language):
            if len(name) > NAME_MAX_CHARS or "\x00" in name:
                raise UnknownFilterError("no tenant and no language has such a name")
        return asked

    def filter(self, tenants: tuple[str, ...] | None, now: datetime, *, limit: int = PAGE_ITEMS) -> ReviewFilter:
        """The same for somebody who may see `tenants` (None: all)."""
        if self.tenant:
            tenants = (self.tenant,) if tenants is None or self.tenant in tenants else ()
        return ReviewFilter(
            statuses=self._statuses(),
            tenants=tenants,
            reason=ActivationReason(self.reason) if self.reason else None,
            category=ActivationCategory(self.category) if self.category else None,
            language=self.language or None,
            opened_before=now - Age(self.age).length if self.age else None,
            newest_first=self.sort == "newest",
            limit=limit,
        )

    def query(self, **more: str) -> str:
        """`?…` for a link to the same view, with more said or (empty) less; empty if there is nothing to say."""
        said = {field.name: getattr(self, field.name) for field in fields(self)} | more
        return "?" + urlencode(kept) if (kept := {name: value for name, value in said.items() if value}) else ""

    def but(self, **changed: str) -> Self:
        return replace(self, **changed)

    @property
    def narrows(self) -> bool:
        """Whether it asks for less than everything that is open."""
        return self.but(sort="") != type(self)()

    @property
    def narrows_beyond_status(self) -> bool:
        """Whether the tabs do not say it all."""
        return self.but(status="") != type(self)() or self.status not in ("", "deferred", _ENDED, _ALL)

    def _statuses(self) -> tuple[ReviewStatus, ...] | None:
        match self.status:
            case "":
                return (ReviewStatus.OPEN,)
            case "all":
                return (*OPEN_REVIEW_STATUSES, *ENDED_REVIEW_STATUSES)
            case "ended":
                return ENDED_REVIEW_STATUSES
            case status:
                return (ReviewStatus(status),)


def _known(name: str, value: str, values: list[str]) -> None:
    if value and value not in values:
        raise UnknownFilterError(f"there is no {name} of that name; choose one from the list")
