"""Reviewers: known people with a role, and what verifies that it is they who decide."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.orm import Session
from sqlmodel import col, select

from retold.contracts.review import ReviewDecision, Reviewer, ReviewerRole
from retold.contracts.turn import Principal
from retold.credentials import MalformedTokenError, ReviewerCredential, is_signed_by
from retold.store import audit
from retold.store.engine import Transactions
from retold.store.tables import ReviewerRow

OPERATORS = Principal(tenant="retold", user="operators")
"""Under whom the audit trail keeps what is nobody's memory."""


class ReviewerExistsError(ValueError):
    """Somebody has this id. An id is never given again, so that the audit trail names one person."""


class UnknownReviewerError(LookupError):
    """There is no such reviewer."""


class Reviewers:
    """The register of reviewers. Every method raises StoreUnavailableError when the database cannot answer."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def register(
        self,
        reviewer_id: str,
        name: str,
        role: ReviewerRole,
        *,
        tenants: Sequence[str] | None = None,
        actor: str,
        at: datetime,
    ) -> tuple[Reviewer, str]:
        """Add a person; they and their token. The token is nowhere else: show it once.

        Args:
            tenants: whose items they may see and decide; None: all.

        Raises:
            ReviewerExistsError: the id is taken, also if its holder is disabled.
            pydantic.ValidationError: a name is blank or too long.
        """
        credential = ReviewerCredential.issue(reviewer_id)
        reviewer = Reviewer(
            reviewer_id=reviewer_id,
            name=name,
            role=role,
            tenants=None if tenants is None else tuple(tenants),
            public_key=credential.public_key,
            created_at=at,
        )
        await self._transactions.write(lambda session: _add(session, reviewer, credential.token_hash, actor))
        return reviewer, credential.token

    async def disable(self, reviewer_id: str, *, actor: str, reason: str, at: datetime) -> Reviewer:
        """From now on their token opens nothing and their signature decides nothing. Again: no change.

        Raises:
            UnknownReviewerError: there is nobody of this id.
        """
        return await self._transactions.write(lambda session: _disable(session, reviewer_id, actor, reason, at))

    async def list(self) -> Sequence[Reviewer]:
        """Everybody, disabled people too, by id."""
        return await self._transactions.read(_all)

    async def authenticate(self, token: str) -> Reviewer | None:
        """Whose token this is; None: nobody's, or a disabled person's."""
        try:
            credential = ReviewerCredential.of(token)
        except MalformedTokenError:
            return None
        return await self._transactions.read(lambda session: _holder(session, credential))

    async def verify(self, decision: ReviewDecision) -> Reviewer | None:
        """Who signed this decision; None: not the person it names. Whether they may decide is another question."""
        found = await self._transactions.read(lambda session: known(session, decision.reviewer_id))
        return found if found is not None and is_signed_by(found.public_key, decision) else None


def known(session: Session, reviewer_id: str) -> Reviewer | None:
    row = session.get(ReviewerRow, reviewer_id)
    return None if row is None else as_reviewer(row)


def _add(session: Session, reviewer: Reviewer, token_hash: str, actor: str) -> None:
    if session.get(ReviewerRow, reviewer.reviewer_id) is not None:
        raise ReviewerExistsError(f"there is a reviewer {reviewer.reviewer_id!r}: an id is given once, choose another")
    fields = reviewer.model_dump()
    tenants = None if reviewer.tenants is None else list(reviewer.tenants)
    session.add(ReviewerRow(**{**fields, "role": reviewer.role.value, "tenants": tenants, "token_hash": token_hash}))
    _audited(session, reviewer, "reviewer.registered", actor, reviewer.created_at, "")
    session.flush()


def _disable(session: Session, reviewer_id: str, actor: str, reason: str, at: datetime) -> Reviewer:
    row = session.scalar(select(ReviewerRow).where(col(ReviewerRow.reviewer_id) == reviewer_id).with_for_update())
    if row is None:
        raise UnknownReviewerError(f"there is no reviewer {reviewer_id!r}")
    if row.disabled_at is None:
        row.disabled_at = at
        _audited(session, as_reviewer(row), "reviewer.disabled", actor, at, reason)
    return as_reviewer(row)


def _all(session: Session) -> Sequence[Reviewer]:
    return [as_reviewer(row) for row in session.scalars(select(ReviewerRow).order_by(col(ReviewerRow.reviewer_id)))]


def _holder(session: Session, credential: ReviewerCredential) -> Reviewer | None:
    row = session.get(ReviewerRow, credential.reviewer_id)
    if row is None or row.disabled_at is not None or not hmac.compare_digest(row.token_hash, credential.token_hash):
        return None
    return as_reviewer(row)


def _audited(session: Session, reviewer: Reviewer, event: str, actor: str, at: datetime, reason: str) -> None:
    after = {
        "role": reviewer.role.value,
        "tenants": None if reviewer.tenants is None else list(reviewer.tenants),
        "disabled": reviewer.disabled_at is not None,
    }
    subject = ("reviewer", reviewer.reviewer_id)
    audit.append(
        session, audit.row(OPERATORS, at=at, actor=actor, event=event, subject=subject, after=after, reason=reason)
    )


def as_reviewer(row: ReviewerRow) -> Reviewer:
    return Reviewer.model_validate(row.model_dump(exclude={"token_hash"}))
