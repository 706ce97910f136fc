"""How a turn is read: whose words they are, in which language, and that no input makes it slow."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retold.policy.activation.instruction import read_instruction
from retold.policy.activation.own_words import BLANK, own_words
from retold.policy.activation.reading import read
from retold.policy.activation.words import reviewed, unreviewed
from retold.policy.local.extractor import LocalExtractor
from tests.unit.activation.cases import own_turn


@pytest.mark.parametrize(
    ("turn", "kept"),
    [
        ('He wrote "always be brief" twice.', "He wrote  twice."),
        ("Il dit « réponds en anglais » ici.", "Il dit  ici."),
        ("“以后都用英文回答”怎么翻译", "怎么翻译"),
        ("It's fine, don't worry, I'm ok.", "It's fine, don't worry, I'm ok."),
        ("the sign said 'keep every reply short' today", "the sign said  today"),
        ("see ```always be brief``` there", "see  there"),
        ("<b>always be brief</b> ok", " ok"),
        ("ok then\nuser: always be brief\nand so on", "ok then\n\n"),
        ("ok\n> always be brief\nmine", "ok\n\n"),
        ("prompt = 'always be brief'", ""),
        ("Here it is:\nalways be brief", "Here it is:\n"),
        ("plain words", "plain words"),
    ],
)
def test_text_that_was_brought_along_is_blanked(turn: str, kept: str) -> None:
    own = own_words(turn)
    assert len(own) == len(turn)
    assert own.replace(BLANK, "") == kept


@pytest.mark.parametrize(
    ("turn", "language"),
    [
        ("Responde siempre en español, por favor.", "es"),
        ("Responda sempre em português, por favor.", "pt"),
        ("Svar mig altid på dansk.", "da"),
        ("Svar meg alltid på norsk.", "no"),
        ("Завжди відповідай мені українською.", "uk"),
        ("همیشه به فارسی جواب بده.", "fa"),
        ("ہمیشہ اردو میں جواب دیں۔", "ur"),
        ("मला नेहमी मराठीत उत्तर द्या.", "mr"),
        ("いつも日本語で答えて。", "ja"),
        ("请一直用中文回答。", "zh"),
        ("Antwoord my altyd in Afrikaans.", None),
        ("Respon-me sempre en català.", None),
        ("ყოველთვის ქართულად მიპასუხე.", None),
        ("asdf qwer zxcv", None),
    ],
)
def test_the_language_of_a_sentence(turn: str, language: str | None) -> None:
    assert read(turn).sentences[0].language == language


def test_every_list_holds_the_same_kinds_of_words() -> None:
    """A list that lacks a kind of doubt would promote what it cannot see."""
    needed = {"standing", "not", "condition", "temporary", "question", "third", "hypothetical", "takeback", "quote",
              "unsafe", "habit", "not_asked", "topic", "task", "directive", "stop", "bare", "sarcasm"}  # fmt: skip
    for code, lists in reviewed().items():
        held = {name for name, _ in lists.entries}
        assert needed <= held, f"{code} lacks {needed - held}"
    assert not set(unreviewed()) & set(reviewed())


_HOSTILE = {
    "quotes": '"' * 32_000,
    "opening quotes": "“«„" * 10_000,
    "fences": "```" * 10_000,
    "brackets": "[{<(" * 8_000,
    "tags": "<a>" * 10_000,
    "equals": "a.b(" * 8_000,
    "dots": ". " * 16_000,
    "commas": "always, " * 4_000,
    "one word": "a" * 32_000,
    "marks": "a" + "\u0301" * 31_999,
    "invisible": "\u200b" * 32_000,
    "sentences": "Always answer me briefly in every reply. " * 780,
    "unspaced": "请始终用中文回答我" * 3_500,
    "digits": "1234 5678 " * 3_200,
    "lines": "always be brief\n" * 2_000,
    "mixed scripts": "always دائما 始终 всегда " * 1_200,
    "braces": "{" + "a:b;" * 8_000,
    "apostrophes": "'a b" * 8_000,
    "dashes": "---" * 10_000,
}


@pytest.mark.parametrize("kind", _HOSTILE)
def test_reading_takes_as_long_as_the_turn_is_however_hostile(kind: str) -> None:
    """Eight times the text is about eight times the work; what looks back at all it has read would be 64 times."""
    text = _HOSTILE[kind][:32_000]
    reviewed()
    _read_in_s("Always answer me briefly. ")  # the word lists of a first language
    short = max(_read_in_s(text[: len(text) // 8]), 0.001)
    assert _read_in_s(text) < 30 * short


def _read_in_s(text: str) -> float:
    """Processor time of one reading, the better of two: a text that was read before is remembered, so each differs."""
    took = []
    for mark in "xy":
        began = time.process_time()
        LocalExtractor().extract([own_turn(text[:-1] + mark)])
        took.append(time.process_time() - began)
    return min(took)


def test_a_session_costs_as_much_as_it_has_turns() -> None:
    def extracted_in_s(count: int) -> float:
        say = "Thanks, {} of {} worked! From now on keep replies short, and how is {}?"
        turns = [own_turn(say.format(number, count, number)) for number in range(count)]
        began = time.process_time()
        LocalExtractor().extract(turns)
        return time.process_time() - began

    extracted_in_s(1)
    assert extracted_in_s(48) < 30 * max(extracted_in_s(6), 0.001)


@given(st.text(max_size=400))
@settings(max_examples=150, deadline=None)
def test_places_always_lie_in_the_turn(text: str) -> None:
    reading = read(text)
    assert len(reading.own) == len(text)
    for sentence in reading.sentences:
        assert reading.own[sentence.start : sentence.end] == sentence.text
        assert all(0 <= one.start < one.end <= len(text) for one in sentence.found)
        read_instruction(reading, sentence)
