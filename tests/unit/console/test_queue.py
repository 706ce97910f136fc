"""The queue as it is listed: what counts, what filters do, whose items somebody sees, and what was decided before."""

from __future__ import annotations

import re
from datetime import timedelta

import httpx
import pytest

from retold.console.asked import PAGE_ITEMS, Age, Asked, UnknownFilterError
from retold.contracts.activation import ActivationCategory, ActivationReason
from retold.contracts.review import ENDED_REVIEW_STATUSES, ReviewerRole, ReviewStatus
from tests.unit.console.conftest import START, Page, form_of

_ROW = re.compile(r'<a class="rule[^"]*" href="/reviews/([^"?]+)')
_COUNT = re.compile(r'class="count"[^>]*>(\d+) items?')


async def listed(browser: httpx.AsyncClient, path: str = "/queue") -> list[str]:
    answer = await browser.get(path)
    assert answer.status_code == 200, answer.text
    return _ROW.findall(answer.text)


async def test_every_item_is_listed_and_counted_the_malformed_ones_too(page: Page) -> None:
    first = await page.seeding.item(age=timedelta(days=3))
    broken = await page.seeding.item(age=timedelta(days=2))
    last = await page.seeding.item(age=timedelta(hours=1))
    page.seeding.damage(broken)
    browser = await page.signed_in(await page.seeding.person())
    answer = await browser.get("/queue")

    assert _ROW.findall(answer.text) == [first.review_id, broken.review_id, last.review_id], "the oldest first"
    assert _COUNT.findall(answer.text) == ["3"]
    assert "This item cannot be read" in answer.text and "malformed" in answer.text
    assert "a_reason_from_the_future" not in answer.text, "what is wrong with a row is named, not repeated"
    assert "<b>3</b> of 500 open" in answer.text and "memory-team" in answer.text
    assert "3 days" in answer.text and "2026-11-27 12:00 UTC" in answer.text, "for people, and exactly"


async def test_pages_list_every_item_once(page: Page) -> None:
    put = [(await page.seeding.item(age=timedelta(minutes=n % 7))).review_id for n in range(2 * PAGE_ITEMS + 20)]
    browser = await page.signed_in(await page.seeding.person())
    seen: list[str] = []
    path = "/queue"
    for _ in range(3):
        answer = await browser.get(path)
        assert _COUNT.findall(answer.text) == [str(len(put))], "of the queue, not of the page"
        seen += _ROW.findall(answer.text)
        following = re.search(r'class="next" rel="next" href="([^"]+)"', answer.text)
        path = "/queue" + following[1].replace("&amp;", "&") if following else ""
    assert path == "" and sorted(seen) == sorted(put) and len(seen) == len(put)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["old", "german", "deferred-not", "new"]),
        ("?status=all", ["old", "german", "deferred-not", "new", "kept"]),
        ("?status=ended", ["kept"]),
        ("?status=kept_conditional", ["kept"]),
        ("?status=promoted", []),
        ("?tenant=acme", ["german"]),
        ("?tenant=ACME", []),
        ("?reason=negated", ["old"]),
        ("?category=response_language", ["german"]),
        ("?language=de", ["german"]),
        ("?age=3", ["old"]),
        ("?age=1", ["old", "german"]),
        ("?sort=newest", ["new", "deferred-not", "german", "old"]),
        ("?reason=low_confidence&tenant=harbour&sort=newest", ["new", "deferred-not"]),
    ],
)
async def test_filters(page: Page, query: str, expected: list[str]) -> None:
    put = page.seeding.item
    items = {
        "old": await put(reason=ActivationReason.NEGATED, age=timedelta(days=4)),
        "german": await put(
            reason=ActivationReason.LANGUAGE_NOT_REVIEWED,
            category=ActivationCategory.RESPONSE_LANGUAGE,
            tenant="acme",
            language="de",
            age=timedelta(days=2),
        ),
        "deferred-not": await put(age=timedelta(hours=3)),
        "new": await put(age=timedelta(hours=2)),
        "kept": await put(age=timedelta(hours=1)),
    }
    page.seeding.change(items["kept"], status="kept_conditional", resolved_at=START, resolved_by="rita")
    browser = await page.signed_in(await page.seeding.person())
    assert await listed(browser, f"/queue{query}") == [items[name].review_id for name in expected]


@pytest.mark.parametrize(
    "query",
    ["status=OPEN", "reason=nonsense", "category=x", "age=2", "sort=oldest", "cursor=%25%25", "cursor=MjAyNg=="],
)
async def test_what_is_not_understood_is_refused_and_not_ignored(page: Page, query: str) -> None:
    browser = await page.signed_in(await page.seeding.person())
    assert (await browser.get(f"/queue?{query}")).status_code == 400


async def test_a_full_backlog_says_so(page: Page) -> None:
    await page.seeding.item(bound=1)
    waiting = await page.seeding.item(bound=1)
    browser = await page.signed_in(await page.seeding.person())
    assert "<b>1</b> waiting for room" in (await browser.get("/queue")).text
    assert await listed(browser, "/queue?status=deferred") == [waiting.review_id]
    shown = (await browser.get(f"/reviews/{waiting.review_id}")).text
    assert "waits for room" in shown and "<fieldset" not in shown


async def test_an_empty_queue_says_so(page: Page) -> None:
    browser = await page.signed_in(await page.seeding.person())
    assert "Nothing waits for a decision." in (await browser.get("/queue")).text
    narrowed = (await browser.get("/queue?reason=negated")).text
    assert "Nothing matches." in narrowed and "Show everything that is open" in narrowed


