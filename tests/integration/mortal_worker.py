"""A worker process that kills itself with SIGKILL right after it has committed a reviewer's decision or a record.

python -m tests.integration.mortal_worker ADDRESS QUEUE STORE_URL
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import datetime, timedelta
from typing import NoReturn

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.records import RecordActivities
from activities.review_workflows import ReviewWorkflows
from activities.reviewing import ReviewActivities
from retold.client import plugins
from retold.client.tracing import install_tracing
from retold.contracts import names
from retold.contracts.lifecycle import LifecycleReport, RememberInput
from retold.contracts.review import DecisionAnswer, SentDecision
from retold.notices import LogNotifier
from retold.settings import ReviewSettings
from retold.store.engine import open_engine
from retold.store.store import Store
from workflows.records import RememberWorkflow
from workflows.review import DecideReviewWorkflow, ReviewWorkflow


async def main(address: str, queue: str, store_url: str) -> None:
    client = await Client.connect(address, plugins=plugins())
    store = Store(open_engine(store_url))
    workflows = ReviewWorkflows(client, store.reviews, LogNotifier(), ReviewSettings(), task_queue=queue)
    reviewing, records = ReviewActivities(store.reviews, LogNotifier(), workflows), RecordActivities(store)

    @activity.defn(name=names.DECIDE_REVIEW)
    async def decide_and_die(sent: SentDecision) -> DecisionAnswer:
        await reviewing.decide_review(sent)
        die()

    @activity.defn(name=names.REMEMBER)
    async def remember_and_die(asked: RememberInput, at: datetime) -> LifecycleReport:
        await records.remember(asked, at)
        die()

    async with Worker(
        client,
        task_queue=queue,
        workflows=[ReviewWorkflow, DecideReviewWorkflow, RememberWorkflow],
        activities=[decide_and_die, remember_and_die, reviewing.step_review],
        workflow_runner=UnsandboxedWorkflowRunner(),
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),  # as the product's
    ):
        await asyncio.Event().wait()


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nobody gets here")


if __name__ == "__main__":
    with install_tracing("mortal"):
        asyncio.run(main(*sys.argv[1:]))
