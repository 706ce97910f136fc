"""Deciding about one item: what is shown, what is sent, and every way in which somebody or something was faster."""

from __future__ import annotations

import html
import re
from datetime import timedelta

import httpx
import pytest

from retold.client import DecisionRefusedError
from retold.console import wording
from retold.console.sending import KINDS
from retold.contracts.activation import ActivationCategory, ActivationReason, EvidenceMethod
from retold.contracts.review import RefusedDecision, Review
from tests.unit.console.conftest import START, Form, Page, form_of
from tests.unit.console.seeded import SPAN


async def decision_of(browser: httpx.AsyncClient, review: Review, **said: str) -> tuple[Form, dict[str, str]]:
    """The item's form, and what it sends with this filled in."""
    form = form_of((await browser.get(f"/reviews/{review.review_id}")).text, "/reviews/")
    return form, {**form.fields, "reason": "as it says", **said}


def heading(answer: httpx.Response) -> str:
    found = re.search(r'role="alert"[^>]*>\s*<strong>([^<]+)</strong>', answer.text)
    assert found is not None, answer.text
    return html.unescape(found[1])


async def test_an_item_shows_what_was_said_what_is_proposed_and_what_would_change(page: Page) -> None:
    page.seeding.ambient("Uses metric units.")
    review = await page.seeding.item(method=EvidenceMethod.SIMILAR)
    browser = await page.signed_in(await page.seeding.person())
    shown = (await browser.get(f"/reviews/{review.review_id}")).text

    assert f'<mark id="evidence">{SPAN}</mark>, whatever I ask.</blockquote>' in shown
    assert ">Thanks, that was long. Please <mark" in shown, "the whole turn"
    assert "in other words; polarity, language, scope and object agree (0.83)" in shown
    assert "The classifier is not sure enough of its own answer." in shown
    assert re.search(r'<li class="added"><ins dir="auto"><span class="sr">added: </span>- Answers in short sent', shown)
    assert re.search(r'<li class="same"><span dir="auto">- Uses metric units', shown)
    for fact in ("0.62", "local-activation", "2026-11", "answer style", "rec-00002", "memory-team"):
        assert fact in shown
    assert '<b>opened</b> by <bdi>retold</bdi>: <span dir="auto">low confidence</span>' in shown


async def test_a_turn_that_no_longer_says_it_is_shown_without_a_mark(page: Page) -> None:
    review = await page.seeding.item()
    moved = review.evidence.model_dump(mode="json") if review.evidence else {}
    page.seeding.change(review, evidence={**moved, "start": moved["start"] + 1, "end": moved["end"] + 1})
    browser = await page.signed_in(await page.seeding.person())
    shown = (await browser.get(f"/reviews/{review.review_id}")).text
    assert "<mark" not in shown and "no longer holds the words that were quoted" in shown


@pytest.mark.parametrize("reason", list(ActivationReason))
async def test_every_reason_has_its_words(page: Page, reason: ActivationReason) -> None:
    review = await page.seeding.item(reason=reason)
    browser = await page.signed_in(await page.seeding.person())
    shown = (await browser.get(f"/reviews/{review.review_id}")).text
    why = re.search(r"Why it is here\.</b> ([^<]{15,})", shown)
    assert why is not None and "_" not in why[1]
    assert (await browser.get("/help")).status_code == 200


@pytest.mark.parametrize(
    ("resolution", "status", "said"),
    [
        ("promote", "promoted", "Promoted"),
        ("keep_conditional", "kept_conditional", "Kept conditional"),
        ("reject", "rejected", "Rejected"),
    ],
)
async def test_a_decision_is_taken_and_the_next_item_opens(page: Page, resolution: str, status: str, said: str) -> None:
    before, review, after = [await page.seeding.item(age=timedelta(hours=9 - n)) for n in range(3)]
    browser = await page.signed_in(await page.seeding.person())
    form, fields = await decision_of(browser, review, resolution=resolution, reason="as it says\r\nthere")
    answer = await browser.post(form.action, data=fields)

    assert answer.headers["location"] == f"/reviews/{after.review_id}?decided={review.review_id}"
    following = await browser.get(answer.headers["location"])
    assert f"<strong>{said}</strong>" in following.text and 'role="status"' in following.text
    [sent] = page.sent
    assert (sent.reason, sent.expected_version, sent.reviewer_id) == ("as it says\nthere", 1, "rita")
    ended = (await browser.get(f"/reviews/{review.review_id}")).text
    assert f'class="status {status}"' in ended and "as it says" in ended and "<fieldset" not in ended
    assert (await page.store.reviews.item(before.review_id, START)) is not None


