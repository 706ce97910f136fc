"""What operators ask for: imports, the index brought into line, sessions ended, decisions read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from temporalio import activity

from activities.heartbeat import while_beating
from activities.refusals import refusals, refused
from retold.contracts import names
from retold.contracts.importing import ImportReport
from retold.contracts.operations import (
    DecisionView,
    Deployment,
    DevelopmentAmbientInput,
    EndSessionInput,
    ImportInput,
    InspectActivation,
    InspectDecision,
    InspectDecisions,
    InspectInput,
    InspectReceipt,
    InspectReceipts,
    InspectResult,
)
from retold.contracts.record import RecordRef
from retold.index.indexer import Indexer
from retold.policy.limits import utc_now
from retold.policy.replay import replay
from retold.store.store import Store

DRAIN_BATCH = 64


@dataclass(frozen=True)
class OperationActivities:
    store: Store
    indexer: Indexer
    examine: Callable[[], Awaitable[Deployment]]
    reads_sessions: bool = False
    """Whether sessions are read though nobody asks for it."""
    activation_queue: str | None = None
    """Whose workers evaluate what was imported; None: nobody does."""

    def get_activities(self) -> Sequence[Callable[..., Any]]:
        return [
            self.import_lines,
            self.bring_index_into_line,
            self.end_session,
            self.mark_ambient_for_development,
            self.inspect,
        ]

    @activity.defn(name=names.IMPORT_LINES)
    @while_beating
    async def import_lines(self, request: ImportInput, at: datetime | None = None) -> ImportReport:
        """`at` is when it was asked: a second attempt finds by it what the first has written."""
        report = await self.store.import_lines(
            request.principal, request.lines, actor=request.actor, at=at or utc_now()
        )
        return report.model_copy(update={"activation_queue": self.activation_queue})

    @activity.defn(name=names.BRING_INDEX_INTO_LINE)
    @while_beating
    async def bring_index_into_line(self) -> int:
        """Follow the outbox until it is empty; how many changes the index took."""
        return await self.indexer.drain(DRAIN_BATCH)

    @activity.defn(name=names.END_SESSION)
    @while_beating
    async def end_session(self, request: EndSessionInput) -> bool:
        """End it; whether it should now be read for what its user said."""
        with refusals():
            await self.store.end_session(request.principal, request.session_id, utc_now())
        return self.reads_sessions and await self.store.transcripts.is_due(request.principal, request.session_id)

    @activity.defn(name=names.MARK_AMBIENT_FOR_DEVELOPMENT)
    @while_beating
    async def mark_ambient_for_development(self, request: DevelopmentAmbientInput) -> RecordRef:
        with refusals():
            marked = await self.store.mark_ambient_for_development(
                request.principal, request.record_id, actor=request.actor, reason=request.reason, at=utc_now()
            )
        return marked.ref

    @activity.defn(name=names.INSPECT)
    async def inspect(self, request: InspectInput) -> InspectResult:
        match request.request:
            case InspectDecisions(filter=wanted):
                found = await self.store.decisions(
                    wanted.tenant, wanted.user, wanted.session_id, wanted.disposition, wanted.limit
                )
                return InspectResult(decisions=tuple(found))
            case InspectDecision(decision_id=decision_id):
                return InspectResult(decision=await self._view(decision_id))
            case InspectActivation(principal=principal, record_id=record_id):
                with refusals():
                    return InspectResult(activation=await self.store.activations.view(principal, record_id))
            case InspectReceipts(filter=about):
                found_receipts = await self.store.forgetting.receipts(about.tenant, about.user, about.limit)
                return InspectResult(receipts=tuple(found_receipts))
            case InspectReceipt(receipt_id=receipt_id):
                receipt = await self.store.forgetting.receipt(receipt_id)
                if receipt is None:
                    raise refused(f"there is no receipt {receipt_id!r}; `retold receipts list` shows what there is")
                return InspectResult(receipts=(receipt,))
            case _:
                return InspectResult(deployment=await self.examine())

    async def _view(self, decision_id: str) -> DecisionView:
        decision = await self.store.decision(decision_id)
        if decision is None:
            raise refused(f"there is no decision {decision_id!r}; `retold decisions list` shows what there is")
        refs = {
            "user": decision.user_turn_ref,
            "draft": decision.draft_turn_ref,
            "final": decision.final_turn_ref,
        }
        said = {role: await self.store.session_turn(ref) for role, ref in refs.items() if ref is not None}
        records = await self.store.records_by_id({ref.id for ref in decision.candidates})
        again = await replay(decision)
        return DecisionView(
            decision=decision,
            searches=tuple(await self.store.searches(decision_id)),
            said={role: turn.text for role, turn in said.items() if turn is not None},
            record_texts={id: record.text for id, record in records.items()},
            replayed_disposition=again.disposition,
            replayed_reason=again.reason,
        )
