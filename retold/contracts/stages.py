"""What goes into and comes out of each stage of a turn.

A stage that fails says so in a value: `failure` is set and the payload is empty. Between stages travel ids with
versions, scores and verdicts; record text is loaded inside the stage that needs it (design section 3.5).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field

from retold.contracts._base import (
    AnswerText,
    ContextText,
    Contract,
    Milliseconds,
    Name,
    Query,
    TurnText,
    UtcTime,
    _storable,
)  # fmt: skip
from retold.contracts.bundle import ApprovalKind
from retold.contracts.config import Switches, UtilityAwareConfig
from retold.contracts.record import RecordId, RecordRef, RetrievalCategory
from retold.contracts.turn import Principal


class GapCategory(StrEnum):
    PREFERENCE = "preference"
    PRIOR_DECISION = "prior_decision"
    CONSTRAINT = "constraint"
    RELATIONSHIP_OR_EVENT = "relationship_or_event"
    TASK_STATE = "task_state"


class Verdict(StrEnum):
    HELPFUL = "helpful"
    REDUNDANT = "redundant"
    INSUFFICIENT = "insufficient"
    STALE_OR_CONFLICTING = "stale_or_conflicting"
    POTENTIALLY_HARMFUL = "potentially_harmful"
    JOINTLY_HELPFUL = "jointly_helpful"


ADMITTING_VERDICTS = frozenset({Verdict.HELPFUL, Verdict.JOINTLY_HELPFUL})


class Stage(StrEnum):
    OPEN = "open"
    DRAFT = "draft"
    PLAN = "plan"
    RETRIEVE = "retrieve"
    ADMIT = "admit"
    REGENERATE = "regenerate"
    EXTRACT = "extract"
    """Not of a turn: what a model used to propose records from what was said."""
    CATEGORISE = "categorise"
    """Not of a turn: what a model used to say what a standing preference is about."""


class FailureKind(StrEnum):
    TIMEOUT = "timeout"
    ERROR = "error"
    MALFORMED = "malformed"
    REFUSED = "refused"


Proposed = Annotated[str, Field(max_length=2_000), BeforeValidator(_storable)]
"""What a policy wrote, before the rules looked at it: bounded, because it travels and is kept."""

PROPOSALS_MAX = 256


class StageFailure(Contract):
    """Why a stage has no result. `error` is a type name or a short code, never text of a turn or record."""

    kind: FailureKind
    error: Annotated[str, Field(max_length=200)]


class ModelUse(Contract):
    """Which model answered, under which really rendered prompt, at what cost in tokens."""

    role: Stage
    model: Annotated[str, Field(max_length=200)]
    prompt_version: Annotated[str, Field(max_length=64)] | None = None
    prompt_tokens: Annotated[int, Field(ge=0)] = 0
    completion_tokens: Annotated[int, Field(ge=0)] = 0


class ProfileBlock(Contract):
    """The session's ambient profile: the same bytes for every turn of a session (specification section 2)."""

    text: Annotated[str, Field(max_length=16_000)] = ""
    records: tuple[RecordRef, ...] = ()
    tokens: Annotated[int, Field(ge=0)] = 0
    truncated: bool = False
    delimiter: Annotated[str, Field(max_length=64)] = ""


EMPTY_PROFILE = ProfileBlock()


class Gap(Contract):
    """Something about the user that the draft may be missing, and the query that would find it."""

    category: GapCategory
    query: Query


class ProposedGap(Contract):
    """A gap as a planner wrote it, before the rules looked at it."""

    category: Proposed
    query: Proposed


class CandidateVerdict(Contract):
    id: RecordId
    verdict: Verdict


class ProposedVerdict(Contract):
    """A verdict as a judge wrote it, before the rules looked at it."""

    id: Proposed
    verdict: Proposed


