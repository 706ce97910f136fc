"""What the turn needs from the world, as protocols. Adapters implement them; rules and drivers only know these.

Policies may be written async or blocking. A blocking one is called in a bounded executor and abandoned in its
thread when its limit passes (specification section 5): it can make a turn neither late nor stuck. An async one must
not block: it would hold the event loop, and with it every turn and deadline of the worker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Protocol

from pydantic import Field

from retold.contracts._base import Contract
from retold.contracts.decision import TurnDecision, TurnRecord
from retold.contracts.record import MemoryRecord, RecordId, RecordRef, RetrievalCategory
from retold.contracts.stages import (
    PROPOSALS_MAX,
    Candidate,
    Gap,
    ModelUse,
    ProfileBlock,
    Proposed,
    ProposedGap,
    ProposedVerdict,
    SearchEntry,
    Stage,
    StoredAnswer,
)  # fmt: skip
from retold.contracts.turn import Principal

if TYPE_CHECKING:
    # Workflows import these ports; their sandbox cannot load numpy, and a type needs nothing at run time.
    import numpy as np
    from numpy.typing import NDArray


class MalformedReplyError(Exception):
    """A model answered something that holds no valid decision. Fails closed as `malformed`."""


class RefusedByProviderError(Exception):
    """The provider declined: content policy, quota, credentials. Fails closed as `refused`."""


class SessionOwnedByAnotherError(Exception):
    """The session belongs to another principal of this tenant. The turn is refused."""


class TurnConflictError(Exception):
    """This turn was already decided for another request: same id, other text."""


class GapDecision(Contract):
    """Zero to three proposed gaps. An empty list is a successful decision not to search (section 3.1)."""

    gaps: Annotated[tuple[ProposedGap, ...], Field(max_length=PROPOSALS_MAX)] = ()
    usage: tuple[ModelUse, ...] = ()


class AdmissionDecision(Contract):
    """One verdict a candidate and the admitted ids, as the judge answered (section 3.2)."""

    admitted: Annotated[tuple[Proposed, ...], Field(max_length=PROPOSALS_MAX)] = ()
    verdicts: Annotated[tuple[ProposedVerdict, ...], Field(max_length=PROPOSALS_MAX)] = ()
    usage: tuple[ModelUse, ...] = ()


class GapPolicy(Protocol):
    """Names what the draft may be missing about the user. Of stored memory it sees the inventory labels only.

    Raises:
        MalformedReplyError: no decision could be read from the model's answer.
        RefusedByProviderError: the provider declined to answer.
    """

    def plan(
        self,
        turn: str,
        public_context: str | None,
        ambient_profile: ProfileBlock,
        inventory: Sequence[RetrievalCategory],
    ) -> Awaitable[GapDecision] | GapDecision: ...


class AdmissionPolicy(Protocol):
    """Judges all candidates together against the draft. EMPTY is normal and the default when in doubt.

    Raises:
        MalformedReplyError, RefusedByProviderError: as for :class:`GapPolicy`.
    """

    def admit(
        self,
        turn: str,
        public_context: str | None,
        ambient_profile: ProfileBlock,
        draft: str,
        candidates: Sequence[MemoryRecord],
    ) -> Awaitable[AdmissionDecision] | AdmissionDecision: ...


class EmbedderIdentity(Contract):
    """What makes two vectors comparable. All four must match, or an index refuses to open."""

    model: str
    revision: str
    runtime: str
    dimension: int


class Embedder(Protocol):
    """Unit-length float32 vectors, one row a text. Queries and passages may be encoded differently."""

    @property
    def identity(self) -> EmbedderIdentity: ...

    async def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]: ...

    async def embed_passages(self, texts: Sequence[str]) -> NDArray[np.float32]: ...


class Message(Contract):
    role: str
    content: str


class Generation(Contract):
    text: str
    model: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish_reason: str | None = None
    """Why it stopped, where the model says: `stop`, `length`, ..."""

    def use(self, role: Stage, prompt_version: str | None) -> ModelUse:
        """This call as a decision notes it: which model, for which stage, under which prompt, at what cost."""
        return ModelUse(
            role=role,
            model=self.model,
            prompt_version=prompt_version,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
        )


class PromptStyle(Protocol):
    """How a serving model wants the turn rendered. Two calls with nothing admitted give the same bytes."""

    @property
    def version(self) -> str:
        """Hash of the templates that are rendered."""

    def render(
        self,
        turn: str,
        public_context: str | None,
        profile: ProfileBlock,
        admitted: Sequence[MemoryRecord],
        delimiter: str,
    ) -> tuple[Message, ...]: ...


class ServingModel(Protocol):
    """The model that answers the user. It does not retry on its own."""

    @property
    def identity(self) -> str: ...

    @property
    def style(self) -> PromptStyle: ...

    async def generate(self, messages: Sequence[Message]) -> Generation: ...


class SearchRequest(Contract):
    """One host-issued retrieval for up to three gaps. `context` is the original turn, for the audit trail."""

    decision_id: str
    principal: Principal
    gaps: tuple[Gap, ...]
    context: str
    max_candidates: int
    at: datetime


class SearchResponse(Contract):
    candidates: tuple[Candidate, ...] = ()
    searches: tuple[SearchEntry, ...] = ()


class CandidateRetriever(Protocol):
    async def search(self, request: SearchRequest) -> SearchResponse: ...


class OpenedSession(Contract):
    """What the store knows when a turn begins. With an earlier answer to repeat, nothing else is looked up."""

    already: StoredAnswer | None = None
    """The answer of an earlier run of this turn, if it ended with one."""
    profile: ProfileBlock | None = None
    """The session's stored profile, if it has one."""
    inventory: tuple[RetrievalCategory, ...] | None = None
    """Distinct labels of the principal's current conditional records, in the taxonomy's order; None: not wanted."""


class TurnStore(Protocol):
    """What a turn reads and writes in the store. Every call is scoped to exactly one principal."""

    async def open_turn(
        self, principal: Principal, session_id: str, decision_id: str, at: datetime, *, want_inventory: bool
    ) -> OpenedSession:
        """Claim or touch the session; what the turn finds there. A turn that has an answer touches nothing.

        Raises:
            SessionOwnedByAnotherError: another user of the tenant owns this session.
        """

    async def keep_profile(self, principal: Principal, session_id: str, profile: ProfileBlock) -> ProfileBlock:
        """Store the session's profile unless it has one; the stored one either way."""

    async def forget_profile(self, principal: Principal, session_id: str) -> None: ...

    async def ambient_records(self, principal: Principal, at: datetime) -> Sequence[MemoryRecord]:
        """Confirmed, current, conflict-free semantic ambient records about the principal."""

    async def load_current(
        self, principal: Principal, refs: Sequence[RecordRef], at: datetime
    ) -> Mapping[RecordId, MemoryRecord]:
        """Of the named versions, those still current, conditional and this principal's. Others are left out."""

    async def record_turn(self, record: TurnRecord) -> StoredAnswer | None:
        """Write decision, searches and session turns in one transaction. Idempotent by decision id.

        Returns:
            The answer an earlier attempt at this turn has on record. It stays, and nothing is written.
        """

    async def decision(self, decision_id: str) -> TurnDecision | None: ...
