"""What holds for every request and every answer, whichever page it is. Each test fails if its rule is taken away."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from retold.console.security import BODY_MAX_BYTES
from retold.settings import ConsoleSettings
from retold.store.engine import StoreUnavailableError
from tests.unit.console.conftest import Page, form_of

SECURE = ConsoleSettings(behind_tls=True, allowed_hosts=("reviews.example",))
EVERYWHERE = ["/", "/sign-in", "/queue", "/nowhere", "/healthz", "/static/console.css", "/static/../app.py", "/help"]


@pytest.mark.parametrize("path", EVERYWHERE)
async def test_every_answer_says_what_a_browser_may_do_with_it(page: Page, path: str) -> None:
    browser = await page.signed_in(await page.seeding.person())
    headers = (await browser.get(path)).headers
    policy = {part.strip() for part in headers["content-security-policy"].split(";")}
    assert policy == {
        "default-src 'none'",
        "style-src 'self'",
        "script-src 'self'",
        "img-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    }
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert "strict-transport-security" not in headers and "server" not in headers


async def test_behind_tls_browsers_are_told_to_stay_there(page: Page) -> None:
    page.restart(SECURE)
    answer = await page.browser(host="reviews.example").get("/sign-in")
    assert answer.headers["strict-transport-security"] == "max-age=31536000"


async def test_no_page_has_a_script_or_a_style_of_its_own(page: Page) -> None:
    review = await page.seeding.item()
    browser = await page.signed_in(await page.seeding.person())
    for path in ("/sign-in", "/queue", f"/reviews/{review.review_id}", "/history", "/help", "/nowhere"):
        html = (await browser.get(path)).text.lower()
        assert html.count("<script") == html.count('<script src="/static/') <= 1
        assert "<style" not in html and " style=" not in html and " on" not in _attribute_names(html)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8300", 303),
        ("LOCALHOST", 303),
        ("127.0.0.1:1", 303),
        ("[::1]:8300", 303),
        ("evil.example", 400),
        ("localhost.evil.example", 400),
        ("localhost@evil.example", 400),
        ("", 400),
    ],
)
async def test_only_its_own_names_are_answered(page: Page, host: str, status: int) -> None:
    browser = page.browser()
    assert (await browser.get("/queue", headers={"Host": host})).status_code == status


@pytest.mark.parametrize(
    ("origin", "site", "passes"),
    [
        ("http://localhost:8300", "same-origin", True),
        ("http://localhost:8300", None, True),
        (None, "same-origin", True),
        (None, None, False),
        ("http://evil.example", "cross-site", False),
        ("http://evil.example", None, False),
        ("http://localhost:8300", "cross-site", False),
        ("http://localhost:9999", None, False),
        ("https://localhost:8300", None, False),
        ("null", None, False),
        (None, "same-site", False),
        (None, "none", False),
    ],
)
async def test_a_change_comes_from_a_page_of_ours(
    page: Page, origin: str | None, site: str | None, passes: bool
) -> None:
    token = await page.seeding.person()
    browser = page.browser()
    for name, value in (("Origin", origin), ("Sec-Fetch-Site", site)):
        if value is None:
            del browser.headers[name]
        else:
            browser.headers[name] = value
    answer = await browser.post("/sign-in", data={"token": token})
    assert answer.status_code == (303 if passes else 403)
    assert ("set-cookie" in answer.headers) is passes


async def test_behind_tls_the_origin_is_https_whatever_the_proxy_speaks(page: Page) -> None:
    token = await page.seeding.person()
    page.restart(SECURE)
    browser = page.browser(host="reviews.example")
    for origin, status in (("https://reviews.example", 303), ("http://reviews.example", 403)):
        answer = await browser.post("/sign-in", data={"token": token}, headers={"Origin": origin})
        assert answer.status_code == status


async def test_a_body_is_bounded_announced_or_not(page: Page, caplog: pytest.LogCaptureFixture) -> None:
    browser = await page.signed_in(await page.seeding.person())
    form = {"Content-Type": "application/x-www-form-urlencoded"}

    async def trickle() -> Any:
        for _ in range(4 * BODY_MAX_BYTES // 1024):
            yield b"a" * 1024

    assert (await browser.post("/sign-in", content=b"a" * (BODY_MAX_BYTES + 1), headers=form)).status_code == 413
    assert (await browser.post("/sign-in", content=trickle(), headers=form)).status_code == 413
    assert [line.message for line in caplog.records if line.levelno >= logging.ERROR] == []  # it is no mistake of ours
    assert (await browser.post("/sign-in", content=b"token=" + b"a" * 1000, headers=form)).status_code == 401
    many = "&".join(f"f{n}=1" for n in range(100)).encode()
    assert (await browser.post("/sign-in", content=many, headers=form)).status_code == 400


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data; boundary=x", "text/plain", ""])
async def test_only_forms_are_read(page: Page, kind: str) -> None:
    answer = await page.browser().post("/sign-in", content=b"token=x", headers={"Content-Type": kind})
    assert answer.status_code == 415


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_no_other_method_does_anything(page: Page, method: str) -> None:
    browser = await page.signed_in(await page.seeding.person())
    assert (await browser.request(method, "/queue")).status_code == 405


async def test_reading_never_changes_anything(page: Page) -> None:
    review = await page.seeding.item()
    browser = await page.signed_in(await page.seeding.person())
    form = form_of((await browser.get(f"/reviews/{review.review_id}")).text, "/reviews/")
    await browser.get(form.action, params={**form.fields, "resolution": "promote"})
    await browser.get("/sign-out")
    assert page.sent == [] and (await browser.get("/queue")).status_code == 200


async def test_a_mistake_of_ours_is_logged_by_place_and_never_by_value(
    page: Page, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = await page.signed_in(await page.seeding.person())

    async def mistaken(*_: object) -> None:
        raise KeyError("what the user said in confidence")

    monkeypatch.setattr("retold.console.serving.StoreDesk.page", mistaken)
    answer = await browser.get("/queue")
    assert answer.status_code == 500 and "confidence" not in answer.text
    assert answer.headers["content-security-policy"]
    assert "KeyError at mistaken (test_security.py:" in caplog.text and "confidence" not in caplog.text


async def test_a_store_that_is_away_is_said_so(
    page: Page, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = await page.signed_in(await page.seeding.person())
    assert (await browser.get("/readyz")).text == "ok"

    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailableError("OperationalError: disk I/O error")

    for name in ("ping", "page"):
        monkeypatch.setattr(f"retold.console.serving.StoreDesk.{name}", away)
    assert (await browser.get("/readyz")).status_code == 503
    assert (await browser.get("/healthz")).status_code == 200, "nobody restarts a console for its store"
    answer = await browser.get("/queue")
    assert answer.status_code == 503 and "The store does not answer" in answer.text and "disk" not in answer.text
    assert [record.levelno for record in caplog.records if record.name.startswith("retold")] == [logging.ERROR] * 2


async def test_health_needs_no_sign_in_no_name_and_tells_nothing(page: Page) -> None:
    for path in ("/healthz", "/readyz"):
        answer = await page.browser().get(path, headers={"Host": "10.2.3.4:8300"})
        assert (answer.status_code, answer.text) == (200, "ok")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"host": "0.0.0.0"}, "can be reached from elsewhere"),
        ({"host": "::"}, "can be reached from elsewhere"),
        ({"host": "192.0.2.7"}, "can be reached from elsewhere"),
        ({"host": "reviews.example"}, "can be reached from elsewhere"),
        ({"certificate": Path("cert.pem")}, "name both or neither"),
        ({"behind_tls": True, "allowed_hosts": ("*",)}, "without patterns"),
        ({"behind_tls": True, "allowed_hosts": ("*.example",)}, "without patterns"),
        ({"allowed_hosts": ()}, "at least 1 item"),
        ({"host": "0.0.0.0", "behind_loopback": True, "allowed_hosts": ("reviews.example",)}, "loopback only"),
    ],
)
def test_it_does_not_start_in_the_open(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ConsoleSettings(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"host": "localhost"},
        {"host": "::1"},
        {"host": "127.0.0.5"},
        {"host": "0.0.0.0", "behind_tls": True, "allowed_hosts": ("reviews.example",)},
        {"host": "0.0.0.0", "behind_loopback": True},
        {"host": "0.0.0.0", "certificate": Path("cert.pem"), "certificate_key": Path("key.pem")},
    ],
)
def test_it_starts_on_loopback_or_with_tls(settings: dict[str, Any]) -> None:
    configured = ConsoleSettings(**settings)
    assert configured.is_loopback or configured.secure or configured.behind_loopback


def _attribute_names(html: str) -> str:
    """Everything inside tags with the quoted values taken out: what is left are element and attribute names."""
    inside = " ".join(part.partition(">")[0] for part in html.split("<")[1:])
    return " " + " ".join(piece for number, piece in enumerate(inside.split('"')) if number % 2 == 0)
