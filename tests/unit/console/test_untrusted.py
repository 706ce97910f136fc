"""Text of strangers: it is shown, it never acts, and nothing in it hides."""

from __future__ import annotations

from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retold.console import untrusted
from retold.contracts.activation import ActivationReason
from tests.unit.console.conftest import Page, form_of
from tests.unit.console.hostile import HOSTILE


class Elements(HTMLParser):
    """The elements and attributes of a page, without texts and values."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        if said.get("class") != "hidden-char":
            self.found.append((tag, tuple(said)))


def elements(html: str) -> list[tuple[str, tuple[str, ...]]]:
    reader = Elements()
    reader.feed(html)
    return reader.found


async def test_no_text_adds_an_element_or_an_attribute(page: Page) -> None:
    token = await page.seeding.person()
    for number, hostile in enumerate(HOSTILE):
        pages: list[list[list[tuple[str, tuple[str, ...]]]]] = []
        for text in ("harmless", hostile):
            owner = f"{text}{number}"[:100]
            review = await page.seeding.item(
                text,
                f"I said: {text}!",
                text,
                tenant=owner,
                user=owner,
                language=text[:30],
                reason=ActivationReason.QUOTED,
            )
            page.seeding.change_person("rita", name=text[:120])
            browser = await page.signed_in(token, address=f"192.0.2.{number * 2 + len(pages) % 2}")
            path = f"/reviews/{review.review_id}"
            shown = await browser.get(path)
            form = form_of(shown.text, "/reviews/")
            refused = await browser.post(form.action, data={**form.fields, "reason": text, "resolution": text})
            done = {**form.fields, "reason": text, "resolution": "reject"}
            assert (await browser.post(form.action, data=done)).status_code == 303
            ended = await browser.get(path)
            queue = await browser.get(
                "/queue", params={"status": "rejected", "tenant": owner, "decided": review.review_id}
            )
            pages.append([elements(answer.text) for answer in (shown, refused, ended, queue)])
            assert queue.text.count('class="row"') == 1
        assert pages[0] == pages[1], hostile


@pytest.mark.parametrize(
    "path", ["/sign-in?next=", "/queue?tenant=", "/queue?language=", "/reviews/", "/queue?cursor="]
)
async def test_no_address_adds_an_element(page: Page, path: str) -> None:
    visitor, browser = page.browser(), await page.signed_in(await page.seeding.person())
    for who in (visitor, browser):
        # A slash in an item's id is another address: none of ours.
        plain = [elements((await who.get(address)).text) for address in (f"{path}harmless", "/reviews/none/ofours")]
        for hostile in HOSTILE:
            quoted = hostile.encode().hex(" ").upper().replace(" ", "%")
            assert elements((await who.get(f"{path}%{quoted}")).text) in plain, hostile


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, with ümlaut and 漢字", "plain, with ümlaut and 漢字"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("abc\u202exyz", "abcU+202Exyz"),
        ("zero\u200bwidth", "zeroU+200Bwidth"),
        ("bell\x07", "bellU+0007"),
        ("return\r", "returnU+000D"),
        ("line\u2028separator", "lineU+2028separator"),
        ("soft\u00adhyphen", "softU+00ADhyphen"),
        ("tag\U000e0041", "tagU+E0041"),
        ("selector\U000e0101", "selectorU+E0101"),
        ("filler\u3164", "fillerU+3164"),
        ("private\ue000", "privateU+E000"),
        ("hidden\u200djoiner", "hiddenU+200Djoiner"),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"),
        ("\U0001f469\u200d\U0001f52c", "\U0001f469\u200d\U0001f52c"),
        ("\u200d", "U+200D"),
        ("\u0645\u200c", "\u0645U+200C"),
    ],
)
def test_what_hides_is_spelled_out(text: str, shown: str) -> None:
    html = untrusted.visible(text)
    assert unescape("".join(part.partition(">")[2] for part in f">{html}".split("<"))) == shown
    assert untrusted.spelled_out(text) == shown


@given(st.text())
def test_nothing_is_lost_and_nothing_acts(text: str) -> None:
    html = str(untrusted.visible(text))
    assert "<" not in html.replace('<span class="hidden-char" title="', "").replace("</span>", "")
    plain = untrusted.spelled_out(text)
    assert not set(plain) & set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u2069\u200b\u200e\u200f\ufeff\x00\x1b\x7f")
    kept = [char for char in text if char in plain]
    assert len(kept) <= len(plain)


@given(
    st.lists(st.text(alphabet="ab- ", max_size=6), max_size=6),
    st.lists(st.text(alphabet="ab- ", max_size=6), max_size=6),
)
def test_a_profile_s_change_holds_both_profiles(before: list[str], after: list[str]) -> None:
    around = "<profile preview>\n{}\n</profile preview>"
    lines = untrusted.profile_change(around.format("\n".join(before)), around.format("\n".join(after)))
    assert [str(line.text) for line in lines if line.kind != "added"] == [line for line in before if line]
    assert [str(line.text) for line in lines if line.kind != "removed"] == [line for line in after if line]
