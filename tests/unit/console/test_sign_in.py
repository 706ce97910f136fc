"""Signing in and out, what a session outlives and what ends it, and what a form must carry to be believed."""

from __future__ import annotations

import hashlib
import logging
from datetime import timedelta

import httpx
import pytest
from sqlalchemy import text

from retold.console.attempts import ADDRESSES_KEPT, IN_ALL, PER_ADDRESS, WINDOW_S, Attempts
from retold.console.sign_in import ANSWERED_AFTER_S, HeldCredentials
from retold.contracts.review import ReviewerRole
from retold.credentials import ReviewerCredential
from retold.settings import ConsoleSettings
from tests.unit.console.conftest import Page, form_of

SECURE = ConsoleSettings(behind_tls=True, allowed_hosts=("reviews.example",))


async def is_in(browser: httpx.AsyncClient) -> bool:
    answer = await browser.get("/queue")
    assert answer.status_code in (200, 303)
    return answer.status_code == 200


async def test_a_token_opens_the_queue_and_signing_out_closes_it(page: Page) -> None:
    token = await page.seeding.person()
    browser = page.browser()
    assert (await browser.get("/queue")).headers["location"] == "/sign-in?next=%2Fqueue"

    answer = await browser.post("/sign-in", data={"token": f"  {token}\n"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/queue")
    queue = await browser.get("/queue")
    assert queue.status_code == 200 and "Rita Okonjo" in queue.text

    cookie = browser.cookies["retold"]
    assert await is_in(page.browser(Cookie=f"retold={cookie}")), "it is the cookie that opens the page"
    left = await browser.post("/sign-out", data=form_of(queue.text, "/sign-out").fields)
    assert left.headers["location"] == "/sign-in" and "retold" not in browser.cookies
    assert not await is_in(page.browser(Cookie=f"retold={cookie}")), "the session is over, not only its cookie"


async def test_the_cookie_is_nobody_else_s(page: Page) -> None:
    token = await page.seeding.person()
    plain = (await page.browser().post("/sign-in", data={"token": token})).headers["set-cookie"]
    assert plain.startswith("retold=")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(plain.split("; ")) and "Domain" not in plain

    page.restart(SECURE)
    secure = page.browser(host="reviews.example")
    cookie = (await secure.post("/sign-in", data={"token": token})).headers["set-cookie"]
    assert cookie.startswith("__Host-retold=")
    assert {"Secure", "HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; ")) and "Domain" not in cookie


async def test_the_store_holds_a_hash_and_never_cookie_token_or_key(page: Page) -> None:
    token = await page.seeding.person()
    browser = await page.signed_in(token)
    secret = browser.cookies["retold"]
    with page.seeding.engine.connect() as connection:
        rows = connection.execute(text("SELECT * FROM console_sessions")).all()
    [row] = rows
    assert row.session_hash == "sha256:" + hashlib.sha256(secret.encode()).hexdigest()
    kept = repr(row)
    assert secret not in kept and token not in kept and token.rpartition(".")[2] not in kept
    assert token not in repr(browser.cookies) and len(secret) >= 43


async def test_every_sign_in_is_a_new_session(page: Page) -> None:
    token = await page.seeding.person()
    browser = page.browser()
    browser.cookies.set("retold", "chosen-by-an-attacker", domain="localhost")
    await browser.post("/sign-in", data={"token": token})
    again = await page.signed_in(token)
    assert len({"chosen-by-an-attacker", again.cookies["retold"], *(c.value for c in browser.cookies.jar)}) == 3


@pytest.mark.parametrize("cookie", ["", "x", "x" * 65, "ünïcode", "a" * 43])
async def test_a_made_up_cookie_opens_nothing(page: Page, cookie: str) -> None:
    await page.signed_in(await page.seeding.person())
    answer = await page.browser().get("/queue", headers=[(b"Cookie", f"retold={cookie}".encode())])
    assert answer.status_code == 303


async def test_a_session_ends_by_itself(page: Page) -> None:
    token = await page.seeding.person()
    settings = page.settings
    busy = await page.signed_in(token)
    idle = await page.signed_in(token)
    began = page.now
    step = timedelta(minutes=settings.idle_minutes - 1)
    while page.now + step < began + timedelta(minutes=settings.session_minutes):
        page.now += step
        assert await is_in(busy), "in use"
    assert not await is_in(idle), "nobody used it for longer than the idle time"
    page.now = began + timedelta(minutes=settings.session_minutes) - timedelta(seconds=1)
    assert await is_in(busy)
    page.now += timedelta(seconds=1)
    assert not await is_in(busy), "in use all the time, and over"


async def test_a_disabled_reviewer_is_out_at_once(page: Page) -> None:
    browser = await page.signed_in(await page.seeding.person())
    assert await is_in(browser)
    await page.store.reviewers.disable("rita", actor="root", reason="left", at=page.now)
    assert not await is_in(browser)


async def test_unknown_disabled_and_malformed_tokens_get_one_answer(page: Page) -> None:
    disabled = await page.seeding.person("otto")
    await page.store.reviewers.disable("otto", actor="root", reason="left", at=page.now)
    other = ReviewerCredential.issue("nobody").token
    stolen_name = ReviewerCredential.issue("otto").token
    answers = []
    for token in (disabled, other, stolen_name, "", "x" * 4_000, "retold-reviewer.%%%.%%%"):
        answer = await page.browser().post("/sign-in", data={"token": token})
        answers.append((answer.status_code, answer.text, sorted(answer.headers)))
    assert answers[0][0] == 401
    assert all(answer == answers[0] for answer in answers)
    assert len(page.paused) == 6 and all(ANSWERED_AFTER_S - 0.2 < pause <= ANSWERED_AFTER_S for pause in page.paused)


async def test_tries_are_counted_by_address(page: Page) -> None:
    token = await page.seeding.person()
    browser = page.browser()
    for _ in range(PER_ADDRESS):
        assert (await browser.post("/sign-in", data={"token": "wrong"})).status_code == 401
    refused = await browser.post("/sign-in", data={"token": token})
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "60")
    assert not await is_in(browser), "a right token does not help either"
    assert await is_in(await page.signed_in(token, address="198.51.100.20")), "others are not kept out"