async def test_another_tenant_s_items_are_not_there(page: Page) -> None:
    mine, theirs = await page.seeding.item(tenant="acme"), await page.seeding.item(tenant="harbour")
    broken = await page.seeding.item(tenant="harbour")
    page.seeding.damage(broken)
    browser = await page.signed_in(await page.seeding.person(tenants=["acme"]))

    assert await listed(browser) == [mine.review_id]
    assert await listed(browser, "/queue?status=all&tenant=harbour") == []
    assert "<b>1</b> of 500 open" in (await browser.get("/queue")).text
    missing = await browser.get("/reviews/00000000-0000-0000-0000-000000000000")
    for foreign in (theirs, broken):
        answer = await browser.get(f"/reviews/{foreign.review_id}")
        assert (answer.status_code, answer.text) == (404, missing.text)
        form = form_of((await browser.get(f"/reviews/{mine.review_id}")).text, "/reviews/")
        decided = {**form.fields, "resolution": "reject", "reason": "x"}
        assert (await browser.post(f"/reviews/{foreign.review_id}", data=decided)).text == missing.text
    assert page.sent == []
    assert "harbour" not in (await browser.get("/history")).text
    for ended, told in ((mine, True), (theirs, False)):
        page.seeding.change(ended, status="rejected", resolved_at=START, resolved_by=f"of {ended.principal.tenant}")
        assert ("Rejected" in (await browser.get(f"/queue?decided={ended.review_id}")).text) is told
    history = (await browser.get("/history")).text
    assert "of acme" in history and "of harbour" not in history

    nobody = await page.signed_in(await page.seeding.person("nina", tenants=[]))
    assert await listed(nobody) == []


async def test_a_viewer_sees_everything_and_decides_nothing(page: Page) -> None:
    review = await page.seeding.item()
    broken = await page.seeding.item()
    page.seeding.damage(broken)
    browser = await page.signed_in(await page.seeding.person("vera", ReviewerRole.VIEWER, name="Vera"))
    assert len(await listed(browser)) == 2
    for item in (review, broken):
        shown = await browser.get(f"/reviews/{item.review_id}")
        assert shown.status_code == 200 and "<fieldset" not in shown.text and 'name="resolution"' not in shown.text
        csrf = form_of(shown.text, "/sign-out").fields["csrf"]
        said = {"csrf": csrf, "version": "1", "resolution": "keep_conditional"}
        assert (await browser.post(f"/reviews/{item.review_id}", data=said)).status_code == 403
    assert page.sent == []


async def test_a_role_taken_away_counts_at_once(page: Page) -> None:
    review = await page.seeding.item()
    browser = await page.signed_in(await page.seeding.person())
    form = form_of((await browser.get(f"/reviews/{review.review_id}")).text, "/reviews/")
    page.seeding.change_person("rita", role="viewer")
    said = {**form.fields, "resolution": "keep_conditional", "reason": "at times"}
    assert (await browser.post(form.action, data=said)).status_code == 403
    page.seeding.change_person("rita", role="reviewer", tenants=["elsewhere"])
    assert (await browser.post(form.action, data=said)).status_code == 404
    assert page.sent == []


async def test_the_history_counts_and_lists_what_ended(page: Page) -> None:
    ended = [await page.seeding.item(age=timedelta(hours=n + 2)) for n in range(4)]
    outcomes = [("promoted", "rita"), ("rejected", "rita"), ("expired", None), ("kept_conditional", "olga")]
    for review, (status, who) in zip(ended, outcomes, strict=True):
        page.seeding.change(review, status=status, resolved_by=who, resolved_at=START - timedelta(hours=1))
    await page.seeding.item()
    browser = await page.signed_in(await page.seeding.person())
    answer = await browser.get("/history?days=7")
    assert _ROW.findall(answer.text) == [review.review_id for review in ended], "the last opened first"
    assert _COUNT.findall(answer.text) == ["4"]
    counts = dict(re.findall(r"<dt>(?:<bdi>)?([^<]+)(?:</bdi>)?</dt><dd>([^<]+)</dd>", answer.text))
    assert counts["rita"] == "2" and counts["olga"] == "1" and counts["open"] == "1" and counts["expired"] == "1"
    assert counts["half within"] == "2 h"
    assert (await browser.get("/history?days=8")).status_code == 400


def test_a_filter_is_what_its_query_string_says() -> None:
    asked = Asked.by({"status": "ended", "tenant": " acme ", "reason": "negated", "age": "3", "else": "x"})
    assert Asked.by(dict(pair.split("=") for pair in asked.query()[1:].split("&"))) == asked
    wanted = asked.filter(None, START)
    assert wanted.statuses == ENDED_REVIEW_STATUSES and wanted.tenants == ("acme",)
    assert wanted.opened_before == START - Age.THREE_DAYS.length

    assert Asked().filter(("a", "b"), START).tenants == ("a", "b")
    assert Asked(tenant="b").filter(("a", "b"), START).tenants == ("b",)
    assert Asked(tenant="c").filter(("a", "b"), START).tenants == (), "nobody's, not everybody's"
    assert Asked().filter(None, START).statuses == (ReviewStatus.OPEN,)
    for bad in ({"tenant": "x" * 129}, {"language": "a\x00"}):
        with pytest.raises(UnknownFilterError):
            Asked.by(bad)
