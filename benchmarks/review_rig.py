"""The stack under the benchmark of open reviews, and the items it is filled with."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, insert
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.review_workflows import ReviewWorkflows
from activities.reviewing import ReviewActivities
from retold.cli.embedded import NAMESPACE, embedded_temporal
from retold.cli.running_stack import core_runtime
from retold.client import Reviews, plugins, register_review_attributes
from retold.client.tracing import install_tracing
from retold.contracts.activation import (
    ActivationCategory,
    ActivationDecision,
    ActivationOutcome,
    ActivationReason,
    Applicability,
    CategoryDecision,
    EvidenceMethod,
    VerifiedEvidence,
)
from retold.contracts.identity import turn_ref
from retold.contracts.record import RecordRef, RetrievalCategory
from retold.contracts.review import Resolution, Review, ReviewerRole
from retold.contracts.turn import Principal
from retold.notices import LogNotifier
from retold.policy.limits import utc_now
from retold.settings import ReviewSettings, WorkerSettings
from retold.store.engine import open_engine, writing_connection_options
from retold.store.migrations import migrate
from retold.store.store import Store
from retold.store.tables import RecordRow, SessionTurnRow
from workflows.review import DecideReviewWorkflow, ReviewWorkflow

TASK_QUEUE = "benchmark-reviews"
TENANTS = 50
SAID = "By the way, please keep every answer short and put the result first, I read on a phone."
SPAN = "keep every answer short"
RULE = "Prefers short answers with the result first."
SAID_AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


@dataclass
class Rig:
    client: Client
    engine: Engine
    store: Store
    workflows: ReviewWorkflows
    reviews: Reviews
    token: str
    settings: ReviewSettings
    server_group: int
    opened: list[Review] = field(default_factory=list)
    numbered: int = 0

    async def write_records(self, number: int) -> range:
        """Records with their turns, in one transaction: what activation would find. Their numbers."""
        numbers = range(self.numbered, self.numbered + number)
        self.numbered += number
        with self.engine.execution_options(**writing_connection_options()).begin() as connection:
            connection.execute(insert(RecordRow), [_record(at) for at in numbers])
            connection.execute(insert(SessionTurnRow), [_turn(at) for at in numbers])
        return numbers

    async def open(self, number: int) -> None:
        """One item of a record, as an activation opens it: one transaction."""
        review = await self.store.reviews.open_or_defer(
            principal_of(number),
            _decision(number),
            owner=self.settings.owner,
            bound=self.settings.backlog_bound,
            at=utc_now(),
            lives_for=self.settings.lives_for,
            language="en",
        )
        self.opened.append(review)

    async def resolve(self, review: Review) -> None:
        """As a reviewer does: signed, sent to the workflow, answered."""
        resolution = random.choice(list(Resolution))
        await self.reviews.resolve(
            review.review_id, resolution, expected_version=review.version, reason="measured", token=self.token
        )

    def take(self, number: int) -> list[Review]:
        """Items from anywhere in the queue; each is given once."""
        random.shuffle(self.opened)
        taken, self.opened = self.opened[:number], self.opened[number:]
        return taken

    async def first_tasks_waiting(self) -> int:
        """Workflows that were started and that no worker has looked at yet, as the server estimates."""
        answer = await self.client.workflow_service.describe_task_queue(
            DescribeTaskQueueRequest(
                namespace=NAMESPACE,
                task_queue=TaskQueue(name=TASK_QUEUE),
                task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
                report_stats=True,
            )
        )
        return answer.stats.approximate_backlog_count

    def memory(self) -> tuple[float, float]:
        """Resident megabytes of the Temporal server, and of this process: worker, client and store."""
        server = [pid for pid in _processes() if _group(pid) == self.server_group]
        return sum(_resident_mb(pid) for pid in server), _resident_mb(os.getpid())


@asynccontextmanager
async def review_rig(folder: Path, *, bound: int) -> AsyncIterator[Rig]:
    """Server, store and worker, as `retold dev` starts them; everything stops when the block ends."""
    settings = ReviewSettings(owner="benchmark", backlog_bound=bound, lives_for_days=30)
    with install_tracing("retold-benchmark"):
        async with embedded_temporal(folder) as addresses:
            client = await Client.connect(
                addresses.temporal, namespace=NAMESPACE, tls=False, plugins=plugins(), runtime=core_runtime()
            )
            await register_review_attributes(client)
            engine = open_engine(f"sqlite:///{folder / 'retold.db'}")
            await migrate(engine)
            store = Store(engine)
            try:
                _, token = await store.reviewers.register(
                    "rita", "Rita", ReviewerRole.REVIEWER, actor="benchmark", at=utc_now()
                )
                notifier = LogNotifier()
                workflows = ReviewWorkflows(client, store.reviews, notifier, settings, task_queue=TASK_QUEUE)
                worker = Worker(
                    client,
                    task_queue=TASK_QUEUE,
                    workflows=[ReviewWorkflow, DecideReviewWorkflow],
                    activities=ReviewActivities(store.reviews, notifier, workflows).get_activities(),
                    workflow_runner=UnsandboxedWorkflowRunner(),
                    max_concurrent_activities=WorkerSettings().concurrent_operations,
                )
                async with worker:
                    reviews = Reviews(client, task_queue=TASK_QUEUE)
                    yield Rig(client, engine, store, workflows, reviews, token, settings, addresses.process_group)
            finally:
                await store.close()


def principal_of(number: int) -> Principal:
    return Principal(tenant=f"tenant-{number % TENANTS}", user=f"user-{number}")


def _decision(number: int) -> ActivationDecision:
    principal = principal_of(number)
    start = SAID.index(SPAN)
    return ActivationDecision(
        record=RecordRef(id=f"record-{number}", version=1),
        outcome=ActivationOutcome.REVIEW,
        reason=ActivationReason.LOW_CONFIDENCE,
        category=CategoryDecision(
            retrieval_category=RetrievalCategory.PREFERENCES,
            activation_category=ActivationCategory.ANSWER_STYLE,
            applicability=Applicability.BROAD,
            confidence=0.5,
            policy="benchmark",
            policy_version="1",
        ),
        evidence=VerifiedEvidence(
            session_id="s",
            turn_id="t",
            turn_ref=turn_ref(principal, "s", "t", "user"),
            span=SPAN,
            start=start,
            end=start + len(SPAN),
            said_at=SAID_AT,
            method=EvidenceMethod.EXACT,
        ),
        decided_at=SAID_AT,
    )


def _record(number: int) -> dict[str, Any]:
    owner = principal_of(number)
    return {
        "id": f"record-{number}",
        "tenant": owner.tenant,
        "user_id": owner.user,
        "scope": "personal",
        "type": "semantic",
        "subject": "user",
        "text": RULE,
        "status": "confirmed",
        "activation": "conditional",
        "category": "preferences",
        "conflicting": False,
        "conflicts_with": [],
        "entities": [],
        "created_at": SAID_AT,
        "source": "model",
        "evidence": [],
        "version": 1,
        "content_hash": f"hash-{number}",
    }


def _turn(number: int) -> dict[str, Any]:
    owner = principal_of(number)
    return {
        "id": turn_ref(owner, "s", "t", "user"),
        "tenant": owner.tenant,
        "user_id": owner.user,
        "session_id": "s",
        "turn_id": "t",
        "role": "user",
        "text": SAID,
        "at": SAID_AT,
    }


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
