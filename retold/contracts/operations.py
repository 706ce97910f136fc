"""What an operator asks of a running stack, through Temporal like everything else."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from retold.contracts._base import AuditedReason, Contract, Name
from retold.contracts.activation import ActivationView
from retold.contracts.decision import TurnDecision
from retold.contracts.disposition import Disposition, Reason
from retold.contracts.forgetting import ForgetReceipt, ReceiptFilter
from retold.contracts.record import ImportLine
from retold.contracts.stages import SearchEntry
from retold.contracts.turn import Principal

IMPORT_BATCH_MAX_LINES = 200
IMPORT_BATCH_MAX_BYTES = 1_000_000
"""Lines of one import workflow, and bytes of their text: Temporal refuses payloads over 2 MB, again and again."""


class ImportInput(Contract):
    principal: Principal
    lines: Annotated[tuple[ImportLine, ...], Field(min_length=1, max_length=IMPORT_BATCH_MAX_LINES)]
    actor: Name

    @model_validator(mode="after")
    def _fits_a_payload(self) -> Self:
        size = sum(len(line.text.encode()) for line in self.lines)
        if size > IMPORT_BATCH_MAX_BYTES:
            raise ValueError(f"lines: {size} bytes of text; send at most {IMPORT_BATCH_MAX_BYTES} at a time")
        return self


class EndSessionInput(Contract):
    principal: Principal
    session_id: Name


class DeleteRecordInput(Contract):
    principal: Principal
    record_id: Name
    """The record's id, or the host's own key of it."""
    actor: Name
    reason: AuditedReason
    expected_version: Annotated[int, Field(ge=1)] | None = None
    """Refuse if somebody has changed it since."""


class DevelopmentAmbientInput(Contract):
    """Make a record ambient without review, for tests and the demo. Audited as a development act."""

    principal: Principal
    record_id: Name
    """The record's id, or the host's own key of it."""
    actor: Name
    reason: AuditedReason


class DecisionFilter(Contract):
    tenant: Name | None = None
    user: Name | None = None
    session_id: Name | None = None
    disposition: Disposition | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20


class InspectDecisions(Contract):
    what: Literal["decisions"] = "decisions"
    filter: DecisionFilter = DecisionFilter()


class InspectDecision(Contract):
    what: Literal["decision"] = "decision"
    decision_id: str


class InspectReceipts(Contract):
    what: Literal["receipts"] = "receipts"
    filter: ReceiptFilter = ReceiptFilter()


class InspectReceipt(Contract):
    what: Literal["receipt"] = "receipt"
    receipt_id: Name


class InspectDeployment(Contract):
    what: Literal["deployment"] = "deployment"


class InspectActivation(Contract):
    """Why a record is, or is not, always on."""

    what: Literal["activation"] = "activation"
    principal: Principal
    record_id: Name
    """The record's id, or the host's own key of it."""


InspectRequest = Annotated[
    InspectDecisions | InspectDecision | InspectReceipts | InspectReceipt | InspectDeployment | InspectActivation,
    Field(discriminator="what"),
]


class InspectInput(Contract):
    request: InspectRequest


class DecisionView(Contract):
    """One decision with what it refers to: its searches, the session's texts, the records' texts."""

    decision: TurnDecision
    searches: tuple[SearchEntry, ...] = ()
    said: dict[str, str] = {}
    """Text by role: user, draft, final."""
    record_texts: dict[str, str] = {}
    replayed_disposition: Disposition
    replayed_reason: Reason


class Check(Contract):
    """One thing `retold doctor` looked at."""

    name: str
    ok: bool
    found: str
    advice: str | None = None


class Deployment(Contract):
    """What a worker runs with, and whether it works."""

    checks: tuple[Check, ...]
    identities: dict[str, str]
    config: dict[str, JsonValue]


class InspectResult(Contract):
    receipts: tuple[ForgetReceipt, ...] = ()
    decisions: tuple[TurnDecision, ...] = ()
    decision: DecisionView | None = None
    deployment: Deployment | None = None
    activation: ActivationView | None = None
