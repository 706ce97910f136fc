"""Forgetting in SQL: begun in one transaction, swept again when everything under way has ended, read back, receipted.

On SQLite what is deleted is overwritten (`PRAGMA secure_delete`), and `settle` rewrites the file. PostgreSQL keeps dead
row versions until VACUUM, and everything in its own write-ahead log and backups: run `VACUUM` on the tables after large
forgettings, and name those archives in `forget_archives` so that receipts list them.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, cast

from sqlalchemy import ColumnElement, and_, delete, func, insert
from sqlalchemy.orm import Session
from sqlmodel import col, select

from retold.contracts.decision import TurnDecision
from retold.contracts.forgetting import (
    BeginForgetting,
    ForgetArchive,
    ForgetReceipt,
    Forgetting,
    Surface,
    SurfaceReceipt,
    UnreachableArchive,
)
from retold.contracts.record import RecordId
from retold.contracts.turn import Principal
from retold.policy.forgetting import Probes
from retold.store import audit, tombstones
from retold.store.changes import hold_principal
from retold.store.engine import Transactions
from retold.store.erasing import Erasure
from retold.store.tables import (
    ActivationRow,
    AuditRow,
    DecisionRow,
    EvidenceRow,
    ForgetProbeRow,
    ForgetReceiptRow,
    ForgettingRow,
    OutboxRow,
    RecordRow,
    ReviewRow,
    SearchRow,
    SessionRow,
    SessionTurnRow,
)

_WORKFLOWS = (Surface.OPEN_WORKFLOWS, Surface.CLOSED_WORKFLOWS)


class NotUnderWayError(LookupError):
    """This forgetting is over: it has its receipt."""


class ForgetLedger:
    """What the steps of a forgetting do in the store. Each is one transaction, and may be repeated."""

    def __init__(self, transactions: Transactions, new_id: Callable[[], str] = lambda: str(uuid.uuid4())) -> None:
        self._transactions = transactions
        self._new_id = new_id

    async def begin(self, asked: BeginForgetting, at: datetime) -> Forgetting:
        """Audit, tombstones, probes, and everything of it gone from SQL, in one transaction.

        One that gave up before is taken over, with its probes.
        """
        return await self._transactions.write(lambda session: begin(session, asked, at, self._new_id))

    async def sweep(self, forgetting: Forgetting, at: datetime) -> Sequence[RecordId]:
        """Erase what came in while it was beginning; the records that are forgotten by it."""
        return await self._transactions.write(lambda session: sweep(session, forgetting, at))

    async def read_back(self, forgetting: Forgetting) -> Mapping[Surface, int]:
        """By surface of SQL: how many of the exact texts, or pending index changes, are still found."""
        return await self._transactions.read(lambda session: read_back(session, forgetting))

    async def texts(self, forgetting: Forgetting) -> Probes:
        """The exact texts to look for. They never leave the worker."""
        return await self._transactions.read(lambda session: Probes(_texts(session, forgetting.receipt_id)))

    async def buried(self, forgetting: Forgetting) -> Mapping[str, frozenset[str]]:
        """What it has forgotten, by name: records, decisions of turns, reviews."""
        return await self._transactions.read(lambda session: tombstones.buried_by(session, forgetting.receipt_id))

    async def living(self, ids: Collection[RecordId]) -> frozenset[RecordId]:
        """Which of these records are stored."""
        return await self._transactions.read(lambda session: living(session, ids))

    async def removed(self, forgetting: Forgetting, surface: Surface, count: int) -> None:
        """Count what was removed elsewhere."""
        if count:
            await self._transactions.write(lambda session: _count(session, forgetting, Counter({surface: count})))

    async def index_followed(self, forgetting: Forgetting, ids: Sequence[RecordId]) -> None:
        """The index has none of these any more: what is pending about them is done."""
        await self._transactions.write(lambda session: index_followed(session, forgetting, ids))

    async def give_up(self, forgetting: Forgetting, left: Sequence[SurfaceReceipt], at: datetime) -> None:
        """Audit that text is still there. Its tombstones stay, and the next request for the same takes over."""
        await self._transactions.write(lambda session: give_up(session, forgetting, left, at))

    async def issue(
        self,
        forgetting: Forgetting,
        looked: Sequence[SurfaceReceipt],
        archives: Sequence[ForgetArchive],
        at: datetime,
    ) -> ForgetReceipt:
        """Store the receipt; in the same transaction the probes go. Issued before, it is the same one."""
        return await self._transactions.write(lambda session: issue(session, forgetting, looked, archives, at))

    async def receipts(self, tenant: str | None, user: str | None, limit: int) -> Sequence[ForgetReceipt]:
        """Newest first."""
        return await self._transactions.read(lambda session: receipts(session, tenant, user, limit))

    async def receipt(self, receipt_id: str) -> ForgetReceipt | None:
        return await self._transactions.read(lambda session: receipt(session, receipt_id))

    async def settle(self) -> None:
        """Have the database file hold what the tables hold, and its write-ahead log nothing.

        Raises:
            StoreUnavailableError: somebody is still reading what was there before.
        """
        await self._transactions.rewrite()


def begin(session: Session, asked: BeginForgetting, at: datetime, new_id: Callable[[], str]) -> Forgetting:
    request, principal = asked.request, asked.request.principal
    row = session.scalar(
        select(ForgettingRow).where(
            col(ForgettingRow.tenant) == principal.tenant,
            col(ForgettingRow.user_id) == principal.user,
            col(ForgettingRow.what) == request.target.what,
            col(ForgettingRow.subject_id) == request.subject_id,
        )
    )
    if row is not None and row.run_id == asked.run_id:
        return _as_forgetting(row)
    if row is None:
        row = ForgettingRow(
            receipt_id=new_id(),
            run_id=asked.run_id,
            tenant=principal.tenant,
            user_id=principal.user,
            what=request.target.what,
            subject_id=request.subject_id,
            actor=request.actor,
            reason=request.reason,
            asked_at=asked.asked_at,
            forgotten_at=at,
            removed={},
        )
        session.add(row)
    else:
        row.run_id, row.forgotten_at = asked.run_id, at
    _audit(session, row, "forget.asked", at)
    if row.what in (tombstones.PRINCIPAL, tombstones.SESSION):
        tombstones.bury(session, principal, row.what, [row.subject_id], row.receipt_id, at)
    session.flush()
    _erase(session, row, at, first=True)
    return _as_forgetting(row)


def sweep(session: Session, forgetting: Forgetting, at: datetime) -> Sequence[RecordId]:
    row = _under_way(session, forgetting)
    _erase(session, row, at, first=False)
    return sorted(tombstones.buried_by(session, row.receipt_id).get(tombstones.RECORD, ()))


def read_back(session: Session, forgetting: Forgetting) -> Mapping[Surface, int]:
    probes = Probes(_texts(session, forgetting.receipt_id))
    ids = tombstones.buried_by(session, forgetting.receipt_id).get(tombstones.RECORD, frozenset())
    left = {surface: len(_found(surface, session, forgetting, probes)) for surface in _VALUES}
    pending = (
        session.scalar(select(func.count()).select_from(OutboxRow).where(_in(OutboxRow.record_id, some))) or 0
        for some in _chunks(ids)
    )
    return {**left, Surface.INDEX_OUTBOX: sum(pending)}


def living(session: Session, ids: Collection[RecordId]) -> frozenset[RecordId]:
    found = (session.scalars(select(RecordRow.id).where(_in(RecordRow.id, some))) for some in _chunks(ids))
    return frozenset(id for some in found for id in some)


def index_followed(session: Session, forgetting: Forgetting, ids: Sequence[RecordId]) -> None:
    gone = 0
    for some in _chunks(ids):
        done = session.execute(
            delete(OutboxRow).where(_in(OutboxRow.record_id, some)).returning(col(OutboxRow.seq))
        ).all()  # fmt: skip
        gone += len(done)
    row = _under_way(session, forgetting)
    row.removed = {**row.removed, Surface.INDEX.value: len(ids)}
    _add(row, Counter({Surface.INDEX_OUTBOX: gone}))


def give_up(session: Session, forgetting: Forgetting, left: Sequence[SurfaceReceipt], at: datetime) -> None:
    row = _under_way(session, forgetting)
    _audit(session, row, "forget.incomplete", at, left={surface.surface.value: surface.left for surface in left})


def issue(
    session: Session,
    forgetting: Forgetting,
    looked: Sequence[SurfaceReceipt],
    archives: Sequence[ForgetArchive],
    at: datetime,
) -> ForgetReceipt:
    if (issued := receipt(session, forgetting.receipt_id)) is not None:
        return issued
    row = _under_way(session, forgetting)
    principal = Principal(tenant=row.tenant, user=row.user_id)
    written = ForgetReceipt(
        receipt_id=row.receipt_id,
        principal=principal,
        what=cast(Literal["record", "session", "principal"], row.what),
        subject_id=None if row.what == tombstones.PRINCIPAL else row.subject_id,
        actor=row.actor,
        reason=row.reason,
        asked_at=row.asked_at,
        forgotten_at=row.forgotten_at,
        done_at=at,
        surfaces=tuple(
            surface.model_copy(update={"removed": row.removed.get(surface.surface.value, 0)}) for surface in looked
        ),
        archives=tuple(
            UnreachableArchive(
                name=archive.name,
                kept_until=None if archive.kept_for_days is None else at + timedelta(days=archive.kept_for_days),
                note=archive.note,
            )
            for archive in archives
        ),
    )
    session.add(
        ForgetReceiptRow(
            receipt_id=row.receipt_id,
            tenant=row.tenant,
            user_id=row.user_id,
            done_at=at,
            document=written.model_dump(mode="json"),
        )
    )
    _audit(session, row, "forget.done", at)
    session.execute(delete(ForgetProbeRow).where(col(ForgetProbeRow.receipt_id) == row.receipt_id))
    session.delete(row)
    return written


def receipts(session: Session, tenant: str | None, user: str | None, limit: int) -> Sequence[ForgetReceipt]:
    query = select(ForgetReceiptRow)
    if tenant is not None:
        query = query.where(col(ForgetReceiptRow.tenant) == tenant)
    if user is not None:
        query = query.where(col(ForgetReceiptRow.user_id) == user)
    newest = query.order_by(col(ForgetReceiptRow.done_at).desc(), col(ForgetReceiptRow.receipt_id)).limit(limit)
    return [ForgetReceipt.model_validate(row.document) for row in session.scalars(newest)]


def receipt(session: Session, receipt_id: str) -> ForgetReceipt | None:
    row = session.get(ForgetReceiptRow, receipt_id)
    return None if row is None else ForgetReceipt.model_validate(row.document)


# --- reading back -----------------------------------------------------------------------------------------------

_VALUES: dict[Surface, Sequence[tuple[type[Any], str, tuple[str, ...]]]] = {
    Surface.RECORDS: [(RecordRow, "created_at", ("text", "subject", "attribute", "entities", "host_key"))],
    Surface.SESSION_TURNS: [(SessionTurnRow, "at", ("text",))],
    Surface.PROFILES: [(SessionRow, "started_at", ("profile",))],
    Surface.DECISIONS: [(DecisionRow, "at", ("document",))],
    Surface.SEARCH_LOG: [(SearchRow, "at", ("query", "generated", "dropped", "kept"))],
    Surface.AUDIT: [(AuditRow, "at", ("before", "after", "reason"))],
    Surface.REVIEWS: [(ReviewRow, "opened_at", ("evidence", "resolution_reason"))],
    Surface.EVIDENCE: [(EvidenceRow, "said_at", ("span",)), (ActivationRow, "decided_at", ("category",))],
}
"""By surface: tables, when a row of it was said, and the columns that can hold a text. A test knows all columns."""


def _found(surface: Surface, session: Session, forgetting: Forgetting, probes: Probes) -> set[str]:
    """The texts that rows from before the forgetting still hold."""
    found: set[str] = set()
    for table, time, columns in _VALUES[surface]:
        said_before = getattr(table, time) < forgetting.forgotten_at
        for row in session.scalars(select(table).where(_scope(session, forgetting, table), said_before)):
            if isinstance(row, AuditRow) and row.event.startswith("forget."):
                continue  # a reason somebody gave for forgetting
            if isinstance(row, SessionRow):
                found |= probes.within(row.profile) - _said_by_living(session, forgetting)
            elif isinstance(row, DecisionRow):
                found |= probes.within_decision(TurnDecision.model_validate(row.document))
            else:
                found |= probes.within(*(getattr(row, column) for column in columns))
    return found


def _scope(session: Session, forgetting: Forgetting, table: type[Any]) -> ColumnElement[bool]:
    """Where a text must not be any more: anywhere of the principal; for a session, in what belongs to it.

    What was said in a session may have been said in another one too, and that one is not forgotten.
    """
    owned = _owned(forgetting.principal, table)
    if forgetting.what != tombstones.SESSION:
        return owned
    buried = tombstones.buried_by(session, forgetting.receipt_id)
    ids = buried.get(tombstones.RECORD, frozenset())
    if table in (SessionTurnRow, DecisionRow, SessionRow):
        return and_(owned, col(table.session_id) == forgetting.subject_id)
    if table is SearchRow:
        of_session = select(DecisionRow.decision_id).where(
            _owned(forgetting.principal, DecisionRow), col(DecisionRow.session_id) == forgetting.subject_id
        )
        return and_(owned, col(SearchRow.decision_id).in_(of_session))
    if table is AuditRow:
        about = {forgetting.subject_id, *ids, *buried.get(tombstones.REVIEW, ())}
        return and_(owned, _in(AuditRow.subject_id, about))
    return and_(owned, _in(RecordRow.id if table is RecordRow else table.record_id, ids))


def _said_by_living(session: Session, forgetting: Forgetting) -> set[str]:
    """A profile made since may hold what the principal has said again."""
    return set(session.scalars(select(RecordRow.text).where(_owned(forgetting.principal, RecordRow))))


# --- the row of a forgetting --------------------------------------------------------------------------------------


def _erase(session: Session, row: ForgettingRow, at: datetime, *, first: bool) -> None:
    hold_principal(session, Principal(tenant=row.tenant, user=row.user_id))
    known = set(_texts(session, row.receipt_id))
    erasure = Erasure(session, row, known, at, first=first)
    erasure.run()
    new = [{"receipt_id": row.receipt_id, "text": text} for text in sorted(Probes(erasure.texts - known).texts)]
    if new:
        session.execute(insert(ForgetProbeRow), new)
    _add(row, erasure.removed)


def _count(session: Session, forgetting: Forgetting, removed: Counter[Surface]) -> None:
    _add(_under_way(session, forgetting), removed)


def _add(row: ForgettingRow, removed: Counter[Surface]) -> None:
    counted = Counter(row.removed)
    counted.update({surface.value: count for surface, count in removed.items() if count})
    row.removed = dict(counted)


def _under_way(session: Session, forgetting: Forgetting) -> ForgettingRow:
    row = session.get(ForgettingRow, forgetting.receipt_id)
    if row is None:
        raise NotUnderWayError(f"forgetting {forgetting.receipt_id} is over")
    return row


def _as_forgetting(row: ForgettingRow) -> Forgetting:
    return Forgetting(
        receipt_id=row.receipt_id,
        principal=Principal(tenant=row.tenant, user=row.user_id),
        what=cast(Literal["record", "session", "principal"], row.what),
        subject_id=row.subject_id,
        forgotten_at=row.forgotten_at,
    )


def _texts(session: Session, receipt_id: str) -> Sequence[str]:
    return list(
        session.scalars(select(ForgetProbeRow.text).where(col(ForgetProbeRow.receipt_id) == receipt_id))
    )  # fmt: skip


def _audit(session: Session, row: ForgettingRow, event: str, at: datetime, **said: Any) -> None:
    audit.append(
        session,
        audit.row(
            Principal(tenant=row.tenant, user=row.user_id),
            at=at,
            actor=row.actor,
            event=event,
            subject=(row.what, row.subject_id),
            after={"receipt_id": row.receipt_id, **said},
            reason=row.reason,
        ),
    )


def _owned(principal: Principal, table: type[Any]) -> ColumnElement[bool]:
    return and_(col(table.tenant) == principal.tenant, col(table.user_id) == principal.user)


def _in(column: Any, values: Iterable[str]) -> ColumnElement[bool]:
    return col(column).in_(sorted(values))


def _chunks(values: Iterable[str], size: int = 500) -> Iterable[list[str]]:
    ordered = sorted(values)
    return (ordered[start : start + size] for start in range(0, len(ordered), size))
