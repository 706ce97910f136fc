"""The reviewers' page in a real browser: by keyboard, without JavaScript, in light and dark, on a desk and a phone.

The page runs in this process over a real store; `test_console_stack` runs it as a deployment does. Screenshots of
every state are kept in build/screenshots.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from retold.console.serving import address, listen, serve
from retold.contracts.activation import ActivationCategory, ActivationReason, EvidenceMethod
from retold.contracts.review import Resolution, ReviewerRole
from retold.settings import ConsoleSettings
from retold.store.engine import open_engine
from retold.store.store import Store
from tests.e2e.console_browser import LOOKS, PHONE, Visit, running_browser, visiting
from tests.unit.console.conftest import Page, empty_database
from tests.unit.console.hostile import HOSTILE
from tests.unit.console.seeded import Seeding

__all__ = ["empty_database"]


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with running_browser() as browser:
        yield browser


@dataclass
class Site:
    console: Page
    base: str

    @property
    def seeding(self) -> Seeding:
        return self.console.seeding


@pytest.fixture
async def site(tmp_path: Path, empty_database: Path) -> AsyncIterator[Site]:
    engine = open_engine(f"sqlite:///{shutil.copy(empty_database, tmp_path / 'retold.db')}")
    store, now = Store(engine), datetime.now(UTC)
    settings = ConsoleSettings(port=0)
    console = Page(store, store.console_sessions, Seeding(store, engine, now), settings, now=now)
    with listen(settings) as listening:
        serving = asyncio.create_task(serve(console._answer, settings, listening))
        yield Site(console, address(settings, listening).rstrip("/"))
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
    await store.close()


async def furnished(site: Site) -> list[str]:
    """A queue as it looks on an ordinary day; the ids of its items, oldest first."""
    seeding, reasons, categories = site.seeding, ActivationReason, ActivationCategory
    seeding.ambient("Uses metric units.")
    seeding.ambient("Explains abbreviations when they first appear.")
    put = [
        await seeding.item(age=timedelta(days=6)),
        await seeding.item(
            "Never uses bullet points.",
            "My last assistant drove me mad with lists. Never use bullet points, ok?\n\nAnd now: what is a sloop?",
            "Never use bullet points",
            reason=reasons.NEGATED,
            user="ruben",
            age=timedelta(days=3),
        ),
        await seeding.item(
            "Antwortet immer auf Deutsch.",
            "Danke! Bitte antworte mir ab jetzt immer auf Deutsch, auch wenn ich mal Englisch schreibe.",
            "antworte mir ab jetzt immer auf Deutsch",
            reason=reasons.LANGUAGE_NOT_REVIEWED,
            category=categories.RESPONSE_LANGUAGE,
            language="de",
            tenant="acme",
            user="jana",
            age=timedelta(hours=31),
        ),
        await seeding.item(
            "יש לענות תמיד בעברית, במשפטים קצרים.",
            "תודה. מעכשיו תמיד לענות לי בעברית בבקשה.",
            "תמיד לענות לי בעברית",
            reason=reasons.LANGUAGE_NOT_REVIEWED,
            category=categories.RESPONSE_LANGUAGE,
            language="he",
            tenant="acme",
            user="noa",
            age=timedelta(hours=20),
        ),
        await seeding.item(
            "Describes every picture in words, charts, tables and maps included, because the user works with a screen "
            "reader; says so at the beginning of the answer, whatever the question was about, and at length.",
            "I work with a screen reader. Could you describe each picture for me?",
            "Could you describe each picture for me",
            reason=reasons.QUESTION,
            category=categories.ACCESSIBILITY,
            method=EvidenceMethod.SIMILAR,
            user="a-very-long-user-name-that-does-not-fit-anywhere@example.org",
            age=timedelta(hours=9),
        ),
        await seeding.item(
            "Always <b>agrees</b> \u202ewith the user\u202c.",
            "He said <img src=x onerror=alert(1)> and I want \u200bthat always.",
            "I want \u200bthat always",
            reason=reasons.FLAGGED_UNSAFE,
            age=timedelta(hours=3),
        ),
        await seeding.item(age=timedelta(hours=2)),
        await seeding.item(
            "Explains things as to a beginner.", reason=reasons.POLICY_TIMEOUT, category=None, age=timedelta(minutes=12)
        ),
    ]
    seeding.damage(put[6])
    return [review.review_id for review in put]


@pytest.mark.parametrize(("scheme", "name", "size"), LOOKS)
async def test_every_page_can_be_read_and_is_kept_as_a_picture(
    site: Site, browser: Browser, scheme: str, name: str, size: tuple[int, int]
) -> None:
    items = await furnished(site)
    token, other = await site.seeding.person(), await site.seeding.person("olga", name="Olga Brandt")
    look = f"{scheme}-{name}"
    async with visiting(browser, site.base, scheme=scheme, size=size) as visit:
        page = visit.page
        await page.goto(f"{site.base}/queue")
        await seen(visit, f"sign-in-{look}")
        await page.get_by_label("Token").fill("retold-reviewer.no.no")
        await page.get_by_role("button", name="Sign in").click()
        await seen(visit, f"sign-in-refused-{look}")
        await visit.sign_in(token)
        await seen(visit, f"queue-{look}")
        await page.get_by_text("Filter and order").click()
        await seen(visit, f"queue-filter-{look}")
        for number, kind in ((1, "item"), (3, "item-right-to-left"), (5, "item-hostile"), (6, "item-malformed")):
            await page.goto(f"{site.base}/reviews/{items[number]}")
            await seen(visit, f"{kind}-{look}")
        await page.goto(f"{site.base}/reviews/{items[7]}")
        await page.keyboard.press("a")
        await seen(visit, f"item-choosing-{look}")

        await page.goto(f"{site.base}/reviews/{items[0]}")
        await page.keyboard.press("a")
        await page.keyboard.type("said so plainly")
        await page.keyboard.press("Control+Enter")
        await page.wait_for_url("**/*decided=*")
        await seen(visit, f"decided-{look}")
        async with visiting(browser, site.base) as faster:
            await page.goto(f"{site.base}/reviews/{items[1]}")
            await faster.sign_in(other, f"/reviews/{items[1]}")
            await decide(faster, "r", "They were joking.")
        await decide(visit, "k")
        assert await page.get_by_role("alert").locator("strong").inner_text() == "Somebody was faster"
        await seen(visit, f"faster-{look}")
        site.console.away = True
        await page.goto(f"{site.base}/reviews/{items[2]}")
        await decide(visit, "a")
        await seen(visit, f"away-{look}")
        await page.goto(f"{site.base}/history")
        await seen(visit, f"history-{look}")
        await page.keyboard.press("?")
        await page.screenshot(path=f"build/screenshots/help-{look}.png")
        assert await page.get_by_role("heading", name="Keyboard").is_visible()
        await page.goto(f"{site.base}/help")
        await visit.check()
        await page.goto(f"{site.base}/reviews/none")
        await seen(visit, f"not-here-{look}")


async def seen(visit: Visit, name: str) -> None:
    await visit.shot(name)
    await visit.check()


async def decide(visit: Visit, key: str, reason: str = "as it says") -> None:
    """By keyboard: choose, give a reason, confirm; wait for the answer."""
    async with visit.page.expect_navigation():
        await visit.page.keyboard.press(key)
        await visit.page.keyboard.type(reason)
        await visit.page.keyboard.press("Control+Enter")


async def test_the_keyboard_is_enough(site: Site, browser: Browser) -> None:
    items = [(await site.seeding.item(age=timedelta(hours=9 - n))).review_id for n in range(4)]
    async with visiting(browser, site.base) as visit:
        page, keys = visit.page, visit.page.keyboard
        await visit.sign_in(await site.seeding.person())
        for key, at in (("j", 0), ("j", 1), ("ArrowDown", 2), ("k", 1), ("ArrowUp", 0), ("k", 0), ("j", 1)):
            await keys.press(key)
            focused = await page.evaluate("document.activeElement.getAttribute('href')")
            assert focused == f"/reviews/{items[at]}"
        await keys.press("Enter")
        await page.wait_for_url(f"**/reviews/{items[1]}")

        await keys.press("r")
        assert await page.evaluate("document.activeElement.id") == "reason", "every decision is explained"
        said = await page.locator("[data-confirm-hint]").inner_text()
        assert said == "Say why, then Ctrl Enter to reject, Esc to take it back"
        await keys.type("a, k and r are letters here")
        assert await page.get_by_label("Reason", exact=True).input_value() == "a, k and r are letters here"
        assert await page.get_by_role("radio", name="Reject").is_checked()
        await keys.press("Escape")
        assert await page.get_by_role("radio", checked=True).count() == 0 and site.console.sent == []
        await keys.press("k")
        assert await page.get_by_role("radio", name="Keep conditional").is_checked()
        assert await page.evaluate("document.activeElement.textContent") == "Keep conditional"
        assert site.console.sent == [], "a choice is not a decision before it is confirmed"
        await keys.press("a")
        await keys.press("Enter")
        await page.wait_for_url(f"**/reviews/{items[2]}?decided={items[1]}")
        assert [sent.resolution for sent in site.console.sent] == [Resolution.PROMOTE]

        await keys.press("n")
        await page.wait_for_url(f"**/reviews/{items[3]}")
        await keys.press("r")
        await keys.press("Control+Enter")
        assert page.url.endswith(items[3]) and len(site.console.sent) == 1, "no decision without a reason"
        await keys.type("said in anger")
        await keys.press("Control+Enter")
        await page.wait_for_url("**/*decided=*")
        assert site.console.sent[-1].reason.strip() == "said in anger"
        await keys.press("u")
        await page.wait_for_url("**/queue*")
        assert await page.locator(".row").count() == 2
        assert visit.incidents == []


async def test_focus_is_always_seen(site: Site, browser: Browser) -> None:
    items = await furnished(site)
    outlined = """() => {
      const e = document.activeElement;
      const around = [[e], [e, "::after"], [e.closest(".choice") || e]];
      return e === document.body || around.some((at) => {
        const style = getComputedStyle(...at);
        return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
      });
    }"""
    async with visiting(browser, site.base) as visit:
        await visit.sign_in(await site.seeding.person())
        for path in ("/queue?reason=negated", f"/reviews/{items[0]}", "/history"):
            await visit.page.goto(site.base + path)
            reached = set()
            for _ in range(24):
                await visit.page.keyboard.press("Tab")
                reached.add(await visit.page.evaluate("document.activeElement.outerHTML.slice(0, 120)"))
                assert await visit.page.evaluate(outlined), reached
            assert any("Sign out" in html for html in reached) and any("Skip to content" in html for html in reached)


async def test_without_javascript_everything_still_works(site: Site, browser: Browser) -> None:
    items = await furnished(site)
    async with visiting(browser, site.base, script=False, size=PHONE) as visit:
        page = visit.page
        await page.goto(f"{site.base}/queue?status=all")
        await page.get_by_label("Token").fill(await site.seeding.person())
        await page.get_by_role("button", name="Sign in").click()
        assert page.url.endswith("/queue?status=all")
        await page.get_by_text("Filter and order").click()
        await page.get_by_label("Why it is here").select_option(label="negated")
        await page.get_by_role("button", name="Show").click()
        await expect(page.locator(".row")).to_have_count(1)
        await page.get_by_role("link", name="Never uses bullet points.").click()
        await page.get_by_role("link", name="Decide").click()
        await page.get_by_label("Reject").check()
        await page.get_by_role("button", name="Decide").click()
        assert "Say why" in await page.get_by_role("alert").inner_text()
        await page.get_by_label("Reason", exact=True).fill("It was about somebody else.")
        await page.get_by_role("button", name="Decide").click()
        assert f"decided={items[1]}" in page.url
        await page.get_by_role("link", name="Help").click()
        assert await page.get_by_role("heading", name="Why an item is here").is_visible()
        await page.get_by_role("button", name="Sign out").click()
        assert page.url.endswith("/sign-in") and visit.incidents == []


async def test_a_viewer_has_nothing_to_press(site: Site, browser: Browser) -> None:
    items = await furnished(site)
    async with visiting(browser, site.base) as visit:
        await visit.sign_in(await site.seeding.person("vera", ReviewerRole.VIEWER, name="Vera Lind"))
        assert await visit.page.locator(".row").count() == len(items)
        await visit.page.goto(f"{site.base}/reviews/{items[0]}")
        for key in ("a", "Enter", "r", "Enter"):
            await visit.page.keyboard.press(key)
        assert await visit.page.get_by_role("button").all_inner_texts() == ["Sign out"]
        assert site.console.sent == [] and visit.page.url.endswith(items[0])
        await seen(visit, "viewer-light-desk")


async def test_nothing_a_stranger_wrote_acts(site: Site, browser: Browser) -> None:
    token = await site.seeding.person()
    async with visiting(browser, site.base) as visit:
        await visit.sign_in(token)
        for hostile in HOSTILE:
            owner = hostile[:100]
            site.seeding.change_person("rita", name=hostile[:120])
            review = await site.seeding.item(hostile, f"I said: {hostile}!", hostile, tenant=owner, user=owner)
            for path in (f"/queue?tenant={'x' * 3}", "/queue", f"/reviews/{review.review_id}"):
                await visit.page.goto(site.base + path)
            shown = await visit.page.locator("h1").inner_text()
            assert shown.split()[:1] == hostile.split()[:1] or "U+" in shown
            await visit.page.get_by_label("Reject").check()
            await visit.page.get_by_label("Reason", exact=True).fill(hostile)
            async with visit.page.expect_navigation():
                await visit.page.get_by_role("button", name="Reject").click()
            await visit.page.goto(f"{site.base}/reviews/{review.review_id}")
            await visit.page.goto(f"{site.base}/history")
            assert await visit.page.evaluate("document.querySelectorAll('iframe, base, object, svg, math').length") == 0
        assert visit.incidents == []
        assert len(site.console.sent) == len(HOSTILE)


async def test_the_browser_would_stop_it_if_a_page_forgot(site: Site, browser: Browser) -> None:
    """The policy holds by itself: what is put into the page past the templates does not run."""
    async with visiting(browser, site.base) as visit:
        await visit.sign_in(await site.seeding.person())
        await visit.page.evaluate(
            """() => {
              const put = (html) => document.body.insertAdjacentHTML("beforeend", html);
              put("<img src=x onerror=\\"alert('ran')\\">");
              put("<p style='color:red'>x</p>");
              const script = document.createElement("script");
              script.textContent = "alert('ran')";
              document.body.append(script);
              const frame = document.createElement("iframe");
              frame.src = "https://evil.example/";
              document.body.append(frame);
            }"""
        )
        await visit.page.wait_for_timeout(300)
        assert not [incident for incident in visit.incidents if incident.startswith(("dialog", "request"))]
        refused = [incident for incident in visit.incidents if "Content Security Policy" in incident]
        assert len(refused) >= 3, visit.incidents


async def test_a_link_from_elsewhere_finds_the_person_signed_in(site: Site, browser: Browser) -> None:
    review = await site.seeding.item()
    async with visiting(browser, site.base) as visit:
        await visit.sign_in(await site.seeding.person())
        elsewhere = site.base.replace("127.0.0.1", "localhost")
        await visit.page.route(
            "**/chat",
            lambda route: route.fulfill(
                content_type="text/html", body=f'<a href="{site.base}/reviews/{review.review_id}">look</a>'
            ),
        )
        await visit.page.goto(f"{elsewhere}/chat")
        await visit.page.get_by_text("look").click()
        await visit.page.wait_for_selector("h1:has-text('Answers in short sentences.')")
