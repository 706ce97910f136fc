"""`retold console` beside a running stack, as a deployment has it: a browser, two reviewers, workflows that decide."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.async_api import Browser

from retold.contracts.activation import ActivationReason
from retold.contracts.review import ReviewerRole
from retold.store.engine import open_engine
from retold.store.store import Store
from tests.e2e.console_browser import Visit, chromium, running_browser, visiting
from tests.e2e.test_cli import COMMAND, Dev, ctrl_c, kill
from tests.unit.console.seeded import Seeding

PATIENCE_S = 60


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with running_browser() as browser:
        yield browser


@dataclass
class Deployment:
    """A stack, its console, and what is in its store."""

    dev: Dev
    base: str
    seeding: Seeding


@pytest.fixture(scope="module")
async def deployment(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployment]:
    chromium()  # skips before anything is started
    data = tmp_path_factory.mktemp("console-stack")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RETOLD_REVIEW__SWEEP_EVERY_S", "0.5")
        dev = Dev(data)
    log = data / "console.log"
    console = _started(dev, log)
    store = Store(engine := open_engine(f"sqlite:///{data / 'retold.db'}"))
    try:
        yield Deployment(dev, await _address(log), Seeding(store, engine, datetime.now(UTC)))
        console.send_signal(signal.SIGINT)
        assert console.wait(PATIENCE_S) == 0
        assert log.read_text().endswith("stopped\n") and "Traceback" not in log.read_text()
    finally:
        console.kill()
        await store.close()
        if dev.process.poll() is None:
            dev.stop(ctrl_c)


def _started(dev: Dev, log: Path) -> subprocess.Popen[bytes]:
    command = [*COMMAND, "--address", dev.address, "console", "--port", "0"]
    with log.open("w") as output:
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=dev.environment)


async def _address(log: Path) -> str:
    async with asyncio.timeout(PATIENCE_S):
        while (found := re.search(r"reviews: (http://127\.0\.0\.1:\d+)/", log.read_text())) is None:
            await asyncio.sleep(0.1)
    return found[1]


async def test_a_morning_of_reviews(deployment: Deployment, browser: Browser) -> None:
    seeding = deployment.seeding
    kept = await seeding.item("Avoids jargon.", age=timedelta(hours=9), reason=ActivationReason.NEGATED)
    promoted = await seeding.item("Answers in short sentences.", age=timedelta(hours=8))
    contested = await seeding.item("Explains every joke.", age=timedelta(hours=7))
    foreign = await seeding.item("Writes in verse.", age=timedelta(hours=6), tenant="elsewhere")
    rita = await seeding.person(tenants=["harbour"])
    olga = await seeding.person("olga", name="Olga Brandt")
    vera = await seeding.person("vera", ReviewerRole.VIEWER, name="Vera Lind")

    async with visiting(browser, deployment.base) as visit:
        page, keys = visit.page, visit.page.keyboard
        await visit.sign_in(rita)
        assert await rules(visit) == ["Avoids jargon.", "Answers in short sentences.", "Explains every joke."]
        await page.get_by_text("Filter and order").click()
        await page.get_by_label("Why it is here").select_option(label="negated")
        async with page.expect_navigation():  # loaded whole: the keys below need its script
            await page.get_by_role("button", name="Show").click()
        assert await rules(visit) == ["Avoids jargon."]
        await keys.press("j")
        await keys.press("Enter")
        await page.wait_for_url(re.compile(kept.review_id))
        await decide(visit, "k")
        assert "Kept conditional" in await page.get_by_role("status").first.inner_text()

        await page.goto(f"{deployment.base}/reviews/{promoted.review_id}")
        await decide(visit, "a")
        assert "Promoted" in await page.get_by_role("status").first.inner_text()
        assert page.url.split("?")[0].endswith(contested.review_id), "on to the next"

        async with visiting(browser, deployment.base) as faster:
            await faster.sign_in(olga, f"/reviews/{contested.review_id}")
            await decide(faster, "r", "said in jest")
            assert "Rejected" in await faster.page.get_by_role("status").first.inner_text()
            assert foreign.review_id in faster.page.url, "she sees every tenant"
        await decide(visit, "a")
        assert await page.get_by_role("alert").locator("strong").inner_text() == "Somebody was faster"
        assert await page.locator(".outcome").inner_text() != ""
        answer = await page.goto(f"{deployment.base}/reviews/{foreign.review_id}")
        assert answer is not None and answer.status == 404

        await page.goto(f"{deployment.base}/history")
        assert await page.locator(".row").count() == 3
        assert visit.incidents == []

    async with visiting(browser, deployment.base) as visit:
        await visit.sign_in(vera)
        await visit.page.goto(f"{deployment.base}/reviews/{foreign.review_id}")
        assert await visit.page.get_by_role("button").all_inner_texts() == ["Sign out"]

    store = seeding.store
    records = {record.id: record for record in await store.records(promoted.principal)}
    assert records[promoted.record.id].activation.value == "ambient"
    assert records[kept.record.id].activation.value == "conditional"
    assert records[contested.record.id].status.value == "rejected"
    events = await store.audit_events(contested.principal, contested.review_id)
    refused = [event for event in events if event.event == "review.decision_refused"]
    assert [event.actor for event in refused] == ["rita"], "who came too late is on record"


async def test_without_workers_the_page_shows_everything_and_decides_nothing(
    deployment: Deployment, browser: Browser
) -> None:
    review = await deployment.seeding.item("Signs off with a quote.", age=timedelta(hours=2))
    token = await deployment.seeding.person("otto", name="Otto")
    async with visiting(browser, deployment.base) as visit:
        await visit.sign_in(token)
        deployment.dev.stop(kill)
        await visit.page.goto(f"{deployment.base}/reviews/{review.review_id}")
        await decide(visit, "r", "nobody asked for it")
        said = await visit.page.get_by_role("alert").locator("strong").inner_text()
        assert said in ("Temporal is away", "Nobody answered")
        assert await visit.page.get_by_label("Reason", exact=True).input_value() == "nobody asked for it"
        assert await visit.page.get_by_role("radio", name="Reject").is_checked()
        await visit.page.goto(f"{deployment.base}/queue")
        assert "Signs off with a quote." in await rules(visit)


async def rules(visit: Visit) -> list[str]:
    return await visit.page.locator("a.rule").all_inner_texts()


async def decide(visit: Visit, key: str, reason: str = "as it says") -> None:
    async with visit.page.expect_navigation(timeout=30_000):
        await visit.page.keyboard.press(key)
        await visit.page.keyboard.type(reason)
        await visit.page.keyboard.press("Control+Enter")
