"""Workflows follow rows: started for items that are open, told when theirs has ended, and none of it lost.

A row is written in the transaction of what it is about, and Temporal is told afterwards. Whoever dies in between, or
terminates a workflow, or cannot reach Temporal, leaves work for the next sweep of any worker, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.service import RPCError, RPCStatusCode

from retold.contracts import names
from retold.contracts.identity import review_workflow_id
from retold.contracts.review import BacklogState, ReviewInput, ReviewStatus
from retold.notices import Occasion, ReviewNotice, ReviewNotifier
from retold.policy.limits import utc_now
from retold.settings import ReviewSettings
from retold.store.engine import StoreUnavailableError
from retold.store.review_desk import DueReview, ReviewDesk
from retold.telemetry import metrics

logger = logging.getLogger(__name__)

BATCH = 200
AT_ONCE = 16
OVERDUE = timedelta(minutes=10)
"""An item still open this long after its end has no workflow any more."""
TOLD_AGAIN_AFTER_S = 3_600
TRIED_AGAIN_AFTER_S = 60
NOTIFIED_WITHIN_S = 10
_AWAY = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)
_ATTRIBUTES = {name: SearchAttributeKey.for_keyword(name) for name in names.REVIEW_ATTRIBUTES}


class ReviewWorkflows:
    """Keeps Temporal in step with the queue. Several workers may; each start and each telling is idempotent."""

    def __init__(
        self, client: Client, desk: ReviewDesk, notifier: ReviewNotifier, settings: ReviewSettings, *, task_queue: str
    ) -> None:
        self._client = client
        self._desk = desk
        self._notifier = notifier
        self._settings = settings
        self._task_queue = task_queue
        self._unlisted_until = 0.0
        self._said_full_at: float | None = None
        self.backlog: BacklogState | None = None
        """As the last sweep found it."""

    def watch(self) -> None:
        """Have metrics show the backlog as the last sweep found it."""
        metrics.watch(metrics.REVIEW_BACKLOG, self._backlog_size)
        metrics.watch(metrics.REVIEW_OLDEST, self._oldest_age)

    async def sweep_for_ever(self) -> None:
        """Sweep every few seconds until cancelled."""
        while True:
            try:
                await self.sweep()
            except (StoreUnavailableError, RPCError, RuntimeError) as error:  # RuntimeError: a lost connection
                logger.warning("reviews are not swept: %s; the next sweep tries again", error)
            await asyncio.sleep(self._settings.sweep_every_s)

    async def sweep(self) -> None:
        """Let deferred items in or end them, start what is due to start, tell what is due to hear."""
        bound, owner = self._settings.backlog_bound, self._settings.owner
        backlog = self.backlog = await self._desk.backlog(bound=bound, owner=owner)
        if backlog.deferred:
            await self._settle_deferred(backlog)
        await self._say_if_full(backlog)
        await self._start_what_is_due()
        await self.tell(await self._desk.due_to_hear(BATCH))

    async def _settle_deferred(self, backlog: BacklogState) -> None:
        """Those that have waited longest come in first; whose time is over and still has no room expires unseen."""
        at = await self._desk.now()
        if not backlog.full:
            await self._desk.admit_deferred(bound=backlog.bound, at=at)
        expired = await self._desk.expire_deferred(at=at)
        if expired:
            logger.warning("%d deferred reviews expired unseen: the backlog had no room for them", len(expired))
        for _ in expired:
            metrics.count(metrics.REVIEW_DECISIONS, ended=ReviewStatus.EXPIRED.value)

    async def _start_what_is_due(self) -> None:
        seen: set[str] = set()
        while True:
            due = await self._desk.due_to_start(overdue_before=utc_now() - OVERDUE, limit=BATCH)
            fresh = [item for item in due if item.review_id not in seen]
            if not fresh:  # what could not start, or was started already and is only late, is for the next sweep
                return
            await self.start(fresh)
            seen |= {item.review_id for item in fresh}

    async def start(self, due: Sequence[DueReview]) -> int:
        """Start these items' workflows, unless they run; how many run now. One that cannot start stops no other."""
        slots = asyncio.Semaphore(AT_ONCE)
        started: list[str] = []

        async def one(item: DueReview) -> None:
            async with slots:
                try:
                    await self._start(item)
                except RPCError as error:
                    if error.status in _AWAY:
                        raise
                    logger.warning("review %s cannot start: %s", item.review_id, error.message)
                else:
                    started.append(item.review_id)

        for at in range(0, len(due), BATCH):
            await asyncio.gather(*(one(item) for item in due[at : at + BATCH]))
        await self._desk.workflows_started(started)
        return len(started)

    async def tell(self, review_ids: Sequence[str]) -> None:
        """Have the workflows of items that ended elsewhere look."""
        gone = []
        for review_id in review_ids:
            try:
                await self._client.get_workflow_handle(review_workflow_id(review_id)).signal(names.LOOK_AT_REVIEW)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
                gone.append(review_id)
        await self._desk.workflows_told(gone)

    def _backlog_size(self) -> list[tuple[float, dict[str, str]]]:
        if self.backlog is None:
            return []
        sizes = {"open": self.backlog.open, "deferred": self.backlog.deferred, "bound": self.backlog.bound}
        return [(size, {"state": state}) for state, size in sizes.items()]

    def _oldest_age(self) -> list[tuple[float, dict[str, str]]]:
        if self.backlog is None:
            return []
        oldest = self.backlog.oldest_opened_at
        return [(0.0 if oldest is None else (utc_now() - oldest).total_seconds(), {})]

    async def _start(self, item: DueReview) -> None:
        listed = time.monotonic() >= self._unlisted_until
        try:
            await self._start_as(item, _searchable(item) if listed else None)
        except RPCError as error:
            if not listed or error.status is not RPCStatusCode.INVALID_ARGUMENT:
                raise
            # The namespace lacks an attribute: reviews work without, Temporal's page just cannot filter by it.
            logger.warning("reviews start without search attributes (%s): run `retold review setup`", error.message)
            self._unlisted_until = time.monotonic() + TRIED_AGAIN_AFTER_S
            await self._start_as(item, None)

    async def _start_as(self, item: DueReview, attributes: TypedSearchAttributes | None) -> None:
        options: dict[str, Any] = {} if attributes is None else {"search_attributes": attributes}
        await self._client.start_workflow(
            names.REVIEW_WORKFLOW,
            self._input(item),
            id=review_workflow_id(item.review_id),
            task_queue=self._task_queue,
            # The row says it is open, so whatever ended before under this id did not end it.
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            **options,
        )

    def _input(self, item: DueReview) -> ReviewInput:
        settings = self._settings
        return ReviewInput(
            review_id=item.review_id,
            principal=item.principal,
            record=item.record,
            owner=item.owner,
            opened_at=item.opened_at,
            remind_after_s=_seconds(hours=settings.remind_after_hours),
            escalate_after_s=_seconds(hours=settings.escalate_after_hours),
            look_every_s=_seconds(minutes=settings.look_every_minutes),
            expires_at=item.expires_at,
        )

    async def _say_if_full(self, backlog: BacklogState) -> None:
        """Tell the owner when items begin to be deferred, and every hour while they are."""
        if not backlog.deferred:
            self._said_full_at = None
            return
        now = time.monotonic()
        if self._said_full_at is not None and now - self._said_full_at < TOLD_AGAIN_AFTER_S:
            return
        self._said_full_at = now
        notice = ReviewNotice(
            occasion=Occasion.BACKLOG_FULL,
            owner=backlog.owner,
            open=backlog.open,
            deferred=backlog.deferred,
            bound=backlog.bound,
        )
        try:
            async with asyncio.timeout(NOTIFIED_WITHIN_S):
                await self._notifier.notify(notice)
        except Exception as error:  # noqa: BLE001 - a notifier raises what it likes, and the sweep goes on
            logger.warning("nobody was told that the review backlog is full: %s", type(error).__name__)


def _searchable(item: DueReview) -> TypedSearchAttributes:
    values = {
        names.REVIEW_STATUS_ATTRIBUTE: ReviewStatus.OPEN.value,
        names.REVIEW_OWNER_ATTRIBUTE: item.owner,
        names.REVIEW_TENANT_ATTRIBUTE: item.principal.tenant,
        names.REVIEW_REASON_ATTRIBUTE: item.reason,
    }
    return TypedSearchAttributes([SearchAttributePair(_ATTRIBUTES[name], value) for name, value in values.items()])


def _seconds(**length: float) -> int:
    return max(1, round(timedelta(**length).total_seconds()))
