"""A review the backlog never has room for comes to an end of its own, and the audit trail says which."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from retold.contracts.review import Review, ReviewItem, ReviewStatus
from retold.store.store import Store
from retold.store.tables import RecordRow
from tests.unit.store.conftest import ADA, NOON
from tests.unit.store.review_items import LIVES, Queue

HOUR = timedelta(hours=1)


@pytest.fixture
def queue(store: Store, engine: Engine) -> Queue:
    return Queue(store, engine, NOON, ADA)


async def status(queue: Queue, review: Review) -> ReviewStatus:
    item = await queue.store.reviews.item(review.review_id, NOON)
    assert isinstance(item, ReviewItem)
    return item.review.status


async def test_a_deferred_item_expires_when_the_backlog_stays_full_for_as_long_as_it_lives(queue: Queue) -> None:
    await queue.item()
    deferred, outdated, later = (
        await queue.item(bound=1),
        await queue.item(bound=1),
        await queue.item(bound=1, at=NOON + HOUR),
    )
    with Session(queue.engine) as session, session.begin():
        session.get_one(RecordRow, outdated.record.id).version = 2  # changed, and nobody told the queue
    over = NOON + LIVES
    assert await queue.store.reviews.expire_deferred(at=over - timedelta(microseconds=1)) == []
    assert await queue.store.reviews.expire_deferred(at=over) == [deferred.review_id]
    assert await queue.store.reviews.expire_deferred(at=over) == [], "once"

    statuses = [await status(queue, each) for each in (deferred, outdated, later)]
    assert statuses == [ReviewStatus.EXPIRED, ReviewStatus.WITHDRAWN, ReviewStatus.DEFERRED]
    assert await queue.events(deferred) == ["review.backlog_full", "review.expired"]
    (event,) = [
        each for each in await queue.store.audit_events(ADA, deferred.review_id) if each.event == "review.expired"
    ]
    assert (event.actor, event.at) == ("retold", over)
    assert "nobody saw it" in event.reason
    with Session(queue.engine) as session:
        assert session.get_one(RecordRow, deferred.record.id).activation == "conditional"
    assert await queue.store.reviews.due_to_hear(10) == [], "it never had a workflow"
    assert await queue.store.reviews.admit_deferred(bound=3, at=over) == [later.review_id]
