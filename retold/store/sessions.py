"""Sessions: who owns one, the profile block it was given, when it ended, and what was said in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col, select

from retold.contracts._base import Contract, Name, UtcTime
from retold.contracts.identity import turn_ref
from retold.contracts.stages import ProfileBlock
from retold.contracts.turn import Principal
from retold.policy.ports import SessionOwnedByAnotherError
from retold.store import audit
from retold.store.tables import SessionRow, SessionTurnRow

Role = Literal["user", "tool", "draft", "assistant", "final"]
_ORDER_IN_TURN: dict[str, int] = {"user": 0, "tool": 1, "draft": 2, "assistant": 3, "final": 4}


class SessionTurn(Contract):
    """One text of one turn, as stored."""

    ref: str
    principal: Principal
    session_id: Name
    turn_id: Name
    role: Role
    text: str
    at: UtcTime


class SessionNotOpenError(LookupError):
    """The principal has no such session: open it first."""


async def claim(session: AsyncSession, principal: Principal, session_id: str, at: datetime) -> ProfileBlock | None:
    """Make the session the principal's, if it is nobody's yet; its profile, if it has one. An ended one starts again.

    Raises:
        SessionOwnedByAnotherError: another user of the tenant owns it.
    """
    row = await note_turn(session, principal, session_id, at)
    row.ended_at = None
    return None if row.profile is None else ProfileBlock.model_validate(row.profile)


async def note_turn(session: AsyncSession, principal: Principal, session_id: str, at: datetime) -> SessionRow:
    """Like `claim`, for something that already happened: a session that ended meanwhile stays ended.

    Raises:
        SessionOwnedByAnotherError: another user of the tenant owns it.
    """
    row = await _locked(session, principal.tenant, session_id)
    if row is None:
        row = await _create(session, principal, session_id, at)
    _require_owner(row, principal)
    row.last_seen_at = max(row.last_seen_at, at)
    return row


async def keep_profile(
    session: AsyncSession, principal: Principal, session_id: str, profile: ProfileBlock
) -> ProfileBlock:
    row = await _owned(session, principal, session_id)
    if row.ended_at is not None:
        # It ended while the block was being built: this turn may use it, the next session gets its own.
        return profile
    if row.profile is None:
        row.profile = profile.model_dump(mode="json")
    return ProfileBlock.model_validate(row.profile)


async def forget_profile(session: AsyncSession, principal: Principal, session_id: str) -> None:
    await session.execute(
        update(SessionRow)
        .where(
            col(SessionRow.tenant) == principal.tenant,
            col(SessionRow.session_id) == session_id,
            col(SessionRow.user_id) == principal.user,
        )
        .values(profile=None)
    )


async def end_session(session: AsyncSession, principal: Principal, session_id: str, at: datetime, actor: str) -> None:
    row = await _owned(session, principal, session_id)
    if row.ended_at is None:
        await audit.append(session, _end(row, at, event="session.ended", actor=actor))


async def expire_idle(session: AsyncSession, before: datetime, at: datetime, limit: int, actor: str) -> int:
    """End up to `limit` sessions last seen before `before`, of every tenant; how many were ended."""
    idle = (
        await session.scalars(
            select(SessionRow)
            .where(col(SessionRow.ended_at).is_(None), col(SessionRow.last_seen_at) < before)
            .order_by(col(SessionRow.last_seen_at))
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
    ).all()
    await audit.append(session, *(_end(row, at, event="session.expired", actor=actor) for row in idle))
    return len(idle)


async def put_turn(
    session: AsyncSession,
    principal: Principal,
    session_id: str,
    turn_id: str,
    texts: Mapping[Role, str],
    at: datetime,
) -> None:
    """Store the texts of a turn by role; what the turn already has under a role is replaced."""
    refs = {role: turn_ref(principal, session_id, turn_id, role) for role in texts}
    found = await session.scalars(select(SessionTurnRow).where(col(SessionTurnRow.id).in_(refs.values())))
    stored = {row.id: row for row in found}
    for role, text in texts.items():
        if (row := stored.get(refs[role])) is not None:
            row.text, row.at = text, at
            continue
        session.add(
            SessionTurnRow(
                id=refs[role],
                tenant=principal.tenant,
                user_id=principal.user,
                session_id=session_id,
                turn_id=turn_id,
                role=role,
                text=text,
                at=at,
            )
        )


async def turn_by_ref(session: AsyncSession, ref: str) -> SessionTurn | None:
    row = await session.get(SessionTurnRow, ref)
    return None if row is None else _as_turn(row)


async def turns_of(session: AsyncSession, principal: Principal, session_id: str) -> Sequence[SessionTurn]:
    rows = await session.scalars(
        select(SessionTurnRow).where(
            col(SessionTurnRow.tenant) == principal.tenant,
            col(SessionTurnRow.user_id) == principal.user,
            col(SessionTurnRow.session_id) == session_id,
        )
    )
    turns = [_as_turn(row) for row in rows]
    return sorted(turns, key=lambda turn: (turn.at, turn.turn_id, _ORDER_IN_TURN[turn.role]))


async def _create(session: AsyncSession, principal: Principal, session_id: str, at: datetime) -> SessionRow:
    row = SessionRow(
        tenant=principal.tenant, session_id=session_id, user_id=principal.user, started_at=at, last_seen_at=at
    )
    try:
        async with session.begin_nested():
            session.add(row)
    except IntegrityError:  # PostgreSQL: another writer created it between our look and our insert
        winner = await _locked(session, principal.tenant, session_id)
        if winner is None:
            raise
        return winner
    return row


async def _owned(session: AsyncSession, principal: Principal, session_id: str) -> SessionRow:
    row = await _locked(session, principal.tenant, session_id)
    if row is None:
        raise SessionNotOpenError(f"no session {session_id!r} of this user: open it first")
    _require_owner(row, principal)
    return row


def _require_owner(row: SessionRow, principal: Principal) -> None:
    if row.user_id != principal.user:
        raise SessionOwnedByAnotherError(f"session {row.session_id!r} belongs to another user of this tenant")


async def _locked(session: AsyncSession, tenant: str, session_id: str) -> SessionRow | None:
    row: SessionRow | None = await session.scalar(
        select(SessionRow)
        .where(col(SessionRow.tenant) == tenant, col(SessionRow.session_id) == session_id)
        .with_for_update()
    )
    return row


def _end(row: SessionRow, at: datetime, *, event: str, actor: str) -> dict[str, Any]:
    """End the session; the audit event that says so."""
    row.profile = None
    row.ended_at = at
    owner = Principal(tenant=row.tenant, user=row.user_id)
    return audit.row(owner, at=at, actor=actor, event=event, subject=("session", row.session_id))


def _as_turn(row: SessionTurnRow) -> SessionTurn:
    return SessionTurn.model_validate(
        {
            "ref": row.id,
            "principal": Principal(tenant=row.tenant, user=row.user_id),
            **row.model_dump(exclude={"id", "tenant", "user_id"}),
        }
    )
