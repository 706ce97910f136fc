"""Telling people that reviews wait: what is said, and where it goes. Never a text, never whose memory it is."""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import Protocol

import httpx

from retold.contracts._base import Contract, Name, UtcTime

logger = logging.getLogger(__name__)

_WEBHOOK_TIMEOUT_S = 5.0


class Occasion(StrEnum):
    REMINDER = "reminder"
    ESCALATION = "escalation"
    BACKLOG_FULL = "backlog_full"


class ReviewNotice(Contract):
    """What a notifier is given. `review_id` finds the item for whoever may see it."""

    occasion: Occasion
    owner: Name
    review_id: Name | None = None
    """None: it is about the queue."""
    expires_at: UtcTime | None = None
    open: int | None = None
    deferred: int | None = None
    bound: int | None = None


class ReviewNotifier(Protocol):
    """Brings notices to people. May be told the same one twice; raises what it likes when it cannot."""

    async def notify(self, notice: ReviewNotice) -> None: ...


class LogNotifier:
    """A line in the worker's log: for where no webhook is configured, and an alert reads the log or the metrics."""

    async def notify(self, notice: ReviewNotice) -> None:
        if notice.occasion is Occasion.BACKLOG_FULL:
            logger.warning(
                "the review backlog is full: %s open of %s, %s wait for room; owner %s",
                notice.open, notice.bound, notice.deferred, notice.owner,
            )  # fmt: skip
        else:
            logger.warning(
                "review %s waits (%s), it expires at %s; owner %s",
                notice.review_id, notice.occasion.value, notice.expires_at, notice.owner,
            )  # fmt: skip


class WebhookNotifier:
    """POSTs each notice as JSON. An answer other than 2xx is a failure."""

    def __init__(self, url: str, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._url = url
        self._client = httpx.AsyncClient(timeout=_WEBHOOK_TIMEOUT_S, transport=transport)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def notify(self, notice: ReviewNotice) -> None:
        answer = await self._client.post(self._url, json=notice.model_dump(mode="json", exclude_none=True))
        answer.raise_for_status()