async def test_the_last_decision_leads_to_the_one_before_and_then_to_the_queue(page: Page) -> None:
    first, last = await page.seeding.item(age=timedelta(hours=9)), await page.seeding.item()
    browser = await page.signed_in(await page.seeding.person())
    form, fields = await decision_of(browser, last, resolution="keep_conditional")
    answer = await browser.post(form.action, data=fields)
    assert answer.headers["location"].startswith(f"/reviews/{first.review_id}?"), "there is one left, from the start"
    form, fields = await decision_of(browser, first, resolution="keep_conditional")
    answer = await browser.post(form.action, data=fields)
    assert answer.headers["location"] == f"/queue?decided={first.review_id}"
    assert "Nothing waits for a decision." in (await browser.get(answer.headers["location"])).text


async def test_the_next_item_is_one_of_the_filtered_queue(page: Page) -> None:
    review = await page.seeding.item(tenant="acme", age=timedelta(hours=9))
    await page.seeding.item(tenant="harbour", age=timedelta(hours=8))
    wanted = await page.seeding.item(tenant="acme", age=timedelta(hours=7))
    browser = await page.signed_in(await page.seeding.person())
    shown = (await browser.get(f"/reviews/{review.review_id}?tenant=acme")).text
    form = form_of(shown, "/reviews/")
    answer = await browser.post(
        html.unescape(form.action), data={**form.fields, "resolution": "keep_conditional", "reason": "at times"}
    )
    assert answer.headers["location"] == f"/reviews/{wanted.review_id}?tenant=acme&decided={review.review_id}"


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"resolution": ""}, "Choose one of the three"),
        ({"resolution": "approve"}, "Choose one of the three"),
        ({"resolution": "reject", "reason": ""}, "Say why"),
        ({"resolution": "promote", "reason": ""}, "Say why"),
        ({"resolution": "keep_conditional", "reason": ""}, "Say why"),
        ({"resolution": "reject", "reason": " \r\n "}, "Say why"),
        ({"resolution": "promote", "reason": "with sk-" + "a1B2" * 8}, "The reason seems to hold a secret (API key)"),
        ({"resolution": "promote", "reason": "x" * 501}, "A reason has 500 characters at most; this has 501"),
        ({"resolution": "promote", "version": ""}, "which version you saw"),
        ({"resolution": "promote", "version": "0"}, "which version you saw"),
        ({"resolution": "promote", "version": "²"}, "which version you saw"),
        ({"resolution": "promote", "version": "9" * 30}, "which version you saw"),
        ({"resolution": "promote", "category": "other"}, "Choose one of the categories"),
    ],
)
async def test_an_incomplete_decision_is_not_sent(page: Page, said: dict[str, str], complaint: str) -> None:
    review = await page.seeding.item()
    browser = await page.signed_in(await page.seeding.person())
    form, fields = await decision_of(browser, review, **said)
    answer = await browser.post(form.action, data=fields)
    assert answer.status_code == 422 and complaint in html.unescape(answer.text)
    assert page.sent == []


async def test_a_promotion_without_a_category_asks_for_one(page: Page) -> None:
    review = await page.seeding.item(reason=ActivationReason.POLICY_TIMEOUT, category=None)
    browser = await page.signed_in(await page.seeding.person())
    form, fields = await decision_of(browser, review, resolution="promote", reason="plain enough")
    refused = await browser.post(form.action, data=fields)
    assert refused.status_code == 409 and heading(refused) == "It can no longer be promoted"
    answer = await browser.post(form.action, data={**fields, "category": "accessibility"})
    assert answer.status_code == 303
    assert [sent.category for sent in page.sent] == [None, ActivationCategory.ACCESSIBILITY]


async def test_somebody_was_faster(page: Page) -> None:
    review = await page.seeding.item()
    rita = await page.signed_in(await page.seeding.person())
    olga = await page.signed_in(await page.seeding.person("olga", name="Olga"))
    form, slow = await decision_of(rita, review, resolution="promote", reason="slow")
    _, fast = await decision_of(olga, review, resolution="reject", reason="it was a joke")
    assert (await olga.post(form.action, data=fast)).status_code == 303
    answer = await rita.post(form.action, data=slow)
    assert answer.status_code == 409 and heading(answer) == "Somebody was faster"
    assert "it was a joke" in answer.text and "olga" in answer.text and "<fieldset" not in answer.text
    assert "decision refused</b> by <bdi>rita" in answer.text, "the attempt is in the history"


