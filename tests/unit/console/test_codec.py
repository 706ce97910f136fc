"""Temporal's page has payloads decrypted for one signed-in person who may see everything, and for nobody else."""

from __future__ import annotations

import json

import pytest
from google.protobuf import json_format
from temporalio.api.common.v1 import Payload, Payloads

from retold.client.encryption import EncryptingCodec, KeyRing
from retold.console import codec as codec_module
from retold.contracts.review import ReviewerRole
from retold.settings import ConsoleSettings
from tests.unit.console.conftest import START, Page

TEMPORAL = "http://localhost:8233"
SAID = Payload(metadata={"encoding": b"json/plain"}, data=b'"my card number"')
ASKING = {"Origin": TEMPORAL, "Content-Type": "application/json", "Sec-Fetch-Site": "same-site"}


@pytest.fixture
async def sealed(page: Page) -> bytes:
    page.codec = EncryptingCodec(KeyRing({"k": b"k" * 32}))
    page.restart(ConsoleSettings(codec_origins=(TEMPORAL,)))
    return json_format.MessageToJson(Payloads(payloads=await page.codec.encode([SAID]))).encode()


async def token(page: Page, role: ReviewerRole = ReviewerRole.REVIEWER, tenants: tuple[str, ...] | None = None) -> str:
    _, secret = await page.store.reviewers.register("rita", "Rita", role, tenants=tenants, actor="test", at=START)
    return secret


async def test_whoever_may_see_every_tenant_reads_a_history(page: Page, sealed: bytes) -> None:
    browser = await page.signed_in(await token(page))
    answer = await browser.post("/codec/decode", content=sealed, headers=ASKING)
    assert answer.status_code == 200
    (payload,) = json_format.Parse(answer.text, Payloads()).payloads
    assert payload == SAID
    assert answer.headers["access-control-allow-origin"] == TEMPORAL
    assert answer.headers["access-control-allow-credentials"] == "true"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(("role", "tenants"), [(ReviewerRole.VIEWER, None), (ReviewerRole.REVIEWER, ("acme",))])
async def test_histories_are_not_for_viewers_or_for_reviewers_of_one_tenant(
    page: Page, sealed: bytes, role: ReviewerRole, tenants: tuple[str, ...] | None
) -> None:
    browser = await page.signed_in(await token(page, role, tenants))
    answer = await browser.post("/codec/decode", content=sealed, headers=ASKING)
    assert answer.status_code == 403 and b"card" not in answer.content


async def test_nobody_reads_without_signing_in_or_from_another_page(page: Page, sealed: bytes) -> None:
    stranger = await page.browser().post("/codec/decode", content=sealed, headers=ASKING)
    assert stranger.status_code == 401
    browser = await page.signed_in(await token(page))
    for origin in ("http://evil.example", "null", "http://localhost:8300"):
        answer = await browser.post("/codec/decode", content=sealed, headers={**ASKING, "Origin": origin})
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers


async def test_the_browser_s_question_before_is_answered_for_temporal_s_page_only(page: Page, sealed: bytes) -> None:
    asked = await page.browser().options("/codec/decode", headers={"Origin": TEMPORAL})
    assert asked.status_code == 204 and asked.headers["access-control-allow-methods"] == "POST"
    assert (await page.browser().options("/codec/decode", headers={"Origin": "http://evil.example"})).status_code == 403


async def test_what_cannot_be_decrypted_names_the_key_and_what_is_no_list_is_refused(
    page: Page, sealed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = await page.signed_in(await token(page))
    other = await EncryptingCodec(KeyRing({"gone": b"g" * 32})).encode([SAID])
    body = json_format.MessageToJson(Payloads(payloads=other)).encode()
    undecryptable = await browser.post("/codec/decode", content=body, headers=ASKING)
    assert undecryptable.status_code == 422 and "'gone'" in undecryptable.json()["error"]
    for nonsense in (b"{", b"\xff", json.dumps({"payloads": 3}).encode()):
        assert (await browser.post("/codec/decode", content=nonsense, headers=ASKING)).status_code == 400
    monkeypatch.setattr(codec_module, "BODY_MAX_BYTES", 100)
    assert (await browser.post("/codec/decode", content=b"x" * 101, headers=ASKING)).status_code == 413


async def test_without_keys_or_origins_there_is_no_such_address(page: Page) -> None:
    browser = await page.signed_in(await token(page))
    assert (await browser.post("/codec/decode", content=b"{}")).status_code == 404
