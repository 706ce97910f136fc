"""What the page asks of the rest of Retold: reading the queue, knowing a reviewer, sending a decision.

`StoreDesk` (in `serving`) is the real one; unit tests of the page put one in memory in its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from retold.contracts.record import RecordId
from retold.contracts.review import (
    BacklogState,
    RefusedDecision,
    ReviewDecision,
    Reviewer,
    ReviewFilter,
    ReviewItem,
    ReviewPage,
    ReviewStats,
    ReviewStatus,
    UnreadableReview,
)


class DecisionRefusedError(Exception):
    """The decision was not taken. `said` is for the reviewer; the item as it is now says the rest."""

    def __init__(self, why: RefusedDecision, said: str) -> None:
        super().__init__(why.value)
        self.why = why
        self.said = said


class DecisionNotSentError(Exception):
    """Temporal could not be reached: nothing was decided."""


class DecisionUnknownError(Exception):
    """It was sent, and nobody answered in time: it may still be taken. Sent again, it counts once."""


class Sessions(Protocol):
    """Who is signed in. A session is known by the hash of what its cookie holds."""

    async def begin(self, session_hash: str, reviewer_id: str, at: datetime, *, expires_at: datetime) -> None: ...

    async def whose(self, session_hash: str, at: datetime, *, idle: timedelta) -> Reviewer | None:
        """The reviewer as they are now; None: the session is unknown, over, or stood idle, or they were disabled."""

    async def end(self, session_hash: str) -> None: ...


class Desk(Protocol):
    async def ping(self) -> None:
        """Return when the queue can be read."""

    async def authenticate(self, token: str) -> Reviewer | None:
        """Whose token it is; None for an unknown one and for a disabled reviewer alike."""

    async def page(self, wanted: ReviewFilter, cursor: str | None = None) -> ReviewPage:
        """One page of the queue.

        Raises:
            ValueError: the cursor is none of ours.
        """

    async def rules(self, ids: Sequence[RecordId]) -> Mapping[RecordId, str]:
        """The texts of these records as they are now; erased ones are left out."""

    async def item(self, review_id: str, now: datetime) -> ReviewItem | UnreadableReview | None: ...

    async def backlog(self, tenants: Sequence[str] | None) -> BacklogState: ...

    async def stats(self, since: datetime, tenants: Sequence[str] | None) -> ReviewStats: ...

    async def decide(self, decision: ReviewDecision) -> ReviewStatus:
        """Send a signed decision; what the item has become.

        Raises:
            DecisionRefusedError: it was not taken.
            DecisionNotSentError: Temporal is out of reach.
            DecisionUnknownError: it was sent, and nobody answered.
        """
