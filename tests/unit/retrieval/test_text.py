"""Words, names and numbers out of texts in any script."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retold.retrieval.text import content_words, fold, is_first_person, names, numbers, possible_names, words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Ann's naïve café — user_id=42!", ["anns", "naïve", "café", "user", "id", "42"]),
        ("东京都", ["东京", "京都"]),
        ("茶", ["茶"]),
        ("iPhoneを買う", ["iphone", "を買", "買う"]),
        ("मैं दिल्ली", ["मैं", "दिल्ली"]),
        ("ＡＢＣ ﬁne", ["abc", "fine"]),
        ("🎉!", ["🎉"]),
        ("... --- !!!", []),
        ("", []),
    ],
)
def test_words(text: str, found: list[str]) -> None:
    assert words(text) == found


@given(st.text(max_size=60))
def test_words_are_stable_under_folding(text: str) -> None:
    assert words(fold(text)) == words(text)
    assert all(word.strip() == word and word for word in words(text))


def test_content_words_drop_what_every_text_has() -> None:
    assert content_words("Where did I go to the markets?") == ["go", "market"]


def test_names_and_numbers_keep_their_order() -> None:
    assert names("Yesterday Bob met Ann's aunt. Then I called ACME") == ("bob", "ann", "acme")
    assert numbers("From 3pm to 4pm, room B12") == ("3pm", "4pm", "b12")


def test_possible_names_reach_names_of_several_words_and_none_that_are_not_there() -> None:
    runs = possible_names("Who is “Ann Smith”'s boss?")
    assert {"ann", "ann smith", "boss"} <= set(runs)
    assert "the" not in runs
    assert possible_names("?!") == ()


@pytest.mark.parametrize("query", ["Where do I live?", "what's MY name", "I’m late", "tell me"])
def test_first_person(query: str) -> None:
    assert is_first_person(query)


@pytest.mark.parametrize("query", ["Wi-Fi is slow", "mystery meme", "Who is Imogen?"])
def test_not_first_person(query: str) -> None:
    assert not is_first_person(query)
