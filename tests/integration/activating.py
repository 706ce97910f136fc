"""Workers for activation and extraction with policies by script: in this process, or in one that can be killed.

    python -m tests.integration.activating ADDRESS QUEUE DATABASE MARKS HANGS

as a process of its own writes what it does to the file MARKS, and stops for ever where HANGS says.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from activities.activation import ActivationActivities
from activities.extraction import ExtractionActivities
from activities.operations import OperationActivities
from retold.client import open_client
from retold.client.tracing import install_tracing
from retold.contracts import names
from retold.contracts.activation import (
    ActivationCategory,
    ActivationOutcome,
    ActivationReason,
    Applicability,
    CategoryDecision,
    StandingText,
    VerifiedEvidence,
)
from retold.contracts.extraction import Extraction, OwnTurn, ProposedRecord
from retold.contracts.record import MemoryRecord, RetrievalCategory
from retold.contracts.review import ReviewIds
from retold.policy import extraction
from retold.policy.activation import rules, service
from retold.policy.activation.service import ActivationBook, ActivationService, Evaluation, Settled
from retold.policy.blocking import BlockingPool
from retold.policy.extraction import ExtractionService
from retold.store.engine import open_engine
from retold.store.store import Store
from tests.unit.store.test_activations import to_the_letter
from workflows.activation import ActivationWorkflow
from workflows.extraction import ExtractionWorkflow
from workflows.operations import EndSessionWorkflow

WORKFLOWS = [ActivationWorkflow, ExtractionWorkflow, EndSessionWorkflow]
BROAD = CategoryDecision(
    retrieval_category=RetrievalCategory.PREFERENCES,
    activation_category=ActivationCategory.ANSWER_STYLE,
    applicability=Applicability.BROAD,
    confidence=0.95,
    rationale="a model's words",
    policy="scripted",
    policy_version="1",
)


@dataclass
class Policies:
    """What every policy answers, and what each was asked."""

    proposal: CategoryDecision | Exception = BROAD
    extraction_fails: Exception | None = None
    on_propose: Callable[[], Any] = lambda: None
    asked: list[str] = field(default_factory=list)
    identity: str = "labels-1"

    def categorise(self, records: Sequence[MemoryRecord]) -> Sequence[RetrievalCategory]:
        return [RetrievalCategory.PREFERENCES for _ in records]

    async def propose(self, standing: StandingText) -> CategoryDecision:
        self.asked.append("classifier")
        if (pause := self.on_propose()) is not None:
            await pause
        if isinstance(self.proposal, Exception):
            raise self.proposal
        return self.proposal

    def extract(self, turns: Sequence[OwnTurn]) -> Extraction:
        self.asked.append("extractor")
        if self.extraction_fails is not None:
            raise self.extraction_fails
        said = [(turn, turn.text) for turn in turns if turn.text.startswith(("Always", "Please"))]
        proposals = tuple(ProposedRecord(text=text, span=text, turn_ref=turn.turn_ref) for turn, text in said)
        return Extraction(proposals=proposals, extractor="scripted", extractor_version="1")


@dataclass
class Heard:
    """What the workflows ask of others."""

    reviews: list[str] = field(default_factory=list)
    drains: int = 0

    @activity.defn(name=names.BRING_INDEX_INTO_LINE)
    async def bring_index_into_line(self) -> int:
        self.drains += 1
        return 0

    @activity.defn(name=names.START_REVIEWS)
    async def start_reviews(self, request: ReviewIds) -> int:
        self.reviews += request.review_ids
        return len(request.review_ids)


def every_span_speaks_plainly() -> None:
    """Evidence and the words' own judgement are tested where they are written."""

    def plain(
        text: str, evidence: VerifiedEvidence, turns: Sequence[OwnTurn], replaced: Sequence[str] = ()
    ) -> tuple[ActivationOutcome, ActivationReason]:
        return ActivationOutcome.PROMOTE, ActivationReason.ELIGIBLE_BROAD_PREFERENCE

    for module, name, scripted in (
        (rules, "judge_statement", plain),
        (extraction, "judge_statement", plain),
        (extraction, "find_evidence", to_the_letter),
        (service, "find_evidence", to_the_letter),
    ):
        setattr(module, name, scripted)


def activation_worker(
    client: Client,
    store: Store,
    policies: Policies,
    heard: Heard,
    *,
    queue: str,
    automatic: bool = True,
    book: ActivationBook | None = None,
) -> Worker:
    pool = BlockingPool(max_threads=4, name="test")
    activation = ActivationService(
        book=book or store.activations, labels=policies, policy=policies, embedder=None, pool=pool, timeout_ms=60_000
    )
    reading = ExtractionService(
        transcripts=store.transcripts, extractor=policies, embedder=None, pool=pool, timeout_ms=2_000
    )
    operations = OperationActivities(store, None, None, automatic)  # type: ignore[arg-type]  # it only ends sessions here
    return Worker(
        client,
        task_queue=queue,
        workflows=WORKFLOWS,
        activities=[
            *ActivationActivities(activation).get_activities(),
            *ExtractionActivities(reading, activation_queue=queue).get_activities(),
            operations.end_session,
            heard.bring_index_into_line,
            heard.start_reviews,
        ],
        workflow_runner=SandboxedWorkflowRunner(),
    )


# --- a worker of its own process ----------------------------------------------------------------------------------


@dataclass
class Stalling:
    """The store's book, which says what it settled and, where it is told to, never comes back."""

    book: ActivationBook
    mark: Callable[[str], None]
    hangs: str

    async def subject(self, *asked: Any) -> Any:
        return await self.book.subject(*asked)

    async def own_turns(self, *asked: Any) -> Any:
        return await self.book.own_turns(*asked)

    async def keep(self, *asked: Any) -> Any:
        return await self.book.keep(*asked)

    async def settle(self, evaluation: Evaluation, at: Any) -> Settled | None:
        settled = await self.book.settle(evaluation, at)
        self.mark("settled")
        if self.hangs == "settled":
            await asyncio.Event().wait()
        return settled


async def serve(address: str, queue: str, database: str, marks: Path, hangs: str) -> None:
    def mark(what: str) -> None:
        with marks.open("a") as file:
            file.write(f"{what}\n")

    def thinking() -> Any:
        mark("thinking")
        return asyncio.Event().wait() if hangs == "thinking" else None

    every_span_speaks_plainly()
    store = Store(open_engine(f"sqlite:///{database}"))
    client = await open_client(address=address)
    book = Stalling(store.activations, mark, hangs)
    async with activation_worker(client, store, Policies(on_propose=thinking), Heard(), queue=queue, book=book):
        mark("serving")
        await asyncio.Event().wait()


if __name__ == "__main__":
    address, queue, database, marks, hangs = sys.argv[1:]
    with install_tracing("retold-tests"):
        asyncio.run(serve(address, queue, database, Path(marks), hangs))
