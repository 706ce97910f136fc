"""A worker process that kills itself with SIGKILL right after it has committed a reviewer's decision.

python -m tests.integration.mortal_review_worker ADDRESS QUEUE STORE_URL
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.review_workflows import ReviewWorkflows
from activities.reviewing import ReviewActivities
from retold.client import plugins
from retold.client.tracing import install_tracing
from retold.contracts import names
from retold.contracts.review import DecisionAnswer, SentDecision
from retold.notices import LogNotifier
from retold.settings import ReviewSettings
from retold.store.engine import open_engine
from retold.store.store import Store
from workflows.review import DecideReviewWorkflow, ReviewWorkflow


async def main(address: str, queue: str, store_url: str) -> None:
    client = await Client.connect(address, plugins=plugins())
    store = Store(open_engine(store_url))
    workflows = ReviewWorkflows(client, store.reviews, LogNotifier(), ReviewSettings(), task_queue=queue)
    activities = ReviewActivities(store.reviews, LogNotifier(), workflows)

    @activity.defn(name=names.DECIDE_REVIEW)
    async def decide_and_die(sent: SentDecision) -> DecisionAnswer:
        await activities.decide_review(sent)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("nobody gets here")

    async with Worker(
        client,
        task_queue=queue,
        workflows=[ReviewWorkflow, DecideReviewWorkflow],
        activities=[decide_and_die, activities.step_review],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        await asyncio.Event().wait()


if __name__ == "__main__":
    with install_tracing("mortal"):
        asyncio.run(main(*sys.argv[1:]))
