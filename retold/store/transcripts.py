"""What principals said themselves, for those who look for statements in it; and which sessions are still to be read.

Only turns of the role `user`, in sessions of this principal, and of those only the user's own words: what memory, a
tool or the assistant had said before is blanked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import ColumnElement, exists, or_, update
from sqlalchemy.orm import Session
from sqlmodel import col, select
from sqlmodel.sql.expression import SelectOfScalar

from retold.contracts.extraction import EXTRACTION_TURNS_MAX, OwnTurn, RefusedProposal
from retold.contracts.lifecycle import LifecycleReport
from retold.contracts.record import ACTIVE_STATUSES, Activation, RecordId, RecordStatus, RecordWrite, Source
from retold.contracts.turn import Principal
from retold.policy.extraction import Accepted, Kept, Standing, UnreadTurns
from retold.policy.own_words import Heard, own_words, plain, says_something
from retold.store.changes import Changes, make_conditional, random_id
from retold.store.engine import Transactions
from retold.store.records import owned_by
from retold.store.remembering import remember
from retold.store.tables import RecordRow, SessionRow, SessionTurnRow
from retold.store.writing import Manner

USER = "user"
_OTHERS = ("assistant", "draft", "final", "tool")
_EARLIER_TEXTS = 200
"""How many texts of others a turn is compared with at least: the latest before it."""

_STANDING = 100
"""How many standing instructions are compared with what is said: a profile shows the latest eight of them."""

_REMEMBERED = 2_000
"""With how many of the principal's latest records a proposal is compared."""


class Transcripts:
    """Implements `Transcripts` of `retold.policy.extraction`, and says which sessions are due. One transaction each."""

    def __init__(self, transactions: Transactions, new_id: Callable[[], str] = random_id) -> None:
        self._transactions = transactions
        self._new_id = new_id

    async def own_turns(
        self, principal: Principal, session_id: str, since: datetime | None = None
    ) -> Sequence[OwnTurn]:
        """Everything the principal said in the session after `since` (exclusive), oldest first."""
        return await self._transactions.read(lambda session: own_turns(session, principal, session_id, since))

    async def unread(self, principal: Principal, session_id: str) -> UnreadTurns | None:
        """The next turns to read; None: everything in the session has been read."""
        return await self._transactions.read(lambda session: unread_turns(session, principal, session_id))

    async def remembered(self, principal: Principal) -> Collection[str]:
        """Texts of the principal's live records, each as `own_words.plain` gives it."""
        return await self._transactions.read(lambda session: remembered(session, principal))

    async def standing(self, principal: Principal) -> Sequence[Standing]:
        """The principal's ambient records, the latest 100."""
        return await self._transactions.read(lambda session: standing(session, principal))

    async def keep(
        self,
        principal: Principal,
        session_id: str,
        accepted: Sequence[Accepted],
        until: datetime,
        *,
        taken_back: Sequence[RecordId] = (),
        actor: str,
        by: str,
        at: datetime,
    ) -> Kept:
        """Write the proposals as provisional records, what was taken back, and that the session is read up to
        `until`."""

        def body(session: Session) -> Kept:
            kept = keep(session, principal, session_id, accepted, until, actor=actor, by=by, at=at, new_id=self._new_id)
            undone = take_back(session, principal, taken_back, actor=actor, at=at)
            return replace(kept, changed=tuple(dict.fromkeys((*kept.changed, *undone))))

        return await self._transactions.write(body)

    async def due_sessions(self, *, idle_since: datetime, limit: int) -> Sequence[tuple[Principal, str]]:
        """Sessions with unread turns that have ended, or were last seen before `idle_since`; longest waiting first."""
        return await self._transactions.read(lambda session: due_sessions(session, idle_since=idle_since, limit=limit))

    async def is_due(self, principal: Principal, session_id: str) -> bool:
        """Whether the principal has said something in the session that is still to be read."""
        return await self.unread(principal, session_id) is not None


def own_turns(
    session: Session, principal: Principal, session_id: str, since: datetime | None = None
) -> Sequence[OwnTurn]:
    """Everything the principal said in the session after `since` (exclusive), oldest first."""
    said = select(SessionTurnRow).where(*_said_by(principal), col(SessionTurnRow.session_id) == session_id)
    if since is not None:
        said = said.where(col(SessionTurnRow.at) > since)
    return _own(session, principal, session.scalars(_in_order(said)).all())


