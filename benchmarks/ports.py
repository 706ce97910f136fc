"""The ports of a measured turn: models that take a stated time, over the product's own stage bodies and store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from retold.contracts.config import AdmissionMode, UtilityAwareConfig
from retold.contracts.record import MemoryRecord, RecordRef
from retold.contracts.stages import Candidate, ModelUse, ProposedGap, ProposedVerdict, SearchEntry, Stage
from retold.contracts.turn import Principal
from retold.policy.blocking import BlockingPool
from retold.policy.bundles import BundleRegistry, Certificate, FitnessLog, bundle_components, certify
from retold.policy.ports import (
    AdmissionDecision,
    AdmissionPolicy,
    CandidateRetriever,
    GapDecision,
    GapPolicy,
    Generation,
    Message,
    SearchRequest,
    SearchResponse,
    ServingModel,
    TurnStore,
)  # fmt: skip
from retold.policy.profile import ProfileAssembler
from retold.policy.prompts import ChatPrompt
from retold.policy.stages import AdmitStage, GenerateStages, OpenStage, PlanStage, RetrieveStage, TurnStageBodies

SERVING = UtilityAwareConfig(gap_enabled=True, admission_mode=AdmissionMode.LOCAL_JUDGE, shadow=False)

TEXT = "What should I cook for the dinner with my team on Friday, and when do we have to start?"
ANSWER = "A vegetable lasagne can be prepared the evening before and feeds eight. " * 6
GAP = ProposedGap(category="constraint", query="what the team may not eat")


@dataclass
class Pace:
    """How long each of the five stages takes; changed between rounds."""

    stage_ms: float = 0.0

    async def pause(self) -> None:
        if self.stage_ms > 0:
            await asyncio.sleep(self.stage_ms / 1000)


class PacedModel:
    """Answers after the pace; the draft and the final answer alike."""

    identity = "benchmark-model"
    style = ChatPrompt()

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    async def generate(self, messages: Sequence[Message]) -> Generation:
        await self._pace.pause()
        return Generation(text=ANSWER, model=self.identity, prompt_tokens=200, completion_tokens=100)


@dataclass(frozen=True)
class PacedPlanner:
    """One gap, after the pace."""

    pace: Pace

    async def plan(self, *asked: object) -> GapDecision:
        await self.pace.pause()
        return one_gap()


@dataclass(frozen=True)
class PacedRetriever:
    """The principal's first two records, after the pace. For turns whose retrieval is not what is measured."""

    pace: Pace
    stored: Mapping[Principal, Sequence[RecordRef]]

    async def search(self, request: SearchRequest) -> SearchResponse:
        await self.pace.pause()
        refs = tuple(self.stored[request.principal][:2])
        return SearchResponse(
            candidates=tuple(Candidate(ref=ref, score=0.5, dense=0.5, gaps=(0,)) for ref in refs),
            searches=(
                SearchEntry(search_id=f"{request.decision_id}/0", gap_index=0, query=request.gaps[0].query, kept=refs),
            ),
        )


@dataclass(frozen=True)
class PacedJudge:
    """Admits the first candidate, after the pace."""

    pace: Pace

    async def admit(
        self,
        turn: str,
        public_context: str | None,
        ambient_profile: object,
        draft: str,
        candidates: Sequence[MemoryRecord],
    ) -> AdmissionDecision:
        await self.pace.pause()
        return first_admitted(candidates)


def one_gap() -> GapDecision:
    return GapDecision(gaps=(GAP,), usage=(ModelUse(role=Stage.PLAN, model="benchmark-planner"),))


def first_admitted(candidates: Sequence[MemoryRecord]) -> AdmissionDecision:
    return AdmissionDecision(
        admitted=(candidates[0].id,),
        verdicts=tuple(
            ProposedVerdict(id=each.id, verdict="insufficient" if at else "helpful")
            for at, each in enumerate(candidates)
        ),
        usage=(ModelUse(role=Stage.ADMIT, model="benchmark-judge"),),
    )


async def development_certificate(log: FitnessLog) -> Certificate:
    """A measured turn serves, so its bundle needs an approval on record, like everybody's."""
    registry, components = BundleRegistry(log), bundle_components(SERVING)
    await registry.approve_for_development(components, reason="benchmark", recorded_by="benchmark")
    return await certify(SERVING, components, registry)


def stage_bodies(
    store: TurnStore,
    certificate: Certificate,
    *,
    model: ServingModel,
    planner: GapPolicy,
    retriever: CandidateRetriever,
    judge: AdmissionPolicy,
    pool: BlockingPool,
) -> TurnStageBodies:
    """The product's stage bodies over these ports, as `retold.composition` puts them together, serving."""
    return TurnStageBodies(
        open=OpenStage(certificate=certificate, store=store, profiles=ProfileAssembler(store)),
        generate=GenerateStages(model=model, store=store),
        plan=PlanStage(policy=planner, pool=pool),
        retrieve=RetrieveStage(retriever=retriever),
        admit=AdmitStage(policy=judge, store=store, pool=pool),
    )


def paced_bodies(
    store: TurnStore, certificate: Certificate, pace: Pace, retriever: CandidateRetriever, pool: BlockingPool
) -> TurnStageBodies:
    return stage_bodies(
        store,
        certificate,
        model=PacedModel(pace),
        planner=PacedPlanner(pace),
        retriever=retriever,
        judge=PacedJudge(pace),
        pool=pool,
    )
