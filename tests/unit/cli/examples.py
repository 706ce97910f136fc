"""One filled-in example of every published contract."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from pydantic import BaseModel

from retold.contracts.config import UtilityAwareConfig
from retold.contracts.decision import StageOutcomes, StageTiming, TurnDecision, TurnRecord
from retold.contracts.disposition import Disposition, Reason
from retold.contracts.host_generation import HostAnswer, HostDraftInput, HostRegenerateInput
from retold.contracts.importing import ImportReport, RefusedLine
from retold.contracts.lifecycle import (
    ContradictInput,
    CorrectInput,
    ExpireInput,
    LifecycleReport,
    ReadRecordsInput,
    RecordEvent,
    RecordPage,
    RememberInput,
    RestoreInput,
    SupersedeInput,
    WriteOutcome,
)
from retold.contracts.operations import (
    Check,
    DecisionFilter,
    DecisionView,
    DeleteRecordInput,
    Deployment,
    DevelopmentAmbientInput,
    EndSessionInput,
    ImportInput,
    InspectDecisions,
    InspectInput,
    InspectResult,
)
from retold.contracts.record import (
    MemoryRecord,
    RecordRef,
    RecordStatus,
    RecordType,
    RecordWrite,
    RetrievalCategory,
    TranscriptWrite,
)
from retold.contracts.review import Resolution, ReviewDecision, ReviewOutcome, ReviewState, ReviewStatus
from retold.contracts.stages import (
    AdmitInput,
    AdmitResult,
    Candidate,
    CandidateVerdict,
    DraftInput,
    DraftResult,
    FailureKind,
    Gap,
    GapCategory,
    Limit,
    ModelUse,
    OpenInput,
    OpenResult,
    PlanInput,
    PlanResult,
    ProfileBlock,
    ProposedGap,
    ProposedVerdict,
    RegenerateInput,
    RegenerateResult,
    RetrieveInput,
    RetrieveResult,
    SearchEntry,
    Stage,
    StageFailure,
    Verdict,
)
from retold.contracts.turn import Durability, Principal, TurnOptions, TurnRequest, TurnResult

AT = datetime(2026, 11, 30, 18, 5, 9, tzinfo=UTC)
TOVE = Principal(tenant="harbour", user="tove")
FEE = RecordRef(id="mooring-fee", version=2)
LIMIT = Limit(limit_ms=800.5, deadline_at=AT)
PROFILE = ProfileBlock(text="Use metric units.", records=(FEE,), tokens=5, delimiter="d")
GAP = Gap(category=GapCategory.CONSTRAINT, query="yearly mooring fee")
FOUND = Candidate(ref=FEE, score=0.8, dense=0.7, gaps=(0,))
VERDICT = CandidateVerdict(id=FEE.id, verdict=Verdict.HELPFUL)
SEARCH = SearchEntry(
    search_id="search-1", gap_index=0, query=GAP.query, generated={"dense": 3}, dropped={"gate": {"below_floor": 2}},
    kept=(FEE,), elapsed_ms=3.5,
)  # fmt: skip
USED = ModelUse(role=Stage.DRAFT, model="small", prompt_version="p1", prompt_tokens=9, completion_tokens=4)
SLOW = StageFailure(kind=FailureKind.TIMEOUT, error="LimitReached")
RECORD = RecordWrite(id="mooring-fee", text="The yearly mooring fee is 640 euros.", entities=("mooring",), event_at=AT)
SAID = TranscriptWrite(kind="turn", session_id="evening", turn_id="01", role="user", text="Hello.", at=AT)
RETRIEVED = RetrieveResult(candidates=(FOUND,), searches=(SEARCH,))
DECISION = TurnDecision(
    decision_id="0b4f9a52-6e0e-5b07-8f0f-0d9d9f0f3c11",
    workflow_id="turn/harbour/tove/evening/03",
    principal=TOVE,
    session_id="evening",
    turn_id="03",
    request_digest="sha256:00",
    at=AT,
    disposition=Disposition.REGENERATED,
    reason=Reason.ADMITTED,
    shadow=False,
    durability=Durability.STAGE,
    requested_budget_ms="default",
    effective_budget_ms=None,
    timings=(StageTiming(stage=Stage.DRAFT, started_ms=1, ended_ms=400.5, failure=SLOW),),
    inventory=(RetrievalCategory.LIMITS,),
    gaps=(GAP,),
    candidates=(FEE,),
    verdicts=(VERDICT,),
    usage=(USED,),
    config=UtilityAwareConfig(),
    switches=OpenResult(config=UtilityAwareConfig()).switches,
    user_turn_ref="said/1",
    outcomes=StageOutcomes(retrieve=RETRIEVED, plan=PlanResult(failure=SLOW)),
)
VIEW = DecisionView(
    decision=DECISION,
    searches=(SEARCH,),
    said={"user": "What is the fee?"},
    replayed_disposition=DECISION.disposition,
    replayed_reason=DECISION.reason,
)
DEPLOYMENT = Deployment(
    checks=(Check(name="store", ok=False, found="away", advice="look at it"),), identities={"judge": "local"}, config={}
)

EXAMPLES: Mapping[type[BaseModel], BaseModel] = {
    type(example): example
    for example in (
        TurnRequest(
            principal=TOVE,
            session_id="evening",
            turn_id="03",
            text="What is the fee?",
            public_context="A harbour office.",
            options=TurnOptions(latency_budget_ms=None, durability=Durability.TURN),
        ),
        TurnResult(
            decision_id=DECISION.decision_id,
            request_digest="sha256:00",
            answer="640 euros.",
            disposition=Disposition.REGENERATED,
            reason=Reason.ADMITTED,
            delivered=(FEE,),
            durability=Durability.STAGE,
            timings_ms={"draft": 400.5},
        ),
        HostDraftInput(
            principal=TOVE, session_id="evening", turn_id="03", text="What?", profile=PROFILE.text, limit_ms=800.5
        ),
        HostRegenerateInput(
            principal=TOVE, session_id="evening", turn_id="03", text="What?", limit_ms=800.5, deadline_at=AT,
            memory='<memory-d>\n{"id": "mooring-fee"}\n</memory-d>',
        ),
        HostAnswer(text="640.", model="own", prompt_tokens=9, completion_tokens=4),
        RECORD,
        SAID,
        MemoryRecord(
            id=FEE.id, tenant="harbour", user="tove", type=RecordType.SEMANTIC, subject="user", text=RECORD.text,
            created_at=AT,
        ),
        FEE,
        DECISION,
        TurnRecord(decision=DECISION, searches=(SEARCH,), user_text="What is the fee?", draft="500?", final="640."),
        UtilityAwareConfig(latency_budget_ms=1_500, bundle={"planner": "p"}),
        OpenInput(
            principal=TOVE, session_id="evening", turn_id="03", decision_id="d", request_digest="sha256:00", at=AT
        ),
        OpenResult(config=UtilityAwareConfig(), profile=PROFILE, inventory=None, failure=SLOW),
        DraftInput(decision_id="d", text="What?", public_context=None, profile=PROFILE, limit=LIMIT),
        DraftResult(text="500?", usage=(USED,)),
        PlanInput(
            text="What?", public_context=None, profile=PROFILE, inventory=(RetrievalCategory.LIMITS,), max_gaps=3,
            limit=LIMIT,
        ),
        PlanResult(gaps=(ProposedGap(category="constraint", query=GAP.query),)),
        RetrieveInput(
            decision_id="d", principal=TOVE, gaps=(GAP,), text="What?", max_candidates=8, at=AT, limit=LIMIT
        ),
        RETRIEVED,
        AdmitInput(
            principal=TOVE, text="What?", public_context=None, profile=PROFILE, draft="500?", gaps=(GAP,),
            candidates=(FOUND,), limit=LIMIT,
        ),
        AdmitResult(judged=(FEE,), admitted=(FEE.id,), verdicts=(ProposedVerdict(id=FEE.id, verdict="helpful"),)),
        RegenerateInput(
            decision_id="d", principal=TOVE, text="What?", public_context=None, profile=PROFILE, admitted=(FEE,),
            verdicts=(VERDICT,), limit=LIMIT,
        ),
        RegenerateResult(text="640.", applied=(FEE,), gone=()),
        RememberInput(principal=TOVE, records=(RECORD,), actor="host"),
        SupersedeInput(principal=TOVE, record_id=FEE.id, by=RECORD, actor="host", reason="raised"),
        ContradictInput(principal=TOVE, record_ids=(FEE.id, "other"), actor="host", reason="both cannot be"),
        CorrectInput(principal=TOVE, record_id=FEE.id, text="640.", actor="host", reason="raised", expected_version=2),
        ExpireInput(principal=TOVE, record_id=FEE.id, at=AT, actor="host", reason="over"),
        RestoreInput(principal=TOVE, record_id=FEE.id, actor="host", reason="not over"),
        LifecycleReport(
            outcomes=(
                WriteOutcome(index=0, disposition="written", ref=FEE, superseded=(FEE,)),
                WriteOutcome(index=1, disposition="refused", field="text", message="seems to hold a secret"),
            )
        ),
        ReadRecordsInput(principal=TOVE, statuses=(RecordStatus.CONFIRMED,)),
        RecordPage(
            more=True, history=(RecordEvent(at=AT, actor="host", event="record.expired", after={"version": 2}),)
        ),
        ImportInput(principal=TOVE, lines=(RECORD, SAID), actor="operator"),
        ImportReport(written=1, refused=(RefusedLine(index=1, field="text", message="holds a secret"),)),
        EndSessionInput(principal=TOVE, session_id="evening"),
        DeleteRecordInput(principal=TOVE, record_id=FEE.id, actor="operator", reason="asked for"),
        DevelopmentAmbientInput(principal=TOVE, record_id=FEE.id, actor="operator", reason="a test"),
        InspectInput(request=InspectDecisions(filter=DecisionFilter(disposition=Disposition.REGENERATED))),
        InspectResult(decisions=(DECISION,), decision=VIEW, deployment=DEPLOYMENT),
        ReviewDecision(
            review_id="r", resolution=Resolution.PROMOTE, expected_version=1, reason="plain", reviewer_id="rita",
            signature="c2lnbmVk",
        ),
        ReviewOutcome(
            review_id="r", status=ReviewStatus.PROMOTED, record=FEE, resolved_by="rita", resolved_at=AT
        ),
        ReviewState(review_id="r", status=ReviewStatus.OPEN, version=1, owner="operators", expires_at=AT),
        VIEW,
        DEPLOYMENT,
    )
}  # fmt: skip
