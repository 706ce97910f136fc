"""Turns by script: real stage bodies over ports that do exactly what a test says, after exactly as long as it says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from retold.contracts.bundle import FitnessRecord
from retold.contracts.config import AdmissionMode, Switches, UtilityAwareConfig
from retold.contracts.decision import TurnDecision, TurnRecord
from retold.contracts.record import MemoryRecord, RecordId, RecordRef, RecordType, RetrievalCategory
from retold.contracts.stages import (
    Candidate,
    ModelUse,
    ProfileBlock,
    ProposedGap,
    ProposedVerdict,
    SearchEntry,
    Stage,
    StoredAnswer,
)
from retold.contracts.turn import Principal, TurnOptions, TurnRequest
from retold.policy.blocking import BlockingPool
from retold.policy.bundles import BundleRegistry, Certificate, bundle_components, certify
from retold.policy.ports import (
    AdmissionDecision,
    GapDecision,
    Generation,
    Message,
    OpenedSession,
    SearchRequest,
    SearchResponse,
    SessionOwnedByAnotherError,
)
from retold.policy.profile import ProfileAssembler
from retold.policy.stages import (
    AdmitStage,
    GenerateStages,
    OpenStage,
    PlanStage,
    RetrieveStage,
    TurnStageBodies,
)

ANNA = Principal(tenant="acme", user="anna")
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
DRAFT, FINAL = "the draft", "the draft, improved"
NEVER_MS = 600_000

SERVING = UtilityAwareConfig(
    gap_enabled=True,
    admission_mode=AdmissionMode.LOCAL_JUDGE,
    shadow=False,
    shed_after_ms=None,  # a busy machine is no overload unless a test says so
)


def record(id: str, text: str = "", **fields: Any) -> MemoryRecord:
    defaults: dict[str, Any] = {
        "tenant": ANNA.tenant,
        "user": ANNA.user,
        "type": RecordType.SEMANTIC,
        "subject": "user",
        "created_at": NOW - timedelta(days=3),
    }
    return MemoryRecord(id=id, text=text or f"text of {id}", **{**defaults, **fields})


RECORDS = {"r1": record("r1"), "r2": record("r2")}
GAP = ProposedGap(category="constraint", query="what anna may not eat")


def helpful(*ids: str, verdict: str = "helpful") -> AdmissionDecision:
    """Admit these, find every other record insufficient."""
    return AdmissionDecision(
        admitted=ids,
        verdicts=tuple(ProposedVerdict(id=id, verdict=verdict if id in ids else "insufficient") for id in RECORDS),
        usage=(ModelUse(role=Stage.ADMIT, model="scripted-judge"),),
    )


@dataclass(frozen=True)
class Step:
    """What a port answers (or raises) and after how many milliseconds; `blocking` holds its thread meanwhile."""

    answer: Any = None
    after_ms: float = 0
    blocking: bool = False

    async def play(self) -> Any:
        if self.after_ms:
            await asyncio.sleep(self.after_ms / 1000)
        return self._give()

    def play_blocking(self) -> Any:
        time.sleep(min(self.after_ms, 3_000) / 1000)
        return self._give()

    def _give(self) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@dataclass(frozen=True)
class Script:
    """One turn. Unless said otherwise: a gap, two candidates, one admitted, regenerated."""

    config: UtilityAwareConfig = SERVING
    options: TurnOptions = field(default_factory=TurnOptions)
    switches: Switches = field(default_factory=Switches)
    profile: Step = Step(ProfileBlock())
    inventory: Step = Step((RetrievalCategory.CONSTRAINTS,))
    draft: Step = Step(DRAFT)
    plan: Step = Step((GAP,))
    retrieve: Step = Step(("r1", "r2"))
    admit: Step = Step(helpful("r1"))
    regenerate: Step = Step(FINAL)
    record: Step = Step()
    gone_before_admission: frozenset[str] = frozenset()
    gone_before_regeneration: frozenset[str] = frozenset()

    def but(self, **changes: Any) -> Script:
        return replace(self, **changes)

    def with_config(self, **changes: Any) -> Script:
        return replace(self, config=UtilityAwareConfig.model_validate({**self.config.model_dump(), **changes}))

    def with_budget(self, budget_ms: int | None) -> Script:
        return replace(self, options=TurnOptions(latency_budget_ms=budget_ms, durability=self.options.durability))


def request(script: Script, turn_id: str = "t1", **fields: Any) -> TurnRequest:
    values = {"principal": ANNA, "session_id": "s1", "turn_id": turn_id, "text": "what can I eat?", **fields}
    return TurnRequest(options=script.options, **values)


@dataclass
class Called:
    """Which ports were asked, and the prompts the serving model got."""

    ports: list[str] = field(default_factory=list)
    prompts: list[tuple[Message, ...]] = field(default_factory=list)


class ScriptedStore:
    """A store in memory: what a turn needs, scripted where a test wants it to misbehave."""

    def __init__(self, script: Script, called: Called) -> None:
        self.script, self.called = script, called
        self.owners: dict[tuple[str, str], str] = {}
        self.records: dict[RecordId, MemoryRecord] = dict(RECORDS)
        self.written: dict[str, TurnRecord] = {}
        self.attempts = 0
        self.fail_next = 0

    async def open_turn(
        self, principal: Principal, session_id: str, decision_id: str, at: datetime, *, want_inventory: bool
    ) -> OpenedSession:
        if self.owners.setdefault((principal.tenant, session_id), principal.user) != principal.user:
            raise SessionOwnedByAnotherError(f"session {session_id!r} belongs to another user")
        profile: ProfileBlock | None = await self.script.profile.play()
        inventory = await self.script.inventory.play() if want_inventory else None
        return OpenedSession(profile=profile, inventory=inventory)

    async def keep_profile(self, principal: Principal, session_id: str, profile: ProfileBlock) -> ProfileBlock:
        return profile

    async def forget_profile(self, principal: Principal, session_id: str) -> None:
        self.called.ports.append("forget_profile")

    async def ambient_records(self, principal: Principal, at: datetime) -> Sequence[MemoryRecord]:
        return ()

    async def load_current(
        self, principal: Principal, refs: Sequence[RecordRef], at: datetime
    ) -> Mapping[RecordId, MemoryRecord]:
        judged = "admit" in self.called.ports
        gone = self.script.gone_before_regeneration if judged else self.script.gone_before_admission
        return {ref.id: self.records[ref.id] for ref in refs if ref.id in self.records and ref.id not in gone}

    async def record_turn(self, record: TurnRecord) -> StoredAnswer | None:
        self.attempts += 1
        if self.fail_next > 0:
            self.fail_next -= 1
            raise ConnectionError("the store is away")
        await self.script.record.play()
        kept = self.written.setdefault(record.decision.decision_id, record)
        if kept is record or kept.draft is None:
            return None
        earlier = kept.decision.as_result(kept.final or kept.draft)
        return StoredAnswer(request_digest=earlier.request_digest, result=earlier.model_dump(mode="json"))

    async def decision(self, decision_id: str) -> TurnDecision | None:
        found = self.written.get(decision_id)
        return None if found is None else found.decision


class PlainPrompt:
    version = "sha256:plain"

    def render(
        self,
        turn: str,
        public_context: str | None,
        profile: ProfileBlock,
        admitted: Sequence[MemoryRecord],
        delimiter: str,
    ) -> tuple[Message, ...]:
        memory = "".join(f"\n- {record.text}" for record in admitted)
        return (Message(role="user", content=f"{profile.text}|{public_context}|{turn}{memory}"),)


class ScriptedModel:
    identity = "scripted-model"
    style = PlainPrompt()

    def __init__(self, script: Script, called: Called) -> None:
        self.script, self.called = script, called

    async def generate(self, messages: Sequence[Message]) -> Generation:
        self.called.prompts.append(tuple(messages))
        regenerating = "admit" in self.called.ports
        self.called.ports.append("regenerate" if regenerating else "draft")
        text = await (self.script.regenerate if regenerating else self.script.draft).play()
        return Generation(text=text, model=self.identity, prompt_tokens=10, completion_tokens=5)


@dataclass(frozen=True)
class ScriptedPlanner:
    script: Script
    called: Called

    def plan(self, *asked: Any) -> Awaitable[GapDecision] | GapDecision:
        self.called.ports.append("plan")
        if self.script.plan.blocking:
            return self._decision(self.script.plan.play_blocking())
        return self._later()

    async def _later(self) -> GapDecision:
        return self._decision(await self.script.plan.play())

    def _decision(self, gaps: Any) -> GapDecision:
        return GapDecision(gaps=gaps, usage=(ModelUse(role=Stage.PLAN, model="scripted-planner"),))


@dataclass(frozen=True)
class ScriptedJudge:
    script: Script
    called: Called

    async def admit(self, *asked: Any) -> AdmissionDecision:
        self.called.ports.append("admit")
        decision: AdmissionDecision = await self.script.admit.play()
        return decision


@dataclass(frozen=True)
class ScriptedRetriever:
    script: Script
    called: Called

    async def search(self, asked: SearchRequest) -> SearchResponse:
        self.called.ports.append("retrieve")
        ids = await self.script.retrieve.play()
        refs = tuple(RECORDS[id].ref for id in ids)
        return SearchResponse(
            candidates=tuple(Candidate(ref=ref, score=1.0, gaps=(0,)) for ref in refs),
            searches=tuple(
                SearchEntry(search_id=f"{asked.decision_id}/{index}", gap_index=index, query=gap.query, kept=refs)
                for index, gap in enumerate(asked.gaps)
            ),
        )


class FitnessInMemory:
    """A registry's log without a database."""

    def __init__(self) -> None:
        self.rows: list[FitnessRecord] = []

    async def append_fitness(self, record: FitnessRecord) -> None:
        self.rows.append(record)

    async def latest_fitness(self, bundle_hash: str) -> FitnessRecord | None:
        return next(iter(await self.fitness_history(bundle_hash)), None)

    async def fitness_history(self, bundle_hash: str | None = None, *, limit: int = 100) -> Sequence[FitnessRecord]:
        return [row for row in reversed(self.rows) if bundle_hash in (None, row.bundle_hash)][:limit]