def unread_turns(session: Session, principal: Principal, session_id: str) -> UnreadTurns | None:
    """The next turns to read, at most 50; more only if they were said at the same instant. None: all is read.

    Turns of one instant stay together: the mark that is moved afterwards is a time.
    """
    read = session.scalar(
        select(SessionRow.extracted_until).where(
            col(SessionRow.tenant) == principal.tenant,
            col(SessionRow.session_id) == session_id,
            col(SessionRow.user_id) == principal.user,
        )
    )
    unread = select(SessionTurnRow).where(*_said_by(principal), col(SessionTurnRow.session_id) == session_id)
    if read is not None:
        unread = unread.where(col(SessionTurnRow.at) > read)
    rows = session.scalars(_in_order(unread).limit(EXTRACTION_TURNS_MAX + 1)).all()
    if not rows:
        return None
    if len(rows) > EXTRACTION_TURNS_MAX:
        cut = rows[-1].at
        earlier = [row for row in rows if row.at < cut]
        rows = earlier or session.scalars(_in_order(unread.where(col(SessionTurnRow.at) == cut))).all()
    return UnreadTurns(_own(session, principal, rows), rows[-1].at)


def latest_own_turns(session: Session, principal: Principal, *, named: Sequence[str], limit: int) -> Sequence[OwnTurn]:
    """The turns a record names as its evidence, and the newest others up to `limit` in all, oldest first.

    Args:
        named: turn references, or the turn ids of a host; what is neither is no turn.
    """
    said = select(SessionTurnRow).where(*_said_by(principal))
    newest_first = (col(SessionTurnRow.at).desc(), col(SessionTurnRow.id).desc())
    found: dict[str, SessionTurnRow] = {}
    if named:
        by_name = or_(col(SessionTurnRow.id).in_(named), col(SessionTurnRow.turn_id).in_(named))
        found = {row.id: row for row in session.scalars(said.where(by_name).order_by(*newest_first).limit(limit))}
    for row in session.scalars(said.order_by(*newest_first).limit(limit)):
        if len(found) >= limit:
            break
        found.setdefault(row.id, row)
    return _own(session, principal, sorted(found.values(), key=lambda row: (row.at, row.id)))


def mark_read(session: Session, principal: Principal, session_id: str, until: datetime) -> None:
    """Everything the principal said in the session up to `until` has been read; never less than before."""
    session.execute(
        update(SessionRow)
        .where(
            col(SessionRow.tenant) == principal.tenant,
            col(SessionRow.session_id) == session_id,
            col(SessionRow.user_id) == principal.user,
            or_(col(SessionRow.extracted_until).is_(None), col(SessionRow.extracted_until) < until),
        )
        .values(extracted_until=until)
    )


def due_sessions(session: Session, *, idle_since: datetime, limit: int) -> Sequence[tuple[Principal, str]]:
    """Sessions in which something unread was said, and that have ended or were last seen before `idle_since`.

    The longest waiting first.
    """
    row, turn = SessionRow, SessionTurnRow
    unread = exists().where(
        col(turn.tenant) == col(row.tenant),
        col(turn.user_id) == col(row.user_id),
        col(turn.session_id) == col(row.session_id),
        col(turn.role) == USER,
        or_(col(row.extracted_until).is_(None), col(turn.at) > col(row.extracted_until)),
    )
    found = session.execute(
        select(row.tenant, row.user_id, row.session_id)
        .where(
            or_(col(row.ended_at).is_not(None), col(row.last_seen_at) < idle_since),
            # Cheap, and true of every session that was read to its end: the index is asked about the others only.
            or_(col(row.extracted_until).is_(None), col(row.extracted_until) < col(row.last_seen_at)),
            unread,
        )
        .order_by(col(row.last_seen_at))
        .limit(limit)
    )
    return [(Principal(tenant=tenant, user=user), session_id) for tenant, user, session_id in found]


def remembered(session: Session, principal: Principal) -> Collection[str]:
    texts = session.scalars(
        select(RecordRow.text)
        .where(owned_by(principal), col(RecordRow.status).in_([status.value for status in ACTIVE_STATUSES]))
        .order_by(col(RecordRow.created_at).desc())
        .limit(_REMEMBERED)
    )
    return frozenset(plain(text) for text in texts)


def standing(session: Session, principal: Principal) -> Sequence[Standing]:
    rows = session.scalars(
        select(RecordRow)
        .where(owned_by(principal), col(RecordRow.activation) == Activation.AMBIENT.value)
        .order_by(col(RecordRow.created_at).desc(), col(RecordRow.id))
        .limit(_STANDING)
    )
    return [Standing(row.id, row.text, row.created_at) for row in rows]


def take_back(
    session: Session, principal: Principal, record_ids: Collection[RecordId], *, actor: str, at: datetime
) -> Collection[RecordId]:
    """Their user does not want these always on any more; which of them were. What becomes of them is decided anew."""
    if not record_ids:
        return ()
    changes = Changes(session, principal, actor=actor, reason="the user takes it back", at=at)
    for row in changes.rows(col(RecordRow.id).in_(record_ids)):
        with changes.changing(row, "record.taken_back"):
            make_conditional(row)
    changes.close()
    return changes.touched


