"""Where notices of waiting reviews go, and what they say."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

import httpx
import pytest
from pydantic import ValidationError

from retold.notices import LogNotifier, Occasion, ReviewNotice, WebhookNotifier
from retold.settings import ReviewSettings

REMINDER = ReviewNotice(
    occasion=Occasion.REMINDER, owner="team", review_id="r-1", expires_at=datetime(2026, 6, 1, tzinfo=UTC)
)
FULL = ReviewNotice(occasion=Occasion.BACKLOG_FULL, owner="team", open=500, deferred=3, bound=500)


async def test_a_webhook_gets_each_notice_as_json_and_a_refusal_is_a_failure() -> None:
    bodies: list[dict[str, object]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return httpx.Response(204 if len(bodies) < 3 else 503)

    webhook = WebhookNotifier("https://hooks.example/reviews", transport=httpx.MockTransport(answer))
    await webhook.notify(REMINDER)
    await webhook.notify(FULL)
    with pytest.raises(httpx.HTTPStatusError):
        await webhook.notify(FULL)
    await webhook.aclose()
    assert bodies[0] == {
        "occasion": "reminder",
        "owner": "team",
        "review_id": "r-1",
        "expires_at": "2026-06-01T00:00:00Z",
    }
    assert bodies[1] == {"occasion": "backlog_full", "owner": "team", "open": 500, "deferred": 3, "bound": 500}


async def test_without_a_webhook_the_log_says_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        await LogNotifier().notify(REMINDER)
        await LogNotifier().notify(FULL)
    assert "review r-1 waits (reminder)" in caplog.text and "3 wait for room; owner team" in caplog.text


@pytest.mark.parametrize(
    "hours", [{"remind_after_hours": 200}, {"escalate_after_hours": 400}, {"lives_for_days": 1}, {"owner": " "}]
)
def test_a_reminder_comes_before_the_escalation_and_that_before_the_end(hours: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        ReviewSettings.model_validate(hours)