def certificate_of(config: UtilityAwareConfig) -> Certificate:
    """The certificate of a configuration whose bundle passed."""

    async def certified() -> Certificate:
        registry, components = BundleRegistry(FitnessInMemory()), bundle_components(config)
        await registry.record(
            components, passed=True, suite_version="scripted", evidence="a scripted turn", recorded_by="tests"
        )
        return await certify(config, components, registry)

    # Nothing here ever waits, so one step is the whole of it, and a script needs no event loop.
    try:
        certified().send(None)
    except StopIteration as ended:
        certificate: Certificate = ended.value
        return certificate
    raise AssertionError("a registry in memory never waits")


@dataclass
class Stack:
    """Everything one scripted turn runs on."""

    script: Script
    called: Called
    store: ScriptedStore
    bodies: TurnStageBodies

    @property
    def decision(self) -> TurnDecision:
        (only,) = self.store.written.values()
        return only.decision


def scripted(script: Script, pool: BlockingPool | None = None) -> Stack:
    called = Called()
    store = ScriptedStore(script, called)
    pool = pool or BlockingPool(max_threads=4, name="scripted")
    planner = ScriptedPlanner(script, called)
    bodies = TurnStageBodies(
        open=OpenStage(
            certificate=certificate_of(script.config),
            store=store,
            profiles=ProfileAssembler(store),
            switches=lambda principal: script.switches,
        ),
        generate=GenerateStages(model=ScriptedModel(script, called), store=store, delimiter=lambda: "delimiter"),
        plan=PlanStage(policy=planner, pool=pool),
        retrieve=RetrieveStage(retriever=ScriptedRetriever(script, called)),
        admit=AdmitStage(policy=ScriptedJudge(script, called), store=store, pool=pool),
    )
    return Stack(script, called, store, bodies)
