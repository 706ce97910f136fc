"""A user who changes their mind: what they said last about a thing stands, and nobody has to decide it for them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from retold.contracts.record import Activation, RecordStatus
from retold.contracts.review import ReviewFilter
from retold.policy.profile import ProfileAssembler
from retold.store.store import Store
from tests.unit.store.conftest import ADA, NOON
from tests.unit.store.test_taken_back import activations, hear

HOUR = timedelta(hours=1)
FRENCH, GERMAN, SPANISH = (f"Always answer in {language}." for language in ("French", "German", "Spanish"))


async def statuses(store: Store) -> dict[str, RecordStatus]:
    return {record.text: record.status for record in await store.records(ADA)}


async def in_the_queue(store: Store) -> int:
    return (await store.reviews.page(ReviewFilter())).total


async def events_since(store: Store, text: str, first: str) -> list[str]:
    record = next(record for record in await store.records(ADA) if record.text == text)
    said = [event.event for event in await store.audit_events(ADA, record.id)]
    return said[said.index(first) :]


@pytest.mark.parametrize("later_session", ["s", "another"])
async def test_the_newer_standing_preference_replaces_the_older_and_stands_on_its_own_evidence(
    store: Store, later_session: str
) -> None:
    await hear(store, FRENCH, NOON, attribute="answer_language")
    await hear(store, GERMAN, NOON + HOUR, session=later_session, attribute="answer_language")
    assert await statuses(store) == {FRENCH: RecordStatus.SUPERSEDED, GERMAN: RecordStatus.CONFIRMED}
    assert await activations(store) == {FRENCH: Activation.CONDITIONAL, GERMAN: Activation.AMBIENT}
    assert await in_the_queue(store) == 0
    await store.open_turn(ADA, "next", "d", NOON + 2 * HOUR, want_inventory=False)
    profile = await ProfileAssembler(store).build(ADA, "next", NOON + 2 * HOUR)
    assert GERMAN in profile.text and FRENCH not in profile.text
    assert await events_since(store, FRENCH, "record.superseded") == [
        "record.superseded",
        "record.activation_changed",
        "record.category_assigned",
        "record.activation_decided",
    ]
    assert await events_since(store, GERMAN, "record.extracted") == [
        "record.extracted",
        "record.category_assigned",
        "record.activation_evidence_verified",
        "record.confirmed",
        "record.activation_decided",
        "record.activation_changed",
    ]


async def test_every_change_of_mind_counts_also_the_one_back(store: Store) -> None:
    for hours, said in enumerate((FRENCH, GERMAN, SPANISH, FRENCH)):
        await hear(store, said, NOON + hours * HOUR, attribute="answer_language")
        standing = {text for text, activation in (await activations(store)).items() if activation is Activation.AMBIENT}
        assert standing == {said}
    assert await in_the_queue(store) == 0


@pytest.mark.parametrize(
    ("earlier", "attribute", "later"),
    [
        (FRENCH, "language_of_answers", GERMAN),  # nothing says that they are about the same
        (FRENCH, None, GERMAN),
        ("Always answer in detail.", "answer_length", "And always answer in one line."),  # both, as it seems
        ("Always be brief.", "length", "Always answer in German and in great detail."),
    ],
)
async def test_what_stays_unresolved_is_for_a_reviewer(
    store: Store, earlier: str, attribute: str | None, later: str
) -> None:
    later_attribute = "answer_length" if attribute == "answer_length" else "answer_language"
    await hear(store, "Always answer in Dutch.", NOON - HOUR, attribute="answer_language")
    await hear(store, earlier, NOON, attribute=attribute)
    await hear(store, later, NOON + HOUR, attribute=later_attribute)
    assert (await activations(store))[later] is Activation.CONDITIONAL
    assert await in_the_queue(store) > 0


async def test_what_was_asked_for_once_is_no_standing_preference_to_disagree_with(store: Store) -> None:
    await hear(store, "What is the moon made of? Answer in English this time.", NOON)
    await hear(store, FRENCH, NOON + HOUR, attribute="answer_language")
    assert await activations(store) == {FRENCH: Activation.AMBIENT}


async def test_what_was_said_with_the_replaced_preference_is_not_replaced_with_it(store: Store) -> None:
    both = "Always answer in French and always be brief."
    await hear(store, both, NOON, attribute=None)
    await hear(store, FRENCH, NOON + HOUR, attribute="answer_language")
    later = "Always answer in German, in great detail."
    await hear(store, later, NOON + 2 * HOUR, attribute="answer_language")
    assert (await statuses(store))[FRENCH] is RecordStatus.SUPERSEDED
    assert (await activations(store))[later] is Activation.CONDITIONAL, "nobody said that it may be long"
