"""Who is signed in on the reviewers' page. A session is a random value in a cookie; here is its hash, and whose it is.

Nothing here can sign a decision: what does never leaves the page's process.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import delete, update
from sqlalchemy.orm import Session
from sqlmodel import col, select

from retold.contracts.review import Reviewer
from retold.store.engine import Transactions
from retold.store.reviewers import as_reviewer
from retold.store.tables import ConsoleSessionRow, ReviewerRow

SEEN_EVERY = timedelta(minutes=1)
"""A session is written at most this often, however many pages it opens: idle time is exact to it."""


class ConsoleSessions:
    """Sessions by hash. Every method raises StoreUnavailableError when the database cannot answer."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def begin(self, session_hash: str, reviewer_id: str, at: datetime, *, expires_at: datetime) -> None:
        """A new session. Those that are over go at the same time."""
        await self._transactions.write(lambda session: _begin(session, session_hash, reviewer_id, at, expires_at))

    async def whose(self, session_hash: str, at: datetime, *, idle: timedelta) -> Reviewer | None:
        """The reviewer as they are now, and the session is in use as of `at`.

        None once it expired (`at >= expires_at`), stood idle for `idle` or longer, or its reviewer was disabled.
        """
        found = await self._transactions.read(lambda session: _whose(session, session_hash, at, idle))
        if found is None:
            return None
        reviewer, last_seen_at = found
        if last_seen_at + SEEN_EVERY <= at:
            await self._transactions.write(lambda session: _seen(session, session_hash, at))
        return reviewer

    async def end(self, session_hash: str) -> None:
        """Forget the session; nothing happens if there is none."""
        await self._transactions.write(lambda session: _end(session, session_hash))


def _begin(session: Session, session_hash: str, reviewer_id: str, at: datetime, expires_at: datetime) -> None:
    session.execute(delete(ConsoleSessionRow).where(col(ConsoleSessionRow.expires_at) <= at))
    session.add(
        ConsoleSessionRow(
            session_hash=session_hash, reviewer_id=reviewer_id, created_at=at, last_seen_at=at, expires_at=expires_at
        )
    )


def _whose(session: Session, session_hash: str, at: datetime, idle: timedelta) -> tuple[Reviewer, datetime] | None:
    found = session.execute(
        select(ConsoleSessionRow, ReviewerRow)
        .join(ReviewerRow, col(ReviewerRow.reviewer_id) == col(ConsoleSessionRow.reviewer_id))
        .where(
            col(ConsoleSessionRow.session_hash) == session_hash,
            col(ConsoleSessionRow.expires_at) > at,
            col(ConsoleSessionRow.last_seen_at) > at - idle,
            col(ReviewerRow.disabled_at).is_(None),
        )
    ).one_or_none()
    return None if found is None else (as_reviewer(found.ReviewerRow), found.ConsoleSessionRow.last_seen_at)


def _seen(session: Session, session_hash: str, at: datetime) -> None:
    session.execute(
        update(ConsoleSessionRow)
        .where(col(ConsoleSessionRow.session_hash) == session_hash, col(ConsoleSessionRow.last_seen_at) < at)
        .values(last_seen_at=at)
    )


def _end(session: Session, session_hash: str) -> None:
    session.execute(delete(ConsoleSessionRow).where(col(ConsoleSessionRow.session_hash) == session_hash))
