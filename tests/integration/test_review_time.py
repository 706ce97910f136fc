"""The clock of a review, with the server skipping the days: reminder, escalation, expiry, and looks in between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.testing import WorkflowEnvironment

from retold.client import AlreadyResolvedError, plugins, register_review_attributes
from retold.contracts.review import Review, ReviewStatus
from retold.store.tables import RecordRow
from tests.conftest import TEMPORAL
from tests.integration.reviewing import Desk, eventually, review_desk
from tests.unit.store.review_items import decision
from tests.unit.store.test_reviews import change


@pytest.fixture(scope="module")
async def skipping(spans: InMemorySpanExporter) -> AsyncIterator[WorkflowEnvironment]:
    environment = await WorkflowEnvironment.start_time_skipping_v2(
        dev_server_existing_path=str(TEMPORAL),
        dev_server_extra_args=[
            "--dynamic-config-value", "history.transferProcessorMaxPollRPS=1000",
            "--dynamic-config-value", "frontend.WorkflowTimeSkippingEnabled=true",
        ],
        dev_server_log_level="error",
        plugins=plugins(),
    )  # fmt: skip
    async with environment:
        await register_review_attributes(environment.client)
        yield environment


@pytest.fixture
async def desk(skipping: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Desk]:
    async with review_desk(skipping.client, tmp_path) as desk, desk.worker():
        yield desk


async def skip(skipping: WorkflowEnvironment, desk: Desk, review: Review, length: timedelta) -> None:
    desk.clock.ahead += length
    await skipping.fast_forward(desk.handle(review), length)


async def events_reach(desk: Desk, review: Review, expected: list[str]) -> None:
    async def reached() -> bool:
        return await desk.queue.events(review) == expected

    await eventually(reached)


async def test_nobody_decides_a_reminder_an_escalation_an_expiry_and_the_record_stays_conditional(
    skipping: WorkflowEnvironment, desk: Desk
) -> None:
    review, rita = await desk.opened(), await desk.queue.reviewer()
    so_far = ["review.opened"]
    await skip(skipping, desk, review, timedelta(hours=47))
    await events_reach(desk, review, so_far)
    for hours, event in ((2, "review.reminded"), (72, "review.escalated"), (24 * 9 + 1, "review.expired")):
        await skip(skipping, desk, review, timedelta(hours=hours))
        so_far.append(event)
        await events_reach(desk, review, so_far)
    assert (await desk.outcome(review)).status is ReviewStatus.EXPIRED
    assert [notice.occasion.value for notice in desk.told.notices] == ["reminder", "escalation"]
    assert {notice.review_id for notice in desk.told.notices} == {review.review_id}
    (record,) = await desk.store.records(review.principal)
    assert (record.activation.value, record.status.value, record.version) == ("conditional", "confirmed", 1)
    with pytest.raises(AlreadyResolvedError, match="expired"):
        await desk.reviews.send(decision(rita, review))
    await desk.replays(review)


async def test_a_decision_after_the_reminder_is_not_stale_and_the_clock_stops(
    skipping: WorkflowEnvironment, desk: Desk
) -> None:
    review, rita = await desk.opened(), await desk.queue.reviewer()
    desk.told.away = True  # nobody can be told: the item goes on, and says so
    await skip(skipping, desk, review, timedelta(hours=49))
    await events_reach(desk, review, ["review.opened", "review.reminded"])
    reminded = (await desk.store.audit_events(review.principal, review.review_id))[-1]
    assert reminded.reason == "nobody could be notified"
    outcome = await desk.reviews.send(decision(rita, review))
    assert await desk.outcome(review) == outcome
    await desk.replays(review)


async def test_a_record_that_changes_without_a_word_withdraws_its_item_at_the_next_look(
    skipping: WorkflowEnvironment, desk: Desk
) -> None:
    review = await desk.opened()
    change(desk.queue.engine, RecordRow, RecordRow.id == review.record.id, version=2)
    await skip(skipping, desk, review, timedelta(hours=25))
    assert (await desk.outcome(review)).status is ReviewStatus.WITHDRAWN