@pytest.mark.parametrize(
    ("changed", "said", "open_still"),
    [
        ({"version": 2}, "The item changed while you looked at it", True),
        ({"status": "expired", "resolved_at": START}, "Somebody was faster", False),
        ({"status": "withdrawn", "resolved_at": START}, "The item was withdrawn", False),
        ({"status": "deferred"}, "It is not this item's turn yet", False),
        ({"evidence": None}, "It can no longer be promoted", True),
        ({"category": "other"}, "It can no longer be promoted", True),
    ],
)
async def test_what_changed_meanwhile_is_said_and_shown(
    page: Page, changed: dict[str, object], said: str, open_still: bool
) -> None:
    review = await page.seeding.item()
    browser = await page.signed_in(await page.seeding.person())
    form, fields = await decision_of(browser, review, resolution="promote", reason="my reasons")
    page.seeding.change(review, **changed)
    answer = await browser.post(form.action, data=fields)
    assert (answer.status_code, heading(answer)) == (409, said)
    assert ("<fieldset" in answer.text) is open_still
    if open_still:
        assert ">my reasons</textarea>" in answer.text, "nobody writes it twice"
        again = form_of(answer.text, "/reviews/")
        assert again.fields["version"] == str(changed.get("version", 1))
        kept = await browser.post(
            form.action, data={**again.fields, "resolution": "keep_conditional", "reason": "at times"}
        )
        assert kept.status_code == 303


async def test_a_record_that_changed_withdraws_the_item(page: Page) -> None:
    review = await page.seeding.item()
    browser = await page.signed_in(await page.seeding.person())
    form, fields = await decision_of(browser, review, resolution="promote")
    page.seeding.change_record(review, version=2, text="Answers at length.")
    answer = await browser.post(form.action, data=fields)
    assert (answer.status_code, heading(answer)) == (409, "The item was withdrawn")


async def test_temporal_away_decides_nothing_and_forgets_nothing(page: Page) -> None:
    review = await page.seeding.item()
    browser = await page.signed_in(await page.seeding.person())
    form, fields = await decision_of(browser, review, resolution="reject", reason="it was a joke")
    page.away = True
    answer = await browser.post(form.action, data=fields)
    assert (answer.status_code, heading(answer)) == (503, "Temporal is away")
    assert ">it was a joke</textarea>" in answer.text
    assert re.search(r'value="reject"[^>]* checked', answer.text)
    page.away = False
    again = form_of(answer.text, "/reviews/").fields | {"resolution": "reject", "reason": "it was a joke"}
    assert (await browser.post(form.action, data=again)).status_code == 303


async def test_an_answer_that_does_not_come_may_still_be_one(page: Page) -> None:
    review = await page.seeding.item()
    browser = await page.signed_in(await page.seeding.person())
    form, fields = await decision_of(browser, review, resolution="promote")
    page.unanswered = True
    answer = await browser.post(form.action, data=fields)
    assert (answer.status_code, heading(answer)) == (503, "Nobody answered")
    assert 'class="status promoted"' in answer.text, "it was taken, and the page says what the store says"
    page.unanswered = False
    assert (await browser.post(form.action, data=fields)).status_code == 303, "sent again, it finds itself"


async def test_a_malformed_item_can_be_kept_or_rejected_and_not_promoted(page: Page) -> None:
    review = await page.seeding.item()
    page.seeding.damage(review)
    browser = await page.signed_in(await page.seeding.person())
    shown = (await browser.get(f"/reviews/{review.review_id}")).text
    assert 'value="keep_conditional"' in shown and 'value="reject"' in shown and 'value="promote"' not in shown
    form, fields = await decision_of(browser, review, resolution="reject", reason="unreadable")
    assert (await browser.post(form.action, data=fields)).status_code == 303


async def test_the_same_decision_sent_twice_is_one(page: Page) -> None:
    review = await page.seeding.item()
    browser = await page.signed_in(await page.seeding.person())
    form, fields = await decision_of(browser, review, resolution="promote", reason="once")
    trails = []
    for _ in range(2):
        assert (await browser.post(form.action, data=fields)).status_code == 303
        trails.append(await page.store.audit_events(review.principal))
    assert len(page.sent) == 2 and trails[0] == trails[1]
    assert "rita" in [event.actor for event in trails[0]]


def test_every_refusal_of_the_workflow_has_its_words() -> None:
    refusals = set(DecisionRefusedError.__subclasses__())
    assert set(KINDS) == refusals and set(KINDS.values()) == set(RefusedDecision) == set(wording.REFUSED)
