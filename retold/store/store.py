"""The store as everything else sees it: one method a question or a change, each in one transaction."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from retold.contracts.bundle import FitnessRecord
from retold.contracts.decision import TurnDecision, TurnRecord
from retold.contracts.disposition import Disposition
from retold.contracts.importing import ImportReport
from retold.contracts.outbox import OutboxEntry
from retold.contracts.record import MemoryRecord, RecordId, RecordRef, RecordWrite, RetrievalCategory, TranscriptWrite
from retold.contracts.stages import ProfileBlock, SearchEntry, StoredAnswer
from retold.contracts.turn import Principal
from retold.policy.ports import OpenedSession
from retold.policy.profile import ProfileAssembler
from retold.store import audit, bundles, decisions, due, opening, profiles, records, sessions
from retold.store.activations import Activations
from retold.store.audit import AuditEvent
from retold.store.changes import Changes
from retold.store.console_sessions import ConsoleSessions
from retold.store.engine import StoreUnavailableError, Transactions
from retold.store.forgetting import ForgetLedger
from retold.store.imports import Importer
from retold.store.index_ledger import IndexLedger
from retold.store.lifecycle import Lifecycle
from retold.store.records import NotEligibleError, RecordNotFoundError
from retold.store.review_desk import ReviewDesk
from retold.store.reviewers import Reviewers
from retold.store.sessions import SessionNotOpenError, SessionTurn
from retold.store.switches import SwitchLedger
from retold.store.tables import Row
from retold.store.transcripts import Transcripts

__all__ = [
    "AuditEvent",
    "NotEligibleError",
    "OutboxEntry",
    "RecordNotFoundError",
    "SessionNotOpenError",
    "SessionTurn",
    "Store",
    "StoreUnavailableError",
]


def _random_id() -> str:
    return str(uuid.uuid4())


class Store(IndexLedger):
    """Implements `TurnStore` and `FitnessLog` of `retold.policy` over SQL, and keeps what the index follows.

    Make one per engine and process.

    Every method raises StoreUnavailableError when the database cannot do what was asked. A caller may give up on any
    call at any time: what has begun by then ends on its own, whole or not at all.
    """

    def __init__(self, engine: Engine, *, new_id: Callable[[], str] = _random_id) -> None:
        super().__init__(Transactions(engine))
        self._new_id = new_id
        self.lifecycle = Lifecycle(self._transactions, new_id)
        self.activations = Activations(self._transactions)
        self.transcripts = Transcripts(self._transactions, new_id)
        self.reviews = ReviewDesk(self._transactions, ProfileAssembler(self).assemble)
        self.reviewers = Reviewers(self._transactions)
        self.console_sessions = ConsoleSessions(self._transactions)
        self.switches = SwitchLedger(self._transactions)
        self.forgetting = ForgetLedger(self._transactions)

    async def close(self) -> None:
        """Release every connection. Later calls raise StoreUnavailableError."""
        await self._transactions.close()

    async def ping(self) -> None:
        """Return when the database answers and its tables are there."""
        await self._transactions.read(_look_at_every_table)

    async def now(self) -> datetime:
        """The database's clock. SQLite has none of its own: it asks this machine's."""
        return await self._transactions.read(due.now)

    # --- what a turn reads and writes (TurnStore) --------------------------------------------------------------

    async def open_turn(
        self, principal: Principal, session_id: str, decision_id: str, at: datetime, *, want_inventory: bool
    ) -> OpenedSession:
        """Claim or touch the session; what the turn finds there. A turn that has an answer touches nothing.

        Raises:
            SessionOwnedByAnotherError: another user of the tenant owns this session.
        """
        asked = (principal, session_id, decision_id, at)
        found = await self._transactions.read(
            lambda session: opening.of_open_session(session, *asked, want_inventory=want_inventory)
        )
        if found is not None:
            return found
        return await self._transactions.write(
            lambda session: opening.claiming(session, *asked, want_inventory=want_inventory)
        )

    async def open_session(self, principal: Principal, session_id: str, at: datetime) -> ProfileBlock | None:
        """Claim or touch the session; its stored profile, if it has one. An ended session starts again.

        Raises:
            SessionOwnedByAnotherError: another user of the tenant owns this session.
        """
        return await self._transactions.write(lambda session: sessions.claim(session, principal, session_id, at))

    async def keep_profile(self, principal: Principal, session_id: str, profile: ProfileBlock) -> ProfileBlock:
        """Store the session's profile unless it has one; the stored one either way.

        One that holds a record which was forgotten meanwhile is neither kept nor given back: the empty one is.

        Raises:
            SessionNotOpenError: there is no such session.
            SessionOwnedByAnotherError: another user of the tenant owns it.
        """
        return await self._transactions.write(
            lambda session: sessions.keep_profile(session, principal, session_id, profile)
        )

    async def forget_profile(self, principal: Principal, session_id: str) -> None:
        """Drop the session's stored profile; nothing happens if there is none."""
        await self._transactions.write(lambda session: sessions.forget_profile(session, principal, session_id))

    async def remove_from_profiles(self, principal: Principal, record_ids: Collection[RecordId]) -> int:
        """Take forgotten records out of the principal's stored profiles at once; how many profiles held one."""
        return await self._transactions.write(lambda session: profiles.remove_records(session, principal, record_ids))

    async def ambient_records(self, principal: Principal, at: datetime) -> Sequence[MemoryRecord]:
        """Confirmed, current, conflict-free semantic ambient records about the principal, by id."""
        return await self._transactions.read(lambda session: records.ambient_records(session, principal, at))

    async def inventory(self, principal: Principal, at: datetime) -> Sequence[RetrievalCategory]:
        """Distinct labels of current conditional records, in the taxonomy's order."""
        return await self._transactions.read(lambda session: records.inventory(session, principal, at))

    async def load_current(
        self, principal: Principal, refs: Sequence[RecordRef], at: datetime
    ) -> Mapping[RecordId, MemoryRecord]:
        """Of the named versions, those still current, conditional and this principal's. Others are left out."""
        return await self._transactions.read(lambda session: records.load_current(session, principal, refs, at))

    async def decided(self, decision_id: str) -> StoredAnswer | None:
        """The answer of an earlier run of this turn; None if it had none or its text was erased."""
        return await self._transactions.read(lambda session: decisions.decided(session, decision_id))

    async def record_turn(self, record: TurnRecord) -> StoredAnswer | None:
        """Write decision, searches and session turns in one transaction. Idempotent by decision id.

        An answered turn's row is never replaced; one without an answer is, by an answer or by a later run. A
        session that turns out to be another user's does not keep the row from being written.

        Returns:
            The answer that was on record before, if it stayed.
        """
        return await self._transactions.write(lambda session: decisions.record_turn(session, record))

    async def decision(self, decision_id: str) -> TurnDecision | None:
        return await self._transactions.read(lambda session: decisions.decision_by_id(session, decision_id))

    # --- sessions ----------------------------------------------------------------------------------------------

    async def end_session(self, principal: Principal, session_id: str, at: datetime, *, actor: str = "host") -> None:
        """Mark the session ended and forget its profile. Ending it again changes nothing.

        Raises:
            SessionNotOpenError: there is no such session.
            SessionOwnedByAnotherError: another user of the tenant owns it.
        """
        await self._transactions.write(lambda session: sessions.end_session(session, principal, session_id, at, actor))

    async def expire_idle_sessions(
        self, before: datetime, at: datetime, *, limit: int = 500, actor: str = "retold"
    ) -> int:
        """End up to `limit` sessions last seen before `before`; how many. Call again while it returns `limit`."""
        return await self._transactions.write(lambda session: sessions.expire_idle(session, before, at, limit, actor))

    async def session_turn(self, ref: str) -> SessionTurn | None:
        """The text a decision's `..._turn_ref` names; None if it was never stored or is erased."""
        return await self._transactions.read(lambda session: sessions.turn_by_ref(session, ref))

    async def session_turns(self, principal: Principal, session_id: str) -> Sequence[SessionTurn]:
        """What was said in the principal's session, in order; within a turn user, draft, final."""
        return await self._transactions.read(lambda session: sessions.turns_of(session, principal, session_id))

    # --- records -----------------------------------------------------------------------------------------------

    async def import_lines(
        self,
        principal: Principal,
        lines: Sequence[RecordWrite | TranscriptWrite],
        *,
        actor: str,
        at: datetime,
    ) -> ImportReport:
        """Write records and past turns in one transaction. The same call again writes nothing.

        A known host id with another text is a new version of that record. Imported records are confirmed and
        conditional. Lines that hold a secret, contradict a stored turn, or would bring back what was deleted are
        refused one by one, the field named; the others are written.
        """
        return await self._transactions.write(
            lambda session: Importer(
                Changes(session, principal, actor=actor, reason="import", at=at, new_id=self._new_id)
            ).write(lines)
        )

    async def mark_ambient_for_development(
        self, principal: Principal, record_id: str, *, actor: str, reason: str, at: datetime
    ) -> MemoryRecord:
        """Make a record a standing instruction without a review, and say so in the audit trail. Not for production.

        Raises:
            RecordNotFoundError: the principal has no such record.
            NotEligibleError: it is not a confirmed, current, semantic record about the principal.
            ValueError: `reason` is blank.
        """
        await self.lifecycle.mark_ambient_for_development(principal, record_id, actor=actor, reason=reason, at=at)
        return await self._record(principal, record_id)

    async def delete_record(
        self, principal: Principal, record_id: str, *, actor: str, reason: str, at: datetime
    ) -> MemoryRecord:
        """Set the record deleted, in a new version that the index will follow. Again: no change.

        Raises:
            RecordNotFoundError: the principal has no such record.
            ValueError: `reason` is blank.
        """
        await self.lifecycle.delete(principal, record_id, actor=actor, reason=reason, at=at)
        return await self._record(principal, record_id)

    async def _record(self, principal: Principal, record_id: str) -> MemoryRecord:
        return await self._transactions.read(lambda session: records.named(session, principal, record_id))

    async def records(self, principal: Principal) -> Sequence[MemoryRecord]:
        """All records of the principal, of any status, oldest first."""
        return await self._transactions.read(lambda session: records.all_records(session, principal))

    # --- bundle registry (FitnessLog) --------------------------------------------------------------------------

    async def append_fitness(self, record: FitnessRecord) -> None:
        """Add a result about a bundle. What was recorded before stays as it is."""
        await self._transactions.write(lambda session: bundles.append(session, record))

    async def latest_fitness(self, bundle_hash: str) -> FitnessRecord | None:
        """The result of this bundle that was added last: it decides whether the bundle may serve."""
        return next(iter(await self.fitness_history(bundle_hash, limit=1)), None)

    async def fitness_history(self, bundle_hash: str | None = None, *, limit: int = 100) -> Sequence[FitnessRecord]:
        """Results of one bundle, or of all, newest first."""
        return await self._transactions.read(lambda session: bundles.history(session, bundle_hash, limit))

    # --- what operators look at --------------------------------------------------------------------------------

    async def decisions(
        self,
        tenant: str | None = None,
        user: str | None = None,
        session_id: str | None = None,
        disposition: Disposition | None = None,
        limit: int = 50,
        before: datetime | None = None,
    ) -> Sequence[TurnDecision]:
        """Decisions, newest first, of all tenants unless narrowed; `before` is exclusive and pages further back."""
        return await self._transactions.read(
            lambda session: decisions.list_decisions(
                session,
                tenant=tenant,
                user=user,
                session_id=session_id,
                disposition=disposition,
                before=before,
                limit=limit,
            )
        )

    async def searches(self, decision_id: str) -> Sequence[SearchEntry]:
        """The retrievals of one turn, in gap order."""
        return await self._transactions.read(lambda session: decisions.searches_of(session, decision_id))

    async def audit_events(
        self, principal: Principal, subject_id: str | None = None, *, limit: int = 100
    ) -> Sequence[AuditEvent]:
        """The principal's latest audited changes, oldest first; about one subject if named."""
        return await self._transactions.read(lambda session: audit.events(session, principal, subject_id, limit))


def _look_at_every_table(session: Session) -> None:
    for table in Row.metadata.sorted_tables:
        session.execute(select(*table.primary_key).limit(1))
