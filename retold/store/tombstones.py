"""What was forgotten, by name: a row of it that arrives late is written without its texts, and no write brings it back.

The rules, for everything that writes:

* A turn of a forgotten principal or session that was said before the forgetting, and a turn that was forgotten by
  itself, leaves a decision without texts. What a principal says later is kept.
* An answer that was written with a forgotten record is not kept, whenever it arrives.
* A host's key of a forgotten record stays taken: the same import file does not bring the record back.
* A statement or an imported turn dated, or asked to be written, before its principal or session was forgotten is
  refused, and so is a record that rests on a turn which is not there any more.
* A statement without a date is made now: it is new, and kept. Digests of texts would refuse it too, and would let
  anybody try what the text had been; so there are none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime

from sqlalchemy import and_, bindparam, insert, or_, select
from sqlalchemy.orm import Session

from retold.contracts.decision import TurnDecision, TurnRecord
from retold.contracts.record import RecordId, RecordWrite, TranscriptWrite
from retold.contracts.turn import Principal
from retold.policy.forgetting import without_query, without_texts
from retold.store.tables import SessionTurnRow, TombstoneRow, table_of

PRINCIPAL, SESSION, RECORD, KEY, TURN, ANSWER, REVIEW = (
    "principal", "session", "record", "key", "turn", "answer", "review",
)  # fmt: skip

_tombstones = table_of(TombstoneRow)
_turns = table_of(SessionTurnRow)

_OWNED = and_(_tombstones.c.tenant == bindparam("tenant"), _tombstones.c.user_id == bindparam("user"))
_OF_TURN = select(_tombstones.c.what, _tombstones.c.forgotten_at).where(
    _OWNED,
    or_(
        _tombstones.c.what == PRINCIPAL,
        and_(_tombstones.c.what == SESSION, _tombstones.c.subject_id == bindparam("session")),
        and_(_tombstones.c.what.in_([TURN, ANSWER]), _tombstones.c.subject_id == bindparam("decision")),
        and_(_tombstones.c.what == RECORD, _tombstones.c.subject_id.in_(bindparam("applied", expanding=True))),
    ),
)
_OF_RECORDS = select(_tombstones.c.subject_id).where(
    _OWNED, _tombstones.c.what == RECORD, _tombstones.c.subject_id.in_(bindparam("ids", expanding=True))
)
_WHAT_WRITES_MEET = select(_tombstones.c.what, _tombstones.c.subject_id, _tombstones.c.forgotten_at).where(
    _OWNED, _tombstones.c.what.in_([PRINCIPAL, SESSION, KEY])
)
_SAID = ("said/", "said-sha256/")
"""How references to stored turns begin."""


def bury(
    session: Session, principal: Principal, what: str, subject_ids: Iterable[str], receipt_id: str, at: datetime
) -> None:
    """Remember by name that these are forgotten."""
    rows = [
        {
            "tenant": principal.tenant,
            "user_id": principal.user,
            "what": what,
            "subject_id": subject_id,
            "receipt_id": receipt_id,
            "forgotten_at": at,
        }
        for subject_id in sorted(set(subject_ids))
    ]
    if rows:
        session.execute(insert(_tombstones), rows)


def buried_by(session: Session, receipt_id: str) -> Mapping[str, frozenset[str]]:
    """What one forgetting has buried, by kind."""
    found: dict[str, set[str]] = {}
    rows = session.execute(
        select(_tombstones.c.what, _tombstones.c.subject_id).where(_tombstones.c.receipt_id == receipt_id)
    )
    for what, subject_id in rows:
        found.setdefault(what, set()).add(subject_id)
    return {what: frozenset(ids) for what, ids in found.items()}


def key_digest(principal: Principal, host_key: str) -> str:
    """Of a host's key, which may be a name. One principal's keys say nothing about another's."""
    named = "\x00".join((principal.tenant, principal.user, host_key))
    return "sha256:" + hashlib.sha256(named.encode()).hexdigest()


