"""The turn-decision log: one row a turn, its searches, and the texts it refers to, in one transaction (section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col, select

from retold.contracts.decision import TurnDecision, TurnRecord
from retold.contracts.disposition import Disposition
from retold.contracts.record import RecordRef
from retold.contracts.stages import SearchEntry, StoredAnswer
from retold.contracts.turn import TurnResult
from retold.policy.ports import SessionOwnedByAnotherError
from retold.store import sessions
from retold.store.tables import DecisionRow, SearchRow, SessionTurnRow

UNANSWERED = (Disposition.FAILED.value, Disposition.CANCELLED.value)
"""How a turn ends without an answer. A later run of the same turn may replace such a row, and no other."""


async def record_turn(session: AsyncSession, record: TurnRecord) -> None:
    decision = record.decision
    stored = await session.scalar(
        select(DecisionRow).where(col(DecisionRow.decision_id) == decision.decision_id).with_for_update()
    )
    if stored is not None:
        if not _replaces(decision, stored):
            return
        await _remove(session, decision)
    await _touch_session(session, decision)
    await _write_turns(session, record)
    session.add(_as_row(decision))
    await session.flush()  # the searches refer to it
    session.add_all(_as_search_row(decision, entry) for entry in record.searches)


async def decided(session: AsyncSession, decision_id: str) -> StoredAnswer | None:
    row = await session.get(DecisionRow, decision_id)
    if row is None or row.disposition in UNANSWERED:
        return None
    decision = _as_decision(row)
    answer_ref = decision.final_turn_ref or decision.draft_turn_ref
    answer = None if answer_ref is None else await sessions.turn_by_ref(session, answer_ref)
    if answer is None:  # erased since: there is no text left to repeat
        return None
    result = TurnResult(
        decision_id=decision.decision_id,
        request_digest=decision.request_digest,
        answer=answer.text,
        disposition=decision.disposition,
        reason=decision.reason,
        delivered=decision.applied,
        shadow=decision.shadow,
        redelivered=decision.redelivered,
        durability=decision.durability,
        effective_budget_ms=decision.effective_budget_ms,
        timings_ms=decision.timings_ms(),
    )
    return StoredAnswer(request_digest=decision.request_digest, result=result.model_dump(mode="json"))


async def decision_by_id(session: AsyncSession, decision_id: str) -> TurnDecision | None:
    row = await session.get(DecisionRow, decision_id)
    return None if row is None else _as_decision(row)


async def list_decisions(
    session: AsyncSession,
    *,
    tenant: str | None,
    user: str | None,
    session_id: str | None,
    disposition: Disposition | None,
    before: datetime | None,
    limit: int,
) -> Sequence[TurnDecision]:
    query = select(DecisionRow)
    if tenant is not None:
        query = query.where(col(DecisionRow.tenant) == tenant)
    if user is not None:
        query = query.where(col(DecisionRow.user_id) == user)
    if session_id is not None:
        query = query.where(col(DecisionRow.session_id) == session_id)
    if disposition is not None:
        query = query.where(col(DecisionRow.disposition) == disposition.value)
    if before is not None:
        query = query.where(col(DecisionRow.at) < before)
    newest_first = query.order_by(col(DecisionRow.at).desc(), col(DecisionRow.decision_id)).limit(limit)
    return [_as_decision(row) for row in await session.scalars(newest_first)]


async def searches_of(session: AsyncSession, decision_id: str) -> Sequence[SearchEntry]:
    rows = await session.scalars(
        select(SearchRow)
        .where(col(SearchRow.decision_id) == decision_id)
        .order_by(col(SearchRow.gap_index), col(SearchRow.search_id))
    )
    return [
        SearchEntry(
            search_id=row.search_id,
            gap_index=row.gap_index,
            query=row.query,
            generated=row.generated,
            dropped=row.dropped,
            kept=tuple(RecordRef.model_validate(ref) for ref in row.kept),
            elapsed_ms=row.elapsed_ms,
        )
        for row in rows
    ]


def _replaces(decision: TurnDecision, stored: DecisionRow) -> bool:
    """An answer stays. Over a row without one goes any answer, or a later run that also had none.

    Rows may arrive late and out of order, so the runs' own times decide, not the order of arrival.
    """
    if stored.disposition not in UNANSWERED:
        return False
    return decision.disposition.value not in UNANSWERED or decision.at > stored.at


async def _remove(session: AsyncSession, decision: TurnDecision) -> None:
    principal = decision.principal
    await session.execute(delete(SearchRow).where(col(SearchRow.decision_id) == decision.decision_id))
    await session.execute(delete(DecisionRow).where(col(DecisionRow.decision_id) == decision.decision_id))
    await session.execute(
        delete(SessionTurnRow).where(
            col(SessionTurnRow.tenant) == principal.tenant,
            col(SessionTurnRow.user_id) == principal.user,
            col(SessionTurnRow.session_id) == decision.session_id,
            col(SessionTurnRow.turn_id) == decision.turn_id,
            col(SessionTurnRow.role).in_(("user", "draft", "final")),
        )
    )
    session.expunge_all()


async def _write_turns(session: AsyncSession, record: TurnRecord) -> None:
    decision = record.decision
    texts: dict[sessions.Role, str] = {"user": record.user_text}
    if record.draft is not None:
        texts["draft"] = record.draft
    if record.final is not None:
        texts["final"] = record.final
    await sessions.put_turn(session, decision.principal, decision.session_id, decision.turn_id, texts, decision.at)


async def _touch_session(session: AsyncSession, decision: TurnDecision) -> None:
    """A turn whose session could not be opened at its time claims it now, if it is still free.

    If it meanwhile belongs to another user the row stays as it is: this turn was accepted and is not lost, and its
    texts carry their own user.
    """
    try:
        await sessions.note_turn(session, decision.principal, decision.session_id, decision.at)
    except SessionOwnedByAnotherError:
        return


def _as_row(decision: TurnDecision) -> DecisionRow:
    requested = decision.requested_budget_ms
    return DecisionRow(
        decision_id=decision.decision_id,
        workflow_id=decision.workflow_id,
        tenant=decision.principal.tenant,
        user_id=decision.principal.user,
        session_id=decision.session_id,
        turn_id=decision.turn_id,
        at=decision.at,
        disposition=decision.disposition.value,
        reason=decision.reason.value,
        shadow=decision.shadow,
        durability=decision.durability.value,
        redelivered=decision.redelivered,
        requested_budget="none" if requested is None else str(requested),
        effective_budget_ms=decision.effective_budget_ms,
        draft_latency_ms=decision.draft_latency_ms,
        bundle_hash=decision.bundle_hash,
        request_digest=decision.request_digest,
        trace_id=decision.trace_id,
        document=decision.model_dump(mode="json"),
    )


def _as_search_row(decision: TurnDecision, entry: SearchEntry) -> SearchRow:
    return SearchRow(
        search_id=entry.search_id,
        decision_id=decision.decision_id,
        tenant=decision.principal.tenant,
        user_id=decision.principal.user,
        gap_index=entry.gap_index,
        query=entry.query,
        generated=entry.generated,
        dropped=entry.dropped,
        kept=[ref.model_dump(mode="json") for ref in entry.kept],
        elapsed_ms=entry.elapsed_ms,
        at=decision.at,
    )


def _as_decision(row: DecisionRow) -> TurnDecision:
    return TurnDecision.model_validate(row.document)
