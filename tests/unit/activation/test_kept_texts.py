"""What users said is not in memory any more once it was evaluated: no cache outlives what they have forgotten."""

from __future__ import annotations

import gc
import secrets

import pytest

from retold.policy.activation.evidence import find_evidence
from retold.policy.activation.reading import read, read_once
from retold.policy.activation.rules import decide_activation
from retold.policy.activation.statement import is_taken_back
from retold.policy.activation.words import reviewed
from retold.policy.local.extractor import LocalExtractor
from retold.policy.local.record_categories import LocalRetrievalCategories
from tests.unit.activation.cases import own_turn
from tests.unit.activation.test_rules import NOON, record


def in_memory(backwards: str) -> list[str]:
    """Every string that some object of this process holds and that has the word in it."""
    word = backwards[::-1]
    gc.collect()
    held = (thing for owner in gc.get_objects() for thing in gc.get_referents(owner))
    return [thing for thing in held if type(thing) is str and thing is not word and word in thing.casefold()]


def a_word(alphabet: str) -> str:
    return "".join(secrets.choice(alphabet) for _ in range(12))


@pytest.mark.parametrize(
    ("alphabet", "around"),
    [
        ("bcdfgkmnp", "I live in {}. From now on keep answers short. Write to me about {} too."),
        ("bcdfgkmnp", "Translate this: always answer in {}."),
        ("бвгджзклм", "Я живу в городе {}. Всегда отвечай коротко."),
        ("山川田中村木林森", "私は{}に住んでいます。いつも短く答えてください。"),
    ],
)
async def test_an_evaluation_leaves_nothing_said_behind(alphabet: str, around: str) -> None:
    reviewed()

    async def evaluated() -> str:
        word = a_word(alphabet)
        turns = [own_turn(around.format(word, word), 0), own_turn(f"{word}.", 1)]
        LocalExtractor().extract(turns)
        noted = record(around.format(word, word))
        LocalRetrievalCategories().categorise([noted])
        evidence = await find_evidence(noted, turns, None)
        decide_activation(noted, None, "user", evidence, at=NOON, turns=turns)
        is_taken_back(noted.text, turns)
        assert in_memory(word[::-1]), "while it is evaluated it is there, so the search does find it"
        return word[::-1]

    assert in_memory(await evaluated()) == []


def test_a_text_is_read_once_in_an_evaluation_and_anew_in_the_next() -> None:
    said = "From now on keep answers short."
    with read_once():
        first = read(said)
        with read_once():
            assert read(said) is first
        assert read(said) is first
    with read_once():
        assert read(said) is not first
    assert read(said) is not read(said)


def test_a_failed_evaluation_leaves_nothing_behind_either() -> None:
    def failed() -> str:
        word = a_word("bcdfgkmnp")
        with pytest.raises(ZeroDivisionError), read_once():
            read(f"I live in {word}.")
            raise ZeroDivisionError
        return word[::-1]

    assert in_memory(failed()) == []
