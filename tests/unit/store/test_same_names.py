"""A subject or attribute is the same however its accents were typed, to whoever writes, looks up or replaces."""

from __future__ import annotations

import unicodedata
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from retold.contracts.lifecycle import CorrectInput, ReadRecordsInput, SupersedeInput
from retold.contracts.record import RecordStatus, RecordWrite
from retold.store.store import Store
from tests.unit.store.conftest import ADA, NOON, PutRecord
from tests.unit.store.test_lifecycle_properties import on_a_fresh_store

HOUR = timedelta(hours=1)
FORMS: tuple[Literal["NFC"], Literal["NFD"]] = ("NFC", "NFD")
COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "Lieblingsgetränk") for form in FORMS)

names = st.text(
    st.sampled_from("aeЙй ё한ガcafé\u0301\u0327\u0323ệủ\u0958"), min_size=1, max_size=6
).filter(lambda name: name.strip() != "" and unicodedata.normalize("NFC", name).strip() != "")  # fmt: skip


async def live(store: Store) -> set[str]:
    return {record.text for record in await store.records(ADA) if record.status is RecordStatus.CONFIRMED}


@given(name=names, attribute=names)
def test_a_name_is_taken_in_one_form_and_taken_again_it_stays(name: str, attribute: str) -> None:
    said = {
        (write.subject, write.attribute)
        for form in FORMS
        for write in [
            RecordWrite(
                text="x",
                subject=unicodedata.normalize(form, name),
                attribute=unicodedata.normalize(form, attribute),
            )
        ]
    }
    assert said == {(unicodedata.normalize("NFC", name), unicodedata.normalize("NFC", attribute))}
    [(subject, of)] = said
    assert RecordWrite(text="x", subject=subject, attribute=of).subject == subject


@given(subject=names, attribute=names, forms=st.lists(st.tuples(*[st.sampled_from(FORMS)] * 2), min_size=2, max_size=4))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_one_value_an_attribute_in_whatever_form_each_statement_names_it(
    migrated_file: Path, subject: str, attribute: str, forms: list[tuple[Any, Any]]
) -> None:
    async def body(store: Store, _: Any) -> None:
        for number, (of_subject, of_attribute) in enumerate(forms):
            write = RecordWrite(
                text=f"statement {number}",
                subject=unicodedata.normalize(of_subject, subject),
                attribute=unicodedata.normalize(of_attribute, attribute),
            )
            await store.lifecycle.remember(ADA, [write], actor="ada", at=NOON + number * HOUR)
        assert await live(store) == {f"statement {len(forms) - 1}"}
        for form in FORMS:
            asked = ReadRecordsInput(
                principal=ADA,
                subject=unicodedata.normalize(form, subject),
                attribute=unicodedata.normalize(form, attribute),
            )
            assert len((await store.lifecycle.read(asked)).records) == len(forms)

    on_a_fresh_store(migrated_file, body)


def test_the_bound_counts_what_is_kept() -> None:
    assert len(RecordWrite(text="x", subject="e\u0301" * 128).subject) == 128
    with pytest.raises(ValidationError, match="at most 128"):
        RecordWrite(text="x", subject="\u0958" * 100)  # two code points each in the composed form
    with pytest.raises(ValidationError, match="surrogates"):
        RecordWrite(text="x", attribute="\ud800")


@pytest.mark.parametrize("form", [COMPOSED, DECOMPOSED])
async def test_rows_from_before_names_had_one_form_are_found_and_replaced(
    store: Store, put_record: PutRecord, form: str
) -> None:
    old = await put_record("old", attribute=DECOMPOSED, subject="Zoe\u0308", created_at=NOON - HOUR)
    asked = ReadRecordsInput(principal=ADA, attribute=form, subject="Zoë")
    assert [record.id for record in (await store.lifecycle.read(asked)).records] == [old.id]
    write = RecordWrite(text="Trinkt Tee", attribute=form, subject="Zoë")
    await store.lifecycle.remember(ADA, [write], actor="ada", at=NOON)
    statuses = {record.id: record.status for record in await store.records(ADA)}
    assert statuses.pop(old.id) is RecordStatus.SUPERSEDED
    assert list(statuses.values()) == [RecordStatus.CONFIRMED]


async def test_an_old_row_can_be_superseded_and_corrected_by_name(store: Store, put_record: PutRecord) -> None:
    change: dict[str, Any] = {"principal": ADA, "actor": "ada", "reason": "a test"}
    old = await put_record("old", attribute=DECOMPOSED, created_at=NOON - HOUR)
    by = RecordWrite(text="Trinkt Tee", attribute=COMPOSED)
    await store.lifecycle.supersede(SupersedeInput(**change, record_id=old.id, by=by), at=NOON)
    assert await live(store) == {"Trinkt Tee"}
    [tea] = [record for record in await store.records(ADA) if record.text == "Trinkt Tee"]
    corrected = CorrectInput(**change, record_id=tea.id, text="Trinkt Kaffee", attribute=DECOMPOSED)
    await store.lifecycle.correct(corrected, at=NOON + HOUR)
    assert [record.attribute for record in await store.records(ADA) if record.id == tea.id] == [COMPOSED]


async def test_case_and_width_are_part_of_a_name(store: Store) -> None:
    """A host's names are its own: only what no reader can tell apart is one name."""
    for attribute in ("drink", "Drink", "ｄｒｉｎｋ"):
        write = RecordWrite(text=f"tea as {attribute}", attribute=attribute)
        await store.lifecycle.remember(ADA, [write], actor="ada", at=NOON)
    assert len(await live(store)) == 3
