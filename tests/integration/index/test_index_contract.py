"""What every index must do, whichever engine is behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retold.contracts.record import Activation, RecordStatus
from retold.contracts.turn import Principal
from retold.index.points import passage, point, point_id
from retold.index.port import (
    SCAN_PAGE,
    DimensionMismatchError,
    EmbedderMismatchError,
    RecordIndex,
    UnfilterableError,
    UnindexableError,
)  # fmt: skip
from retold.index.reading_back import every_point
from retold.models.embedding.hashing import HashingEmbedder
from retold.retrieval.ports import DenseQuery, Hit, LexicalQuery
from tests.integration.index.records import ANN, NOW, all_generators, eligible, ids, put, record

TEA = "Ann drinks green tea every morning"


async def search_all(index: RecordIndex, embedder: HashingEmbedder, text: str, **who: object) -> list[list[Hit]]:
    return await index.search(await all_generators(embedder, text, eligible(**who)))  # type: ignore[arg-type]


async def test_an_empty_index_answers_with_nothing(index: RecordIndex, embedder: HashingEmbedder) -> None:
    assert await search_all(index, embedder, TEA) == [[], [], []]
    assert await index.count() == 0
    assert await index.fetch(["nobody"]) == {}
    assert await index.search([]) == []
    assert await index.healthy()


async def test_the_nearer_record_comes_first_in_every_generator(index: RecordIndex, embedder: HashingEmbedder) -> None:
    near = record("The office kitchen has green tea and oolong", entities=("Kitchen",))
    far = record("The kitchen clock is broken", entities=("kitchen",))
    await put(index, embedder, far, near)

    dense, lexical, entity = await search_all(index, embedder, "green tea in the kitchen")

    for found in (dense, lexical, entity):
        assert ids(found) == [near.id, far.id]
        assert found[0].score > found[1].score


async def test_writing_again_replaces_and_reads_back_the_version(index: RecordIndex, embedder: HashingEmbedder) -> None:
    first = record(TEA)
    second = first.model_copy(update={"text": "Ann drinks coffee", "version": 2})
    await put(index, embedder, first)
    await put(index, embedder, second)
    await put(index, embedder, second)

    assert await index.count() == 1
    assert (await index.fetch([first.id]))[first.id].ref == second.ref
    assert (await search_all(index, embedder, "green tea"))[1] == []


@pytest.mark.parametrize(
    ("own", "other"),
    [
        (Principal(tenant="acme", user="test_user"), Principal(tenant="acme", user="test_user1")),
        (Principal(tenant="acme", user="ann"), Principal(tenant="acme2", user="ann")),
        (Principal(tenant="acme", user="Ann"), Principal(tenant="acme", user="ann")),
        (Principal(tenant="a", user="b/c"), Principal(tenant="a/b", user="c")),
        (Principal(tenant="*", user="*"), Principal(tenant="acme", user="ann")),
        (Principal(tenant='t"} OR {"', user="x' --"), Principal(tenant="t", user="x")),
        (Principal(tenant="acme", user="\u00e9"), Principal(tenant="acme", user="e\u0301")),
    ],
)
async def test_another_principal_is_never_found_counted_or_deleted(
    index: RecordIndex, embedder: HashingEmbedder, own: Principal, other: Principal
) -> None:
    mine, theirs = record(TEA, own, entities=("Ann",)), record(TEA, other, entities=("Ann",))
    await put(index, embedder, mine, theirs)

    for found in await search_all(index, embedder, TEA, principal=own):
        assert ids(found) == [mine.id]

    await index.delete_principal(own)
    assert await index.count(own) == 0
    assert await index.count(other) == 1
    assert set(await index.fetch([mine.id, theirs.id])) == {theirs.id}


async def test_all_of_a_large_principal_is_deleted(index: RecordIndex, embedder: HashingEmbedder) -> None:
    await put(index, embedder, *(record(f"Fact number {number}") for number in range(300)))
    assert await index.count(ANN) == 300
    await index.delete_principal(ANN)
    assert await index.count() == 0


async def test_a_record_is_found_only_inside_its_time(index: RecordIndex, embedder: HashingEmbedder) -> None:
    tick = timedelta(microseconds=1)
    until_midnight = datetime(2026, 6, 2, tzinfo=UTC)
    bounded = record(TEA, valid_from=NOW, valid_until=until_midnight)
    await put(index, embedder, bounded)

    async def found(at: datetime) -> bool:
        answers = await search_all(index, embedder, TEA, at=at)
        return [bool(hits) for hits in answers[:2]] == [True, True]

    assert not await found(NOW - tick)
    assert await found(NOW)
    assert await found(until_midnight - tick)
    assert await found(datetime.fromisoformat("2026-06-02T13:59:59+14:00"))
    assert not await found(until_midnight)
    assert not await found(datetime.fromisoformat("2026-06-02T14:00:00+14:00"))


async def test_a_suspended_record_is_found_before_and_after(index: RecordIndex, embedder: HashingEmbedder) -> None:
    tick = timedelta(microseconds=1)
    until = datetime(2026, 6, 2, tzinfo=UTC)
    standing = record(TEA, suspended_by="rec-holiday", suspended_from=NOW, suspended_until=until)
    for_good = record(TEA, suspended_by="rec-holiday", suspended_from=until)
    await put(index, embedder, standing, for_good)

    async def found(at: datetime) -> set[str]:
        dense, lexical, _ = await search_all(index, embedder, TEA, at=at)
        assert set(ids(dense)) == set(ids(lexical)) == {r.id for r in (standing, for_good) if r.is_current(at)}
        return set(ids(dense))

    assert await found(NOW - tick) == {standing.id, for_good.id}
    assert await found(NOW) == {for_good.id}
    assert await found(datetime.fromisoformat("2026-06-02T13:59:59.999999+14:00")) == {for_good.id}
    assert await found(until) == {standing.id}
    assert await found(datetime.fromisoformat("2026-06-02T14:00:00+14:00")) == {standing.id}


async def test_every_point_is_scanned_once_with_what_it_holds(index: RecordIndex, embedder: HashingEmbedder) -> None:
    bob = Principal(tenant="acme", user="bob")
    stored = [record(f"Fact number {n}", bob if n % 3 == 0 else ANN) for n in range(2 * SCAN_PAGE + 1)]
    await put(index, embedder, *stored)

    scanned = [each async for each in every_point(index)]
    assert sorted(each.key for each in scanned) == sorted(point_id(each.id) for each in stored)
    assert all(each.has_dense and each.terms and each.payload["subject"] == "user" for each in scanned)
    bobs = {each.id for each in stored if each.user == "bob"}
    assert {each.ref.id for each in await index.points_of(bob)} == bobs

    await index.delete_points([point_id(id) for id in bobs] + [point_id("never-stored")])
    assert await index.points_of(bob) == []
    assert await index.count() == len(stored) - len(bobs)


async def test_forgotten_texts_can_be_read_back_whatever_their_state(
    index: RecordIndex, embedder: HashingEmbedder
) -> None:
    tea, dead = record(TEA), record("Ann once lived in Ghent", status=RecordStatus.REJECTED)
    named = record("She moved", entities=("Villa Horizon",))
    other = record(TEA, Principal(tenant="acme", user="bob"))
    await put(index, embedder, tea, dead, named, other)

    texts = [TEA, "Ann once lived in Ghent", "villa horizon", "Ann drinks coffee", "東京"]
    found = await index.find_texts(ANN, texts)
    assert found == {TEA: [tea.id], "Ann once lived in Ghent": [dead.id], "villa horizon": [named.id]}
    await index.delete([tea.id, dead.id, named.id])
    assert await index.find_texts(ANN, texts) == {}


@pytest.mark.parametrize(
    "state",
    [
        {"activation": Activation.AMBIENT},
        {"status": RecordStatus.REJECTED},
        {"status": RecordStatus.DELETED},
        {"status": RecordStatus.SUPERSEDED},
        {"superseded_by": "rec-later"},
        {"conflicting": True},
        {"suspended_by": "rec-holiday"},
        {"scope": "work"},
    ],
    ids=lambda state: "-".join(f"{key}={value}" for key, value in state.items()),
)
async def test_what_is_not_a_candidate_is_never_found(
    index: RecordIndex, embedder: HashingEmbedder, state: dict[str, Any]
) -> None:
    await put(index, embedder, record(TEA, entities=("Ann",), **state))
    assert await search_all(index, embedder, TEA) == [[], [], []]
    assert await index.count(ANN) == 1


async def test_a_deleted_record_leaves_every_generator(index: RecordIndex, embedder: HashingEmbedder) -> None:
    kept, gone = record(TEA, entities=("Ann",)), record(TEA, entities=("Ann",))
    await put(index, embedder, kept, gone)
    await index.delete([gone.id, "never-stored"])
    await index.delete([])

    for found in await search_all(index, embedder, TEA):
        assert ids(found) == [kept.id]
    assert gone.id not in await index.fetch([gone.id])


@pytest.mark.parametrize(
    "text",
    [
        "我每天早上喝绿茶", "私は東京の会社で働いています", "저는 서울에 살아요", "ฉันอาศัยอยู่ในกรุงเทพฯ กับแม่",
        "أعيش في القاهرة منذ عام",
        "אני גר בתל אביב", "मैं दिल्ली में रहता हूँ", "Ο παππούς μου μένει στην Αθήνα", "ខ្ញុំរស់នៅភ្នំពេញ", "ငါရန်ကုန်မှာနေတယ်",
        "🎉🎂", "user_id=42", "C++ & src/app.py", "naïve café Straße", "DGIA",
    ],
)  # fmt: skip
async def test_a_text_finds_itself_by_its_exact_words(index: RecordIndex, embedder: HashingEmbedder, text: str) -> None:
    others = [record("Ann plays the cello"), record("他住在上海"), record("彼は大阪に住む"), record("אחותי לומדת")]
    own = record(text)
    await put(index, embedder, *others, own)

    dense, lexical, _ = await search_all(index, embedder, text)

    assert ids(dense)[0] == own.id
    assert ids(lexical)[0] == own.id


async def test_part_of_an_unspaced_text_finds_it(index: RecordIndex, embedder: HashingEmbedder) -> None:
    tokyo, osaka = record("私は東京の会社で働いています"), record("彼は大阪に住む")
    await put(index, embedder, tokyo, osaka)
    assert ids((await search_all(index, embedder, "東京の会社"))[1]) == [tokyo.id]


@pytest.mark.parametrize(
    "query", ['content:"user:password"', "foo NOT bar", "tea OR *", "(((", "'; DROP TABLE records; --", "AND", "%_"]
)
async def test_a_query_is_text_and_never_syntax(index: RecordIndex, embedder: HashingEmbedder, query: str) -> None:
    own, other = record(f"note {query} kept"), record("something else entirely")
    await put(index, embedder, own, other)

    dense, lexical, _ = await search_all(index, embedder, f"note {query} kept")

    assert ids(dense)[0] == own.id
    assert ids(lexical) == [own.id]


async def test_scores_do_not_depend_on_other_tenants(index: RecordIndex, embedder: HashingEmbedder) -> None:
    await put(index, embedder, record(TEA), record("Ann has a green bicycle"))
    before = [(hit.ref.id, hit.score) for hits in await search_all(index, embedder, TEA) for hit in hits]

    crowd = Principal(tenant="crowd", user="bob")
    await put(index, embedder, *(record(f"{TEA} number {number}", crowd) for number in range(50)))

    after = [(hit.ref.id, hit.score) for hits in await search_all(index, embedder, TEA) for hit in hits]
    assert [id for id, _ in after] == [id for id, _ in before]
    assert [score for _, score in after] == pytest.approx([score for _, score in before], rel=1e-5)


@pytest.mark.parametrize("differs", ["model", "revision", "runtime", "dimension"])
async def test_another_embedder_is_refused_naming_both(
    index: RecordIndex, embedder: HashingEmbedder, differs: str
) -> None:
    other = embedder.identity.model_copy(update={differs: 77 if differs == "dimension" else "another"})
    with pytest.raises(EmbedderMismatchError) as refused:
        await index.ensure(other)
    assert str(getattr(other, differs)) in str(refused.value)
    assert str(getattr(embedder.identity, differs)) in str(refused.value)
    await index.ensure(embedder.identity)


async def test_one_unusable_point_keeps_the_whole_batch_out(index: RecordIndex, embedder: HashingEmbedder) -> None:
    good = record(TEA)
    vectors = await embedder.embed_passages([passage(good)])
    usable = point(good, vectors[0])
    spoilt = [
        (np.full_like(vectors[0], np.nan), UnindexableError),
        (np.zeros_like(vectors[0]), UnindexableError),
        (np.ones(3, dtype=np.float32), DimensionMismatchError),
    ]
    for vector, error in spoilt:
        bad = record("Spoilt")
        with pytest.raises(error, match=bad.id):
            await index.upsert([usable, replace(usable, ref=bad.ref, dense=vector)])
    assert await index.count() == 0


async def test_a_query_without_a_filter_is_refused(index: RecordIndex, embedder: HashingEmbedder) -> None:
    await put(index, embedder, record(TEA))
    blank = Principal.model_construct(tenant="acme", user=" ")
    for who in (
        eligible(blank),
        eligible(scopes=()),
        eligible(scopes=("",)),
        eligible(at=NOW.replace(tzinfo=None)),
    ):
        with pytest.raises(UnfilterableError):
            await index.search([LexicalQuery(eligible=who, limit=5, text="tea")])
    with pytest.raises(UnfilterableError):
        await index.delete_principal(blank)
    assert await index.count() == 1


async def test_a_query_vector_of_another_length_is_refused(index: RecordIndex, embedder: HashingEmbedder) -> None:
    query = DenseQuery(eligible=eligible(), limit=5, vector=np.ones(3, dtype=np.float32))
    with pytest.raises(DimensionMismatchError):
        await index.search([query])


names = st.text(
    st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), min_size=1, max_size=8
).filter(lambda name: bool(name.strip()))  # fmt: skip
few_names = st.sampled_from(["a", "A", "a ", " a", "a/b", "*", "ab", "á", "a\u0301"])
principals = st.builds(Principal, tenant=names | few_names, user=names | few_names)


@given(owners=st.lists(principals, min_size=2, max_size=5, unique=True))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_whatever_the_names_a_hit_is_the_askers(
    index: RecordIndex, embedder: HashingEmbedder, owners: Sequence[Principal]
) -> None:
    stored = [record(TEA, owner, entities=("Ann",)) for owner in owners]
    await put(index, embedder, *stored)
    for owner, own in zip(owners, stored, strict=True):
        for found in await search_all(index, embedder, TEA, principal=owner, at=NOW):
            assert {hit.principal for hit in found} == {owner}
            assert own.id in ids(found)
        await index.delete([own.id])
