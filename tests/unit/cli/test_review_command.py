"""`retold review` and `retold reviewers` over a real store: what is shown, to whom the token goes, which codes come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from retold.contracts.activation import ActivationReason
from retold.contracts.review import Review
from retold.contracts.turn import Principal
from retold.policy.limits import utc_now
from retold.store.engine import open_engine
from retold.store.migrations import migrate
from retold.store.store import Store
from tests.unit.cli.conftest import Retold
from tests.unit.store.review_items import SPAN, Queue

ADA = Principal(tenant="acme", user="ada")
T = TypeVar("T")


class Prepared:
    """A store where the command looks for it, with what a test puts in."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.do(lambda queue: migrate(queue.engine))

    def do(self, work: Callable[[Queue], Awaitable[T]]) -> T:
        async def worked() -> T:
            engine = open_engine(self._url)
            store = Store(engine)
            try:
                return await work(Queue(store, engine, utc_now(), ADA))
            finally:
                await store.close()

        return asyncio.run(worked())


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepared:
    url = f"sqlite:///{tmp_path / 'retold.db'}"
    monkeypatch.setenv("RETOLD_STORE_URL", url)
    monkeypatch.delenv("RETOLD_REVIEWER_TOKEN", raising=False)
    return Prepared(url)


@pytest.fixture
def items(prepared: Prepared) -> list[Review]:
    async def some(queue: Queue) -> list[Review]:
        plain = await queue.item()
        quoted = await queue.item(reason=ActivationReason.QUOTED)
        other = await queue.item(principal=Principal(tenant="other", user="bob"))
        return [plain, quoted, other]

    return prepared.do(some)


def test_the_queue_is_listed_narrowed_and_paged(retold: Retold, items: list[Review]) -> None:
    plain, quoted, other = items
    ran = retold("review", "list")
    assert ran.code == 0 and all(item.review_id in ran.out for item in items)
    assert "low confidence; proposed promote (answer style), en" in ran.out
    assert SPAN not in ran.out, "a list shows no texts"
    for narrowed, expected in (
        (("--tenant", "other"), [other]),
        (("--reason", "quoted"), [quoted]),
        (("--language", "fr"), []),
        (("--older-than-hours", "1"), []),
        (("--status", "rejected"), []),
        (("--status", "open", "--status", "deferred", "--newest-first"), [plain, quoted, other]),
    ):
        page = json.loads(retold("review", "list", *narrowed, "--json").out)
        assert {row["review_id"] for row in page["items"]} == {item.review_id for item in expected}
        assert page["total"] == len(expected)
    first = json.loads(retold("review", "list", "--limit", "2", "--json").out)
    rest = json.loads(retold("review", "list", "--limit", "2", "--cursor", first["next_cursor"], "--json").out)
    assert (len(first["items"]), len(rest["items"]), rest["next_cursor"]) == (2, 1, None)
    assert "cursor" in retold("review", "list", "--cursor", "junk").err


def test_an_item_is_shown_with_the_user_s_words_and_the_profiles(retold: Retold, items: list[Review]) -> None:
    ran = retold("review", "show", items[0].review_id)
    assert ran.code == 0
    for shown in (
        f">>{SPAN}<<",
        "Prefers answers in short sentences.",
        "low confidence; scripted 1 at confidence 0.40",
        "review.opened",
        "(empty)",
        "<profile preview>",
    ):
        assert shown in ran.out
    assert json.loads(retold("review", "show", items[0].review_id, "--json").out)["turn_text"].count(SPAN) == 1
    missing = retold("review", "show", "nothing")
    assert missing.code == 1 and "there is no review nothing" in missing.err


def test_stats_have_a_code_for_a_backlog_over_its_limits(
    retold: Retold, items: list[Review], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = retold("review", "stats", "--check")
    assert ran.code == 0 and "3 open of 500" in ran.out and "quoted 1" in ran.out
    assert json.loads(retold("review", "stats", "--json").out)["by_status"] == {"open": len(items)}
    monkeypatch.setenv("RETOLD_REVIEW__BACKLOG_BOUND", "3")
    assert retold("review", "stats").code == 0
    assert retold("review", "stats", "--check").code == 4
    monkeypatch.delenv("RETOLD_REVIEW__BACKLOG_BOUND")
    assert retold("review", "stats", "--check", "--max-age-days", "0").code == 4


def test_a_token_is_shown_once_and_never_again(retold: Retold, prepared: Prepared) -> None:
    added = retold("reviewers", "add", "rita", "--name", "Rita", "--tenant", "acme")
    assert added.code == 0 and "only time" in added.err
    token = added.out.splitlines()[-1]
    reviewer = prepared.do(lambda queue: queue.store.reviewers.authenticate(token))
    assert reviewer is not None and reviewer.tenants == ("acme",)
    listed = retold("reviewers", "list")
    assert "rita  Rita: reviewer, acme" in listed.out and token not in listed.out
    again = retold("reviewers", "add", "rita", "--name", "Another")
    assert again.code == 1 and "given once" in again.err
    made = json.loads(retold("reviewers", "add", "vera", "--name", "V", "--role", "viewer", "--json").out)
    assert made["reviewer"]["role"] == "viewer" and made["token"]
    assert "disabled since" in retold("reviewers", "disable", "rita", "--reason", "left").out
    assert prepared.do(lambda queue: queue.store.reviewers.authenticate(token)) is None
    assert retold("reviewers", "disable", "nobody", "--reason", "x").code == 1


def test_a_decision_without_a_token_or_with_a_wrong_one_is_not_sent(
    retold: Retold, items: list[Review], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = retold("review", "approve", items[0].review_id, "--reason", "plain")
    assert ran.code == 1 and "set RETOLD_REVIEWER_TOKEN" in ran.err
    assert retold("review", "approve", items[0].review_id).code == 2
    assert retold("review", "approve", "x", "--reason", "r", "--token", "t").code == 2, "no token in a process list"
    monkeypatch.setenv("RETOLD_REVIEWER_TOKEN", "x")
    unreachable = retold("--address", "127.0.0.1:9", "review", "approve", items[0].review_id, "--reason", "plain")
    assert unreachable.code == 1 and "Temporal does not answer" in unreachable.err


def test_without_a_prepared_store_the_command_says_what_to_do(
    retold: Retold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETOLD_STORE_URL", f"sqlite:///{tmp_path / 'nowhere' / 'retold.db'}")
    for arguments in (("review", "list"), ("review", "stats"), ("reviewers", "list")):
        ran = retold(*arguments)
        assert ran.code == 1 and "the store does not answer" in ran.err and "RETOLD_STORE_URL" in ran.err