def test_tries_are_counted_in_all_and_in_bounded_memory() -> None:
    attempts = Attempts()
    allowed = sum(attempts.may_try(f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}", 0.0) for n in range(IN_ALL + 50))
    assert allowed == IN_ALL
    assert attempts.may_try("10.9.9.9", WINDOW_S), "the window is over"
    for n in range(2 * ADDRESSES_KEPT):
        attempts.may_try(f"10.1.{n >> 8 & 255}.{n & 255}", 1.0)
    assert len(attempts) <= ADDRESSES_KEPT

    network = Attempts(per_address=2)
    tries = [network.may_try(f"2001:db8:0:1::{n:x}", 0.0) for n in range(4)]
    assert tries == [True, True, False, False], "one network is one address"
    assert network.may_try("2001:db8:0:2::1", 0.0)


async def test_a_form_of_another_session_is_not_believed(page: Page) -> None:
    token = await page.seeding.person()
    review = await page.seeding.item()
    mine, theirs = await page.signed_in(token), await page.signed_in(token)
    form = form_of((await mine.get(f"/reviews/{review.review_id}")).text, "/reviews/")
    said = {**form.fields, "resolution": "keep_conditional", "reason": "at times"}

    for csrf in ("", "0" * 64, "é", form.fields["csrf"][:-1]):
        assert (await mine.post(form.action, data={**said, "csrf": csrf})).status_code == 403
    assert (await theirs.post(form.action, data=said)).status_code == 403
    assert (await mine.post("/sign-out", data={"csrf": "0" * 64})).status_code == 403
    assert page.sent == [] and await is_in(mine)
    assert (await mine.post(form.action, data=said)).status_code == 303


async def test_after_a_restart_everything_shows_and_the_first_decision_asks_for_the_token(page: Page) -> None:
    token = await page.seeding.person()
    other = await page.seeding.person("olga", name="Olga")
    review, following = await page.seeding.item(), await page.seeding.item()
    browser = await page.signed_in(token)
    page.restart()

    shown = await browser.get(f"/reviews/{review.review_id}")
    assert shown.status_code == 200
    form = form_of(shown.text, "/reviews/")
    assert "token" in form.fields
    said = {**form.fields, "resolution": "keep_conditional", "reason": "fits sometimes"}
    for wrong in ("", "nonsense", other):
        answer = await browser.post(form.action, data={**said, "token": wrong})
        assert answer.status_code == 422 and "fits sometimes" in answer.text
        assert wrong in ("", "nonsense") or wrong not in answer.text
    assert page.sent == []

    assert (await browser.post(form.action, data={**said, "token": token})).status_code == 303
    next_form = form_of((await browser.get(f"/reviews/{following.review_id}")).text, "/reviews/")
    assert "token" not in next_form.fields, "it is asked once"


async def test_the_token_cannot_be_guessed_at_the_decision_either(page: Page) -> None:
    token = await page.seeding.person()
    review = await page.seeding.item()
    browser = await page.signed_in(token)
    page.restart()
    form = form_of((await browser.get(f"/reviews/{review.review_id}")).text, "/reviews/")
    said = {**form.fields, "resolution": "keep_conditional", "reason": "at times"}
    for _ in range(PER_ADDRESS):
        await browser.post(form.action, data={**said, "token": "wrong"})
    answer = await browser.post(form.action, data={**said, "token": token})
    assert answer.status_code == 422 and "Too many attempts" in answer.text
    assert page.sent == []


def test_held_credentials_are_bounded() -> None:
    held = HeldCredentials(most=2)
    credential = ReviewerCredential.issue("rita")
    for name in ("a", "b"):
        held.hold(name, credential)
    assert held.of("a") is credential, "now b is the one used least recently"
    held.hold("c", credential)
    assert (held.of("a"), held.of("b"), held.of("c")) == (credential, None, credential)
    held.let_go("a")
    assert held.of("a") is None


@pytest.mark.parametrize(
    ("wanted", "leads_to"),
    [
        ("/reviews/abc?status=all", "/reviews/abc?status=all"),
        ("/history", "/history"),
        ("https://evil.example/queue", "/queue"),
        ("//evil.example/queue", "/queue"),
        ("/\\evil.example", "/queue"),
        ("/queue\r\nSet-Cookie: x=y", "/queue"),
        ("/sign-out", "/queue"),
        ("javascript:alert(1)", "/queue"),
        ("", "/queue"),
    ],
)
async def test_signing_in_leads_back_and_never_to_another_site(page: Page, wanted: str, leads_to: str) -> None:
    token = await page.seeding.person()
    answer = await page.browser().post("/sign-in", data={"token": token, "next": wanted})
    assert answer.headers["location"] == leads_to


async def test_a_link_from_another_site_is_opened_by_a_page_of_ours(page: Page) -> None:
    review = await page.seeding.item()
    browser = await page.signed_in(await page.seeding.person())
    address = f"/reviews/{review.review_id}"
    arriving = await page.browser().get(address, headers={"Sec-Fetch-Site": "cross-site"})
    assert arriving.status_code == 200 and '<meta http-equiv="refresh" content="0">' in arriving.text
    assert (await browser.get(address)).status_code == 200, "what the refresh then asks for, cookie included"
    again = await page.browser().get(address)
    assert again.headers["location"].startswith("/sign-in?next=%2Freviews%2F"), "no loop for who is not signed in"


async def test_nothing_personal_is_logged(page: Page, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = await page.seeding.person(name="Rita Okonjo")
    viewer = await page.seeding.person("vera", ReviewerRole.VIEWER, name="Vera")
    review = await page.seeding.item(
        "Calls the user Tovelise.", "Call me Tovelise, always.", "Call me Tovelise, always"
    )
    browser = await page.signed_in(token)
    await browser.get(f"/reviews/{review.review_id}")
    form = form_of((await browser.get(f"/reviews/{review.review_id}")).text, "/reviews/")
    await browser.post(form.action, data={**form.fields, "resolution": "reject", "reason": "private grounds"})
    await browser.get("/queue?tenant=harbour")
    await page.browser().post("/sign-in", data={"token": "wrong"})
    await page.signed_in(viewer)
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("retold")]
    assert ours == ["sign-in refused"]
    everything = caplog.text.replace(str(browser.base_url), "")
    for text_ in (
        "Tovelise",
        "private grounds",
        token,
        viewer,
        "Okonjo",
        form.fields["csrf"],
        browser.cookies["retold"],
    ):
        assert text_ not in everything
