"""The review queue as everything else sees it: one method a question or a change, each in one transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from retold.contracts.activation import ActivationDecision
from retold.contracts.record import RecordId, RecordRef
from retold.contracts.review import (
    BacklogState,
    Review,
    ReviewFilter,
    ReviewItem,
    ReviewPage,
    ReviewState,
    ReviewStats,
    ReviewStep,
    SentDecision,
    UnreadableReview,
)
from retold.contracts.turn import Principal
from retold.store import due, review_deciding, review_reading, reviews
from retold.store.engine import Transactions
from retold.store.review_deciding import Decided
from retold.store.review_reading import Assemble
from retold.store.tables import ReviewRow

__all__ = ["Decided", "DueReview", "ReviewDesk"]


@dataclass(frozen=True, kw_only=True)
class DueReview:
    """An open item whose workflow is to be started."""

    review_id: str
    principal: Principal
    record: RecordRef
    owner: str
    reason: str
    opened_at: datetime
    expires_at: datetime


class ReviewDesk:
    """Reviews in the store. Every method raises StoreUnavailableError when the database cannot do what was asked."""

    def __init__(self, transactions: Transactions, assemble: Assemble) -> None:
        self._transactions = transactions
        self._assemble = assemble

    # --- what people look at -----------------------------------------------------------------------------------

    async def page(self, wanted: ReviewFilter, cursor: str | None = None) -> ReviewPage:
        """Items, oldest first unless the filter says otherwise. The count equals what all pages list.

        Raises:
            BadCursorError: the cursor is none that a page gave out.
        """
        return await self._transactions.read(lambda session: review_reading.page(session, wanted, cursor))

    async def item(
        self, review_id: str, at: datetime, *, assemble: Assemble | None = None
    ) -> ReviewItem | UnreadableReview | None:
        """One item with the texts a reviewer needs; None: there is none.

        Args:
            assemble: how the deployment builds a profile; by default with an estimate of tokens.
        """
        build = assemble or self._assemble
        return await self._transactions.read(lambda session: review_reading.item(session, review_id, at, build))

    async def backlog(self, *, bound: int, owner: str, tenants: Sequence[str] | None = None) -> BacklogState:
        return await self._transactions.read(
            lambda session: review_reading.backlog(session, bound=bound, owner=owner, tenants=tenants)
        )

    async def stats(
        self, since: datetime, *, bound: int, owner: str, tenants: Sequence[str] | None = None
    ) -> ReviewStats:
        """What became of the items opened since then (inclusive), and how long people took."""
        return await self._transactions.read(
            lambda session: review_reading.stats(session, since, bound=bound, owner=owner, tenants=tenants)
        )

    # --- what changes an item ----------------------------------------------------------------------------------

    async def open_or_defer(
        self,
        principal: Principal,
        decision: ActivationDecision,
        *,
        owner: str,
        bound: int,
        at: datetime,
        lives_for: timedelta,
        language: str | None = None,
    ) -> Review:
        """See `retold.store.reviews.open_or_defer`, here in a transaction of its own."""
        return await self._transactions.write(
            lambda session: reviews.open_or_defer(
                session,
                principal,
                decision,
                owner=owner,
                bound=bound,
                at=at,
                lives_for=lives_for,
                language=language,
            )
        )

    async def withdraw_for_records(
        self, record_ids: Collection[RecordId], *, at: datetime, actor: str, why: str
    ) -> list[str]:
        """Withdraw what waits about these records; which items."""
        return await self._transactions.write(
            lambda session: reviews.withdraw_for_records(session, record_ids, at=at, actor=actor, why=why)
        )

    async def decide(self, sent: SentDecision, at: datetime) -> Decided:
        """Take a reviewer's decision or refuse it; both are on record when this returns, once however often called."""
        return await self._transactions.write(lambda session: review_deciding.decide(session, sent, at))

    async def step(self, review_id: str, step: ReviewStep, at: datetime, *, notified: bool = True) -> ReviewState:
        """Do what an item's clock asks for, unless it is done or the item has ended; where the item stands now."""
        return await self._transactions.write(
            lambda session: reviews.stepped(session, review_id, step, at, notified=notified)
        )

    async def led_by(self, review_id: str) -> str | None:
        """The id of the decision about the turn in which the principal said it; None: no such item, or no evidence."""
        return await self._transactions.read(lambda session: reviews.led_by(session, review_id))

    # --- what keeps workflows and rows together ----------------------------------------------------------------

    async def admit_deferred(self, *, bound: int, at: datetime) -> list[str]:
        """Open deferred items while there is room, the longest waiting first; which."""
        return await self._transactions.write(lambda session: reviews.admit_deferred(session, bound=bound, at=at))

    async def expire_deferred(self, *, at: datetime) -> list[str]:
        """End up to 100 deferred items whose time is over while there was no room for them; which."""
        return await self._transactions.write(lambda session: reviews.expire_deferred(session, at=at))

    async def now(self) -> datetime:
        """The database's clock, which all workers share."""
        return await self._transactions.read(due.now)

    async def due_to_start(self, *, overdue_before: datetime, limit: int) -> Sequence[DueReview]:
        """Open items without a workflow, and those whose workflow is gone and let their end pass by."""
        return await self._transactions.read(
            lambda session: [
                _due(row) for row in reviews.due_to_start(session, overdue_before=overdue_before, limit=limit)
            ]
        )

    async def due_by_id(self, review_ids: Collection[str]) -> Sequence[DueReview]:
        """Of these items the open ones, whether their workflow was started or not."""
        return await self._transactions.read(
            lambda session: [_due(row) for row in reviews.open_among(session, review_ids)]
        )

    async def due_to_hear(self, limit: int) -> Sequence[str]:
        """Items that ended without their workflow."""
        return await self._transactions.read(lambda session: reviews.due_to_hear(session, limit))

    async def workflows_started(self, review_ids: Collection[str]) -> None:
        await self._mark(review_ids, reviews.RUNNING)

    async def workflows_told(self, review_ids: Collection[str]) -> None:
        await self._mark(review_ids, reviews.TOLD)

    async def _mark(self, review_ids: Collection[str], state: str) -> None:
        def mark(session: Session) -> None:
            reviews.mark_workflow(session, review_ids, state)

        if review_ids:
            await self._transactions.write(mark)


def _due(row: ReviewRow) -> DueReview:
    return DueReview(
        review_id=row.review_id,
        principal=Principal(tenant=row.tenant, user=row.user_id),
        record=RecordRef(id=row.record_id, version=row.record_version),
        owner=row.owner,
        reason=row.reason,
        opened_at=row.opened_at,
        expires_at=row.expires_at,
    )