class Candidate(Contract):
    """A retrieved record on its way to the judge: which version, how it was found, never its text."""

    ref: RecordRef
    score: float
    dense: float | None = None
    lexical: float | None = None
    gaps: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Indices of the gaps that found it."""


class SearchEntry(Contract):
    """One executed retrieval: a row of the search log. `dropped` says per stage how many went, and why."""

    search_id: str
    gap_index: Annotated[int, Field(ge=0)]
    query: Query
    generated: dict[str, int] = {}
    dropped: dict[str, dict[str, int]] = {}
    kept: tuple[RecordRef, ...] = ()
    elapsed_ms: Milliseconds = 0.0


# --- inputs -----------------------------------------------------------------------------------------------


class Limit(Contract):
    """How long a stage may take: the smaller of a duration and what is left until an absolute time."""

    limit_ms: Milliseconds
    deadline_at: UtcTime | None = None


class OpenInput(Contract):
    principal: Principal
    session_id: Name
    turn_id: Name
    decision_id: str
    request_digest: str
    at: UtcTime


class DraftInput(Contract):
    decision_id: str
    text: TurnText
    public_context: ContextText | None
    profile: ProfileBlock
    limit: Limit


class PlanInput(Contract):
    text: TurnText
    public_context: ContextText | None
    profile: ProfileBlock
    inventory: tuple[RetrievalCategory, ...]
    max_gaps: int
    limit: Limit


class RetrieveInput(Contract):
    decision_id: str
    principal: Principal
    gaps: tuple[Gap, ...]
    text: TurnText
    """The original turn: the search's context, kept in its audit trail, never its query."""
    max_candidates: int
    at: UtcTime
    limit: Limit


class AdmitInput(Contract):
    principal: Principal
    text: TurnText
    public_context: ContextText | None
    profile: ProfileBlock
    draft: AnswerText
    gaps: tuple[Gap, ...]
    candidates: tuple[Candidate, ...]
    limit: Limit


class RegenerateInput(Contract):
    decision_id: str
    principal: Principal
    text: TurnText
    public_context: ContextText | None
    profile: ProfileBlock
    admitted: tuple[RecordRef, ...]
    verdicts: tuple[CandidateVerdict, ...]
    limit: Limit


# --- results ----------------------------------------------------------------------------------------------


class StageResult(Contract):
    failure: StageFailure | None = None
    usage: tuple[ModelUse, ...] = ()


class StoredAnswer(Contract):
    """What an earlier run of the same turn answered, from the decision log."""

    request_digest: str
    result: dict[str, object]


class OpenResult(StageResult):
    """The turn's surroundings: configuration, switches, profile and inventory.

    `failure` is about the profile only: the draft then goes out without one and the empty block is never kept as
    the session's. Configuration always comes, because the worker holds it.
    """

    config: UtilityAwareConfig
    switches: Switches = Switches()
    bundle_hash: str = ""
    bundle_retrieval_verified: bool = False
    bundle_approval: ApprovalKind | None = None
    profile: ProfileBlock = EMPTY_PROFILE
    inventory: tuple[RetrievalCategory, ...] | None = None
    """Content-free labels of what is stored; empty: nothing is; None: unknown, the store did not answer."""
    already: StoredAnswer | None = None


class DraftResult(StageResult):
    text: AnswerText | None = None


class PlanResult(StageResult):
    gaps: Annotated[tuple[ProposedGap, ...], Field(max_length=PROPOSALS_MAX)] = ()
    overloaded: bool = False
    """No planner was asked: as long as a draft takes, the worker had as many turns with memory as it may have."""


class RetrieveResult(StageResult):
    candidates: tuple[Candidate, ...] = ()
    searches: tuple[SearchEntry, ...] = ()


class AdmitResult(StageResult):
    """The judge's raw answer over `judged`, the candidates that were still there when it was asked."""

    judged: tuple[RecordRef, ...] = ()
    admitted: Annotated[tuple[Proposed, ...], Field(max_length=PROPOSALS_MAX)] = ()
    verdicts: Annotated[tuple[ProposedVerdict, ...], Field(max_length=PROPOSALS_MAX)] = ()


class RegenerateResult(StageResult):
    text: AnswerText | None = None
    applied: tuple[RecordRef, ...] = ()
    gone: tuple[RecordRef, ...] = ()
