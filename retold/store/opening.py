"""Opening a turn: an earlier answer, the session with its profile, and the inventory, in as few statements as it takes.

Most turns belong to a session that is open and was seen a moment ago. Those only read, so that turns that begin
together do not queue for the one writer of SQLite.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from retold.contracts.record import RetrievalCategory
from retold.contracts.stages import ProfileBlock
from retold.contracts.turn import Principal
from retold.policy.ports import OpenedSession
from retold.store import decisions, records, sessions
from retold.store.tables import DecisionRow, SessionRow, table_of

TOUCH_AFTER = timedelta(minutes=5)
"""A session seen this recently is not written when a turn opens: the turn's record will say that it was used.

So a sweep may end a session this much before its idle time is over, but only while a turn of it is under way.
"""

_session, _decision = table_of(SessionRow), table_of(DecisionRow)

_OPEN_SESSION = select(
    _session.c.last_seen_at,
    _session.c.profile,
    select(_decision.c.decision_id)
    .where(_decision.c.decision_id == bindparam("decision_id"))
    .exists()
    .label("recorded"),
).where(
    _session.c.tenant == bindparam("tenant"),
    _session.c.session_id == bindparam("session_id"),
    _session.c.user_id == bindparam("user"),
    _session.c.ended_at.is_(None),
)


def of_open_session(
    session: Session, principal: Principal, session_id: str, decision_id: str, at: datetime, *, want_inventory: bool
) -> OpenedSession | None:
    """The turn's surroundings, if its session is open, was seen lately, and nothing of the turn is recorded yet."""
    found = session.execute(
        _OPEN_SESSION,
        {
            "tenant": principal.tenant,
            "user": principal.user,
            "session_id": session_id,
            "decision_id": decision_id,
        },
    ).one_or_none()
    if found is None or found.recorded or found.last_seen_at < at - TOUCH_AFTER:
        return None
    profile = None if found.profile is None else ProfileBlock.model_validate(found.profile)
    return OpenedSession(profile=profile, inventory=_inventory(session, principal, at, want_inventory))


def claiming(
    session: Session, principal: Principal, session_id: str, decision_id: str, at: datetime, *, want_inventory: bool
) -> OpenedSession:
    """The same for any session, which is the principal's from now on; or the answer that this turn already has.

    Raises:
        SessionOwnedByAnotherError: another user of the tenant owns it, and this turn has no answer yet.
    """
    if (already := decisions.decided(session, decision_id)) is not None:
        return OpenedSession(already=already)
    profile = sessions.claim(session, principal, session_id, at)
    return OpenedSession(profile=profile, inventory=_inventory(session, principal, at, want_inventory))


def _inventory(
    session: Session, principal: Principal, at: datetime, wanted: bool
) -> tuple[RetrievalCategory, ...] | None:
    return tuple(records.inventory(session, principal, at)) if wanted else None
