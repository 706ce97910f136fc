"""A real server, a real store and the product's review activities: what tests of the review workflow stand on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Replayer, Worker

from activities.review_workflows import ReviewWorkflows
from activities.reviewing import ReviewActivities
from retold.client import Reviews, plugins
from retold.contracts.identity import review_workflow_id
from retold.contracts.review import Review, ReviewOutcome
from retold.contracts.turn import Principal
from retold.notices import ReviewNotice
from retold.policy.limits import utc_now
from retold.settings import ReviewSettings
from retold.store.engine import open_engine
from retold.store.migrations import migrate
from retold.store.store import Store
from tests.unit.store.review_items import Queue
from workflows.review import DecideReviewWorkflow, ReviewWorkflow

WORKFLOWS = [ReviewWorkflow, DecideReviewWorkflow]
WITHIN_S = 20


@dataclass
class Told:
    """Notices, in place of somebody's inbox."""

    notices: list[ReviewNotice] = field(default_factory=list)
    away: bool = False

    async def notify(self, notice: ReviewNotice) -> None:
        self.notices.append(notice)
        if self.away:
            raise OSError("nobody there")


@dataclass
class Clock:
    """The store's, which goes along when a server skips time."""

    ahead: timedelta = timedelta(0)

    async def now(self) -> datetime:
        return utc_now() + self.ahead


@dataclass
class Desk:
    """Everything a reviewer, a worker and a test of both need."""

    client: Client
    queue: Queue
    told: Told
    workflows: ReviewWorkflows
    activities: ReviewActivities
    task_queue: str
    clock: Clock

    @property
    def store(self) -> Store:
        return self.queue.store

    @property
    def reviews(self) -> Reviews:
        return Reviews(self.client, task_queue=self.task_queue, answered_within_s=WITHIN_S)

    def worker(self, activities: list[Callable[..., Any]] | None = None, **options: Any) -> Worker:
        return Worker(
            self.client,
            task_queue=self.task_queue,
            workflows=WORKFLOWS,
            activities=activities or self.activities.get_activities(),
            **options,
        )

    def handle(self, review: Review) -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(review_workflow_id(review.review_id), result_type=ReviewOutcome)

    async def opened(self, **item: Any) -> Review:
        """An item with its workflow started, as the sweep starts it."""
        review = await self.queue.item(**item)
        await self.workflows.start(await self.store.reviews.due_by_id([review.review_id]))
        return review

    async def outcome(self, review: Review) -> ReviewOutcome:
        async with asyncio.timeout(WITHIN_S):
            outcome: ReviewOutcome = await self.handle(review).result()
        return outcome

    async def replays(self, review: Review) -> None:
        history = await self.handle(review).fetch_history()
        await Replayer(workflows=WORKFLOWS, plugins=plugins()).replay_workflow(history)


@asynccontextmanager
async def review_desk(client: Client, folder: Path, **settings: Any) -> AsyncIterator[Desk]:
    """No worker runs yet: tests start the ones they need."""
    engine = open_engine(f"sqlite:///{folder / 'retold.db'}")
    await migrate(engine)
    store, told, task_queue = Store(engine), Told(), f"reviews-{uuid4()}"
    principal = Principal(tenant=f"acme/{uuid4()}"[:30], user="ada")
    workflows = ReviewWorkflows(client, store.reviews, told, ReviewSettings(**settings), task_queue=task_queue)
    clock = Clock()
    activities = ReviewActivities(store.reviews, told, workflows, clock.now)
    try:
        yield Desk(client, Queue(store, engine, utc_now(), principal), told, workflows, activities, task_queue, clock)
    finally:
        await store.close()


async def eventually(holds: Callable[[], Any], within_s: float = WITHIN_S) -> None:
    """Wait until it holds; `holds` may be a coroutine function."""
    async with asyncio.timeout(within_s):
        while True:
            found = holds()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return
            await asyncio.sleep(0.05)