def keep(
    session: Session,
    principal: Principal,
    session_id: str,
    accepted: Sequence[Accepted],
    until: datetime,
    *,
    actor: str,
    by: str,
    at: datetime,
    new_id: Callable[[], str],
) -> Kept:
    """Write through the one path every record takes, then move the mark: both, or neither."""
    kept = Kept()
    for source in (Source.MODEL, Source.PRINCIPAL):
        some = [each for each in accepted if each.source is source]
        if some:
            manner = Manner(
                created="record.extracted",
                revised="record.revised",
                status=RecordStatus.PROVISIONAL,
                source=source,
                said_now=False,
            )
            changes = Changes(session, principal, actor=actor, reason=f"extracted by {by}", at=at, new_id=new_id)
            kept = _with(kept, some, remember(changes, [_write(each) for each in some], manner))
    mark_read(session, principal, session_id, until)
    return kept


def _write(accepted: Accepted) -> RecordWrite:
    proposal = accepted.proposal
    said = proposal.model_dump(exclude={"turn_ref", "span"})
    return RecordWrite(**said, created_at=accepted.said_at, evidence=(proposal.turn_ref,))


def _with(kept: Kept, accepted: Sequence[Accepted], report: LifecycleReport) -> Kept:
    outcomes = report.outcomes
    return Kept(
        written=(*kept.written, *(o.ref for o in outcomes if o.disposition == "written" and o.ref is not None)),
        unchanged=kept.unchanged + sum(o.disposition == "unchanged" for o in outcomes),
        refused=(
            *kept.refused,
            *(
                RefusedProposal(index=accepted[o.index].index, why=o.message or "refused")
                for o in outcomes
                if o.disposition == "refused"
            ),
        ),
        changed=tuple(dict.fromkeys((*kept.changed, *report.changed))),
    )


def _said_by(principal: Principal) -> tuple[ColumnElement[bool], ...]:
    return (
        col(SessionTurnRow.tenant) == principal.tenant,
        col(SessionTurnRow.user_id) == principal.user,
        col(SessionTurnRow.role) == USER,
    )


def _own(session: Session, principal: Principal, rows: Sequence[SessionTurnRow]) -> Sequence[OwnTurn]:
    said_to_them = _SaidToThem(session, principal, rows)
    turns = []
    for row in rows:
        text = own_words(row.text, said_to_them.before(row))
        if says_something(text):
            turns.append(
                OwnTurn(session_id=row.session_id, turn_id=row.turn_id, turn_ref=row.id, text=text, said_at=row.at)
            )
    return turns


class _SaidToThem:
    """What others said to the principal, as `own_words` compares it.

    One query a session, for turns that follow each other; a turn far before the others of its session has its own.
    """

    def __init__(self, session: Session, principal: Principal, rows: Sequence[SessionTurnRow]) -> None:
        self._session = session
        self._principal = principal
        self._texts: dict[str, list[tuple[datetime, Heard]]] = {}
        self._cut: set[str] = set()
        by_session: dict[str, list[SessionTurnRow]] = {}
        for row in rows:
            by_session.setdefault(row.session_id, []).append(row)
        for session_id, turns in by_session.items():
            limit = _EARLIER_TEXTS + 3 * len(turns)
            self._texts[session_id] = self._latest(session_id, max(turn.at for turn in turns), limit)
            if len(self._texts[session_id]) == limit:
                self._cut.add(session_id)

    def before(self, row: SessionTurnRow) -> Sequence[Heard]:
        """The latest of them before this turn, in order."""
        earlier = [said for at, said in self._texts[row.session_id] if at < row.at]
        if row.session_id in self._cut and len(earlier) < _EARLIER_TEXTS:
            earlier = [said for _, said in self._latest(row.session_id, row.at, _EARLIER_TEXTS)]
        return earlier

    def _latest(self, session_id: str, before: datetime, limit: int) -> list[tuple[datetime, Heard]]:
        said = self._session.execute(
            select(SessionTurnRow.at, SessionTurnRow.text)
            .where(
                col(SessionTurnRow.tenant) == self._principal.tenant,
                col(SessionTurnRow.user_id) == self._principal.user,
                col(SessionTurnRow.session_id) == session_id,
                col(SessionTurnRow.role).in_(_OTHERS),
                col(SessionTurnRow.at) < before,
            )
            .order_by(col(SessionTurnRow.at).desc())
            .limit(limit)
        )
        return [(at, Heard.of(text)) for at, text in reversed(said.all())]


def _in_order(said: SelectOfScalar[SessionTurnRow]) -> SelectOfScalar[SessionTurnRow]:
    return said.order_by(col(SessionTurnRow.at), col(SessionTurnRow.id))
