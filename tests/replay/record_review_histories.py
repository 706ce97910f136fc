"""Records the histories `test_review_histories.py` replays: `python -m tests.replay.record_review_histories`.

A review waits for days, so every deployment finds some that an earlier version began. Run this when a change to the
workflow is meant and versioned, never to make a failing replay pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

from temporalio.testing import WorkflowEnvironment

from retold.client import DecisionRefusedError, plugins, register_review_attributes
from retold.client.tracing import install_tracing
from retold.contracts.review import Resolution, Review
from retold.credentials import ReviewerCredential
from retold.ending import end_process
from retold.policy.limits import utc_now
from tests.conftest import TEMPORAL
from tests.integration.reviewing import Desk, review_desk
from tests.replay.record_histories import _without_traces
from tests.unit.store.review_items import decision

HISTORIES = Path(__file__).parent / "review_histories"
LIFE_S = 4


async def record_all() -> None:
    HISTORIES.mkdir(exist_ok=True)
    with install_tracing("retold-histories"):
        environment = await WorkflowEnvironment.start_local(
            dev_server_existing_path=str(TEMPORAL), plugins=plugins(), identity="recorder"
        )
        async with environment:
            await register_review_attributes(environment.client)
            for live in (_decided_after_refusals, _signalled, _withdrawn, _expired):
                await _record(environment, live.__name__.strip("_").replace("_", "-"), live)


async def _decided_after_refusals(desk: Desk) -> Review:
    review, rita = await desk.opened(), await desk.queue.reviewer()
    forged = decision(ReviewerCredential.issue("rita"), review)
    stale = rita.decide(review.review_id, Resolution.PROMOTE, expected_version=2)
    for refused in (forged, stale):
        with contextlib.suppress(DecisionRefusedError):
            await desk.reviews.send(refused)
    await desk.reviews.send(decision(rita, review))
    return review


async def _signalled(desk: Desk) -> Review:
    review, rita = await desk.opened(), await desk.queue.reviewer()
    await desk.handle(review).signal("approve", "no decision at all")
    await desk.handle(review).signal("reject", decision(rita, review, Resolution.REJECT))
    return review


async def _withdrawn(desk: Desk) -> Review:
    review = await desk.opened()
    await desk.store.reviews.withdraw_for_records(
        [review.record.id], at=utc_now(), actor="recorder", why="the record has changed"
    )
    await desk.workflows.sweep()
    return review


async def _expired(desk: Desk) -> Review:
    return await desk.opened(lives_for=timedelta(seconds=LIFE_S))


async def _record(environment: WorkflowEnvironment, name: str, live: Callable[[Desk], Awaitable[Review]]) -> None:
    times = {"remind_after_hours": 1 / 3600, "escalate_after_hours": 2 / 3600, "lives_for_days": 1}
    with tempfile.TemporaryDirectory() as folder:
        async with review_desk(environment.client, Path(folder), **times) as desk, desk.worker():
            review = await live(desk)
            await desk.outcome(review)
            history = await desk.handle(review).fetch_history()
    shown = json.dumps(_without_traces(json.loads(history.to_json())), indent=2)
    (HISTORIES / f"{name}.json").write_text(shown + "\n")


if __name__ == "__main__":
    asyncio.run(record_all())
    end_process(0)
