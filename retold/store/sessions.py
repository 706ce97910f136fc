"""Sessions: who owns one, the profile block it was given, when it ended, and what was said in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Literal

from sqlalchemy import Executable, bindparam, case, null, update
from sqlalchemy.orm import Session
from sqlmodel import col, select

from retold.contracts._base import Contract, Name, UtcTime
from retold.contracts.identity import turn_ref
from retold.contracts.stages import EMPTY_PROFILE, ProfileBlock
from retold.contracts.turn import Principal
from retold.policy.ports import SessionOwnedByAnotherError
from retold.store import audit, tombstones
from retold.store.engine import JsonText
from retold.store.tables import SessionRow, SessionTurnRow, table_of
from retold.store.upsert import dialect_of, insert

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


_sessions = table_of(SessionRow)

_KEEP_PROFILE = (
    update(_sessions)
    .where(
        _sessions.c.tenant == bindparam("of_tenant"),
        _sessions.c.session_id == bindparam("of_session"),
        _sessions.c.user_id == bindparam("of_user"),
        _sessions.c.profile.is_(None),
        _sessions.c.ended_at.is_(None),
    )
    .values(profile=bindparam("profile"))
    .returning(_sessions.c.session_id)
)


class SessionNotOpenError(LookupError):
    """The principal has no such session: open it first."""


def claim(session: Session, principal: Principal, session_id: str, at: datetime) -> ProfileBlock | None:
    """Make the session the principal's, if it is nobody's yet; its profile, if it has one. An ended one starts again.

    Raises:
        SessionOwnedByAnotherError: another user of the tenant owns it.
    """
    profile = _touch(session, principal, session_id, at, reopen=True)
    return None if profile is None else ProfileBlock.model_validate(profile)


def note_turn(session: Session, principal: Principal, session_id: str, at: datetime) -> None:
    """Like `claim`, for something that already happened: a session that ended meanwhile stays ended.

    Raises:
        SessionOwnedByAnotherError: another user of the tenant owns it.
    """
    _touch(session, principal, session_id, at, reopen=False)


def keep_profile(session: Session, principal: Principal, session_id: str, profile: ProfileBlock) -> ProfileBlock:
    if tombstones.forgotten_records(session, principal, (ref.id for ref in profile.records)):
        # While it was assembled. The next turn assembles another one.
        stored = _owned(session, principal, session_id).profile
        return EMPTY_PROFILE if stored is None else ProfileBlock.model_validate(stored)
    kept = session.execute(
        _KEEP_PROFILE,
        {
            "of_tenant": principal.tenant,
            "of_user": principal.user,
            "of_session": session_id,
            "profile": JsonText(profile.model_dump_json()),
        },
    )
    if kept.one_or_none() is not None:
        return profile
    row = _owned(session, principal, session_id)
    if row.profile is None:
        # It ended while the block was being built: this turn may use it, the next session gets its own.
        return profile
    return ProfileBlock.model_validate(row.profile)


def forget_profile(session: Session, principal: Principal, session_id: str) -> None:
    session.execute(
        update(SessionRow)
        .where(
            col(SessionRow.tenant) == principal.tenant,
            col(SessionRow.session_id) == session_id,
            col(SessionRow.user_id) == principal.user,
        )
        .values(profile=None)
    )


def end_session(session: Session, principal: Principal, session_id: str, at: datetime, actor: str) -> None:
    row = _owned(session, principal, session_id)
    if row.ended_at is None:
        audit.append(session, _end(row, at, event="session.ended", actor=actor))


def expire_idle(session: Session, before: datetime, at: datetime, limit: int, actor: str) -> int:
    """End up to `limit` sessions last seen before `before`, of every tenant; how many were ended."""
    idle = (
        session.scalars(
            select(SessionRow)
            .where(col(SessionRow.ended_at).is_(None), col(SessionRow.last_seen_at) < before)
            .order_by(col(SessionRow.last_seen_at))
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
    ).all()
    audit.append(session, *(_end(row, at, event="session.expired", actor=actor) for row in idle))
    return len(idle)


def put_turn(
    session: Session,
    principal: Principal,
    session_id: str,
    turn_id: str,
    texts: Mapping[Role, str],
    at: datetime,
) -> None:
    """Store the texts of a turn by role; what the turn already has under a role is replaced."""
    session.execute(
        _put_turns(dialect_of(session)),
        [
            {
                "id": turn_ref(principal, session_id, turn_id, role),
                "tenant": principal.tenant,
                "user_id": principal.user,
                "session_id": session_id,
                "turn_id": turn_id,
                "role": role,
                "text": text,
                "at": at,
            }
            for role, text in texts.items()
        ],
    )


def turn_by_ref(session: Session, ref: str) -> SessionTurn | None:
    row = session.get(SessionTurnRow, ref)
    return None if row is None else _as_turn(row)


def turns_of(session: Session, principal: Principal, session_id: str) -> Sequence[SessionTurn]:
    rows = session.scalars(
        select(SessionTurnRow).where(
            col(SessionTurnRow.tenant) == principal.tenant,
            col(SessionTurnRow.user_id) == principal.user,
            col(SessionTurnRow.session_id) == session_id,
        )
    )
    turns = [_as_turn(row) for row in rows]
    return sorted(turns, key=lambda turn: (turn.at, turn.turn_id, _ORDER_IN_TURN[turn.role]))


def _touch(
    session: Session, principal: Principal, session_id: str, at: datetime, *, reopen: bool
) -> dict[str, Any] | None:
    """Have the session, made if there is none, last seen at `at` or later, in one statement; its profile as stored."""
    touched = session.execute(
        _touching(dialect_of(session), reopen),
        {
            "tenant": principal.tenant,
            "session_id": session_id,
            "user_id": principal.user,
            "started_at": at,
            "last_seen_at": at,
        },
    ).one_or_none()
    if touched is None:
        raise _owned_by_another(session_id)
    profile: dict[str, Any] | None = touched.profile
    return profile


@cache
def _touching(dialect: str, reopen: bool) -> Executable:
    new = insert(dialect, _sessions)
    seen, now, read = _sessions.c.last_seen_at, new.excluded.last_seen_at, _sessions.c.extracted_until
    return new.on_conflict_do_update(
        index_elements=[_sessions.c.tenant, _sessions.c.session_id],
        set_={
            "last_seen_at": case((now > seen, now), else_=seen),
            # A turn that comes in late would lie before the mark and never be read: the session is read again.
            "extracted_until": case((read >= now, null()), else_=read),
            **({"ended_at": None} if reopen else {}),
        },
        where=_sessions.c.user_id == new.excluded.user_id,
    ).returning(_sessions.c.profile)


@cache
def _put_turns(dialect: str) -> Executable:
    table = table_of(SessionTurnRow)
    new = insert(dialect, table)
    return new.on_conflict_do_update(
        index_elements=[table.c.id], set_={"text": new.excluded.text, "at": new.excluded.at}
    )


def _owned(session: Session, principal: Principal, session_id: str) -> SessionRow:
    row = _locked(session, principal.tenant, session_id)
    if row is None:
        raise SessionNotOpenError(f"no session {session_id!r} of this user: open it first")
    _require_owner(row, principal)
    return row


def _require_owner(row: SessionRow, principal: Principal) -> None:
    if row.user_id != principal.user:
        raise _owned_by_another(row.session_id)


def _owned_by_another(session_id: str) -> SessionOwnedByAnotherError:
    return SessionOwnedByAnotherError(f"session {session_id!r} belongs to another user of this tenant")


def _locked(session: Session, tenant: str, session_id: str) -> SessionRow | None:
    row: SessionRow | None = session.scalar(
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
