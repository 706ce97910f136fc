"""The turn-decision log: one row a turn, its searches, and the texts it refers to, in one transaction (section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Executable, delete
from sqlalchemy.orm import Session
from sqlmodel import col, select

from retold.contracts.decision import TurnDecision, TurnRecord
from retold.contracts.disposition import UNANSWERED, Disposition
from retold.contracts.record import RecordRef
from retold.contracts.stages import SearchEntry, StoredAnswer
from retold.policy.ports import SessionOwnedByAnotherError
from retold.store import sessions, tombstones
from retold.store.engine import JsonText
from retold.store.tables import DecisionRow, SearchRow, SessionTurnRow, table_of
from retold.store.upsert import dialect_of, insert


def record_turn(session: Session, record: TurnRecord) -> StoredAnswer | None:
    record, says = tombstones.as_kept(session, record)
    decision = record.decision
    row = _as_row(decision)
    if not _insert(session, row):
        stored = session.scalars(
            select(DecisionRow).where(col(DecisionRow.decision_id) == decision.decision_id).with_for_update()
        ).one()
        if not _replaces(decision, stored):
            return decided(session, decision.decision_id)
        _remove(session, decision)
        _insert(session, row)
    if says:
        _touch_session(session, decision)
        _write_turns(session, record)
    if record.searches:
        session.execute(_INSERT_SEARCHES, [_as_search_row(decision, entry) for entry in record.searches])
    return None


def decided(session: Session, decision_id: str) -> StoredAnswer | None:
    row = session.get(DecisionRow, decision_id)
    if row is None or row.disposition in UNANSWERED:
        return None
    decision = _as_decision(row)
    answer_ref = decision.final_turn_ref or decision.draft_turn_ref
    answer = None if answer_ref is None else sessions.turn_by_ref(session, answer_ref)
    if answer is None:  # erased since: there is no text left to repeat
        return None
    result = decision.as_result(answer.text)
    return StoredAnswer(request_digest=decision.request_digest, result=result.model_dump(mode="json"))


def decision_by_id(session: Session, decision_id: str) -> TurnDecision | None:
    row = session.get(DecisionRow, decision_id)
    return None if row is None else _as_decision(row)


def list_decisions(
    session: Session,
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
    return [_as_decision(row) for row in session.scalars(newest_first)]


def searches_of(session: Session, decision_id: str) -> Sequence[SearchEntry]:
    rows = session.scalars(
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
    """An answer stays. Over a row without one goes any answer, or a later run of the turn that also had none.

    Rows may arrive late and out of order, so the runs' own times decide, not the order of arrival.
    """
    if stored.disposition not in UNANSWERED:
        return False
    return decision.disposition not in UNANSWERED or decision.at > stored.at


def _remove(session: Session, decision: TurnDecision) -> None:
    principal = decision.principal
    session.execute(delete(SearchRow).where(col(SearchRow.decision_id) == decision.decision_id))
    session.execute(delete(DecisionRow).where(col(DecisionRow.decision_id) == decision.decision_id))
    session.execute(
        delete(SessionTurnRow).where(
            col(SessionTurnRow.tenant) == principal.tenant,
            col(SessionTurnRow.user_id) == principal.user,
            col(SessionTurnRow.session_id) == decision.session_id,
            col(SessionTurnRow.turn_id) == decision.turn_id,
            col(SessionTurnRow.role).in_(("user", "draft", "final")),
        )
    )
    session.expunge_all()


def _write_turns(session: Session, record: TurnRecord) -> None:
    decision = record.decision
    texts: dict[sessions.Role, str] = {"user": record.user_text}
    if record.draft is not None:
        texts["draft"] = record.draft
    if record.final is not None:
        texts["final"] = record.final
    sessions.put_turn(session, decision.principal, decision.session_id, decision.turn_id, texts, decision.at)


def _touch_session(session: Session, decision: TurnDecision) -> None:
    """A turn whose session could not be opened at its time claims it now, if it is still free.

    If it meanwhile belongs to another user the row stays as it is: this turn was accepted and is not lost, and its
    texts carry their own user.
    """
    try:
        sessions.note_turn(session, decision.principal, decision.session_id, decision.at)
    except SessionOwnedByAnotherError:
        return


def _insert(session: Session, row: dict[str, Any]) -> bool:
    """Whether the decision is written now; if not, one of its turn was there."""
    return session.execute(_inserting(dialect_of(session)), row).one_or_none() is not None


@cache
def _inserting(dialect: str) -> Executable:
    table = table_of(DecisionRow)
    return (
        insert(dialect, table)
        .on_conflict_do_nothing(index_elements=[table.c.decision_id])
        .returning(table.c.decision_id)
    )


_INSERT_SEARCHES = table_of(SearchRow).insert()


def _as_row(decision: TurnDecision) -> dict[str, Any]:
    requested = decision.requested_budget_ms
    return {
        "decision_id": decision.decision_id,
        "workflow_id": decision.workflow_id,
        "tenant": decision.principal.tenant,
        "user_id": decision.principal.user,
        "session_id": decision.session_id,
        "turn_id": decision.turn_id,
        "at": decision.at,
        "disposition": decision.disposition.value,
        "reason": decision.reason.value,
        "shadow": decision.shadow,
        "durability": decision.durability.value,
        "redelivered": decision.redelivered,
        "requested_budget": "none" if requested is None else str(requested),
        "effective_budget_ms": decision.effective_budget_ms,
        "draft_latency_ms": decision.draft_latency_ms,
        "bundle_hash": decision.bundle_hash,
        "request_digest": decision.request_digest,
        "trace_id": decision.trace_id,
        "document": JsonText(decision.model_dump_json()),
    }


def _as_search_row(decision: TurnDecision, entry: SearchEntry) -> dict[str, Any]:
    return {
        **entry.model_dump(mode="json"),
        "decision_id": decision.decision_id,
        "tenant": decision.principal.tenant,
        "user_id": decision.principal.user,
        "at": decision.at,
    }


def _as_decision(row: DecisionRow) -> TurnDecision:
    return TurnDecision.model_validate(row.document)