def as_kept(session: Session, record: TurnRecord) -> tuple[TurnRecord, bool]:
    """The turn's record as it may be written, and whether its texts may be."""
    decision = record.decision
    whole, answer = _forgotten_of(session, decision)
    if whole:
        return _silent(record), False
    return (record.model_copy(update={"final": None}), True) if answer else (record, True)


def forgotten_records(session: Session, principal: Principal, ids: Iterable[RecordId]) -> frozenset[RecordId]:
    """Which of these records were forgotten."""
    asked = {"tenant": principal.tenant, "user": principal.user, "ids": sorted(set(ids))}
    return frozenset(session.scalars(_OF_RECORDS, asked)) if asked["ids"] else frozenset()


class Forgotten:
    """What one principal's writes may not bring back. Most principals have nothing, and then nothing more is asked."""

    def __init__(self, session: Session, principal: Principal) -> None:
        self._session = session
        self._principal = principal
        self._keys: set[str] = set()
        self._sessions: dict[str, datetime] = {}
        self._everything: datetime | None = None
        for what, subject_id, at in session.execute(
            _WHAT_WRITES_MEET, {"tenant": principal.tenant, "user": principal.user}
        ):
            if what == KEY:
                self._keys.add(subject_id)
            elif what == SESSION:
                self._sessions[subject_id] = max(at, self._sessions.get(subject_id, at))
            else:
                self._everything = max(at, self._everything or at)

    def why_not_record(self, line: RecordWrite, asked_at: datetime) -> tuple[str, str] | None:
        """Field and reason of the refusal; None: the statement may be written.

        Args:
            asked_at: when the write was asked for: one that was under way while its user was forgotten is from before.
        """
        if line.id is not None and self._keys and key_digest(self._principal, line.id) in self._keys:
            return "id", "the record under this id was forgotten; a new statement needs an id of its own"
        if self._everything is not None and min(asked_at, line.created_at or asked_at) < self._everything:
            return (
                "created_at",
                f"this user was forgotten at {self._everything:%Y-%m-%dT%H:%M:%SZ}; this is from before",
            )
        if any(self._rests_on_nothing(ref) for ref in line.evidence):
            return "evidence", "a turn it rests on is not stored, or was forgotten"
        return None

    def why_not_turn(self, line: TranscriptWrite, asked_at: datetime) -> tuple[str, str] | None:
        """Field and reason of the refusal; None: the turn may be written."""
        of_session = self._sessions.get(line.session_id)
        said_at = min(asked_at, line.at)
        times = [at for at in (self._everything, of_session) if at is not None and said_at < at]
        if not times:
            return None
        whose = "this user" if self._everything in times else "this session"
        return "at", f"{whose} was forgotten at {max(times):%Y-%m-%dT%H:%M:%SZ}; this was said before"

    def _rests_on_nothing(self, ref: str) -> bool:
        if not ref.startswith(_SAID) or (self._everything is None and not self._sessions):
            return False
        return self._session.scalar(select(_turns.c.id).where(_turns.c.id == ref)) is None


def _forgotten_of(session: Session, decision: TurnDecision) -> tuple[bool, bool]:
    """Whether the whole turn was forgotten, and whether its answer was."""
    principal = decision.principal
    found = session.execute(
        _OF_TURN,
        {
            "tenant": principal.tenant,
            "user": principal.user,
            "session": decision.session_id,
            "decision": decision.decision_id,
            "applied": [ref.id for ref in decision.applied],
        },
    ).all()
    whole = any(what == TURN or (what in (PRINCIPAL, SESSION) and decision.at < at) for what, at in found)
    return whole, any(what in (ANSWER, RECORD) for what, _ in found)


def _silent(record: TurnRecord) -> TurnRecord:
    return record.model_copy(
        update={
            "decision": without_texts(record.decision),
            "searches": tuple(without_query(search) for search in record.searches),
            "user_text": "(forgotten)",
            "draft": None,
            "final": None,
        }
    )
