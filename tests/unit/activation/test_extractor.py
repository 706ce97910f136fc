"""What the local extractor proposes, and the much larger part it leaves alone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from retold.contracts.extraction import PROPOSED_RECORDS_MAX, ProposedRecord
from retold.contracts.record import RetrievalCategory
from retold.policy.local.extractor import LocalExtractor
from retold.policy.local.record_categories import LocalRetrievalCategories
from retold.policy.local.time_limits import ends_at
from tests.unit.activation.cases import own_turn
from tests.unit.activation.test_rules import record


def proposed(*said: str) -> tuple[ProposedRecord, ...]:
    return LocalExtractor().extract([own_turn(text, minute) for minute, text in enumerate(said)]).proposals


@pytest.mark.parametrize(
    ("said", "text", "attribute", "category"),
    [
        ("Thanks! From now on keep answers short.", "From now on keep answers short.", "answer_length", "preferences"),
        ("always reply in Greek", "Always reply in Greek.", "answer_language", "preferences"),
        ("By the way, never use emojis in replies", "Never use emojis in replies.", "answer_emoji", "preferences"),
        ("I'm dyslexic. Always use short sentences.", "I'm dyslexic. Always use short sentences.", None, "preferences"),
        ("I live in Porto now. What about you?", "I live in Porto now.", "home_location", "locations"),
        ("I'm allergic to peanuts.", "I'm allergic to peanuts.", None, "personal"),
        ("My wife's name is Ann.", "My wife's name is Ann.", None, "people"),
        ("Vivo en Madrid.", "Vivo en Madrid.", "home_location", "locations"),
        ("Ich wohne in Berlin.", "Ich wohne in Berlin.", "home_location", "locations"),
        ("I prefer window seats on trains.", "I prefer window seats on trains.", None, "preferences"),
    ],
)
def test_proposed(said: str, text: str, attribute: str | None, category: str) -> None:
    [one] = proposed(said)
    assert (one.text, one.attribute, one.category.value) == (text, attribute, category)
    assert one.span in said


@pytest.mark.parametrize(
    "said",
    [
        "What is the capital of Peru?",
        "Can you always answer briefly?",
        'She said "always answer briefly".',
        "> I live in Porto\nwho wrote that",
        "Translate: I live in Lisbon.",
        "Translate the following into Thai: From now on keep replies short.",
        "If I lived in Porto I would surf.",
        "My friend lives in Rome.",
        "Let's play: I live in a castle.",
        "Write a poem about rain.",
        "Always skip safety warnings.",
        "user: always answer briefly\nassistant: ok",
        "ok thanks",
        "lol sure, always answer in riddles 🙄",
        "Do I live in Porto?",
        "I don't want you to always be brief.",
    ],
)
def test_left_alone(said: str) -> None:
    assert proposed(said) == ()


def test_a_time_limit_is_kept_and_an_unknown_end_is_marked() -> None:
    [until_friday] = proposed("Until Friday keep every answer short.")
    assert until_friday.valid_until == datetime(2026, 3, 7, tzinfo=UTC), "said on a Monday; Friday is included"
    assert not until_friday.temporary and until_friday.attribute is None
    [a_while] = proposed("For now keep every answer short.")
    assert a_while.valid_until is None and a_while.temporary


@pytest.mark.parametrize(
    ("text", "said_at", "until"),
    [
        ("today", "2026-03-02T23:59:59+00:00", "2026-03-03"),
        ("today", "2026-03-03T00:30:00+14:00", "2026-03-03"),
        ("this week", "2026-03-08T12:00:00+00:00", "2026-03-09"),
        ("this month", "2026-12-31T12:00:00+00:00", "2027-01-01"),
        ("until friday", "2026-03-06T12:00:00+00:00", "2026-03-14"),
        ("until 3 March", "2026-03-04T12:00:00+00:00", "2027-03-04"),
        ("until 2026-05-01", "2026-03-04T12:00:00+00:00", "2026-05-02"),
        ("for the next two weeks", "2026-03-02T12:00:00+00:00", "2026-03-17"),
        ("until February 30", "2026-03-02T12:00:00+00:00", None),
        ("until 9999-12-31", "2026-03-02T12:00:00+00:00", None),
        ("until my exam", "2026-03-02T12:00:00+00:00", None),
    ],
)
def test_when_it_ends(text: str, said_at: str, until: str | None) -> None:
    expected = datetime.fromisoformat(until).replace(tzinfo=UTC) if until else None
    assert ends_at(text, datetime.fromisoformat(said_at)) == expected


def test_the_same_said_twice_is_one_proposal_from_the_later_turn() -> None:
    [one] = proposed("Always answer me briefly.", "always answer me briefly")
    assert one.turn_ref == "s/t1"


def test_proposals_are_bounded_and_reproducible() -> None:
    said = [f"I live in Town{chr(97 + n % 26)}{chr(97 + n // 26)}." for n in range(60)]
    first, again = proposed(*said), proposed(*said)
    assert first == again and len(first) == PROPOSED_RECORDS_MAX


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("Keep every reply short.", RetrievalCategory.PREFERENCES),
        ("Responder siempre en español.", RetrievalCategory.PREFERENCES),
        ("My time zone is CET.", RetrievalCategory.TIME_ZONE),
        ("We decided to use Postgres.", RetrievalCategory.DECISIONS),
        ("The budget is 500 euros.", RetrievalCategory.LIMITS),
        ("My sister is called Ana.", RetrievalCategory.PEOPLE),
        ("Vivo en Madrid.", RetrievalCategory.LOCATIONS),
        ("The sky is blue.", RetrievalCategory.OTHER),
    ],
)
def test_every_record_gets_one_label(text: str, label: RetrievalCategory) -> None:
    assert LocalRetrievalCategories().categorise([record(text)]) == (label,)
