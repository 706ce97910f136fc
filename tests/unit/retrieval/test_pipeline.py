"""The retriever as a turn uses it: over the embedded engine, with a store that knows better than the index."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from retold.contracts.record import MemoryRecord, RecordId, RecordRef, RecordType
from retold.contracts.stages import Gap, GapCategory
from retold.contracts.turn import Principal
from retold.index.edge import EdgeIndex
from retold.index.port import IndexUnavailableError
from retold.models.embedding.hashing import HashingEmbedder
from retold.models.embedding.minilm import MiniLmEmbedder
from retold.policy.ports import CandidateRetriever, Embedder, SearchRequest, SearchResponse
from retold.retrieval.config import RetrievalConfig
from retold.retrieval.pipeline import Retriever
from retold.retrieval.ports import Hit, IndexQuery
from tests.integration.index.records import ANN, NOW, put, record

TEXTS = [
    "Ann drinks green tea every morning",
    "Ann's sister Mel lives in Lisbon",
    "The team decided to ship on Fridays",
    "Ann is allergic to peanuts",
    "Ann's manager is called Tom Baker",
    "Ann flew to Osaka in March",
    "The budget limit is 400 euros a month",
    "Ann plays the cello on Sundays",
    "Ann wants short answers about finance",
    "The staging database runs PostgreSQL 17",
]


class Store:
    def __init__(self) -> None:
        self.records: dict[RecordId, MemoryRecord] = {}
        self.asked: list[list[RecordRef]] = []

    async def load_current(
        self, principal: Principal, refs: Sequence[RecordRef], at: datetime
    ) -> Mapping[RecordId, MemoryRecord]:
        self.asked.append(list(refs))
        found = (self.records.get(ref.id) for ref in refs)
        return {each.id: each for each in found if each and each.user == principal.user and each.is_current(at)}


class CountingIndex:
    def __init__(self, index: EdgeIndex) -> None:
        self.index, self.calls = index, 0

    async def search(self, queries: Sequence[IndexQuery]) -> list[list[Hit]]:
        self.calls += 1
        return await self.index.search(queries)


class CountingEmbedder(HashingEmbedder):
    calls = 0

    async def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.calls += 1
        return await super().embed_queries(texts)


class World:
    """An index, a store that agrees with it until told otherwise, and a retriever over both."""

    def __init__(self, index: EdgeIndex, embedder: Embedder) -> None:
        self.counting, self.index, self.embedder, self.store = CountingIndex(index), index, embedder, Store()

    async def holds(self, *records: MemoryRecord) -> None:
        await put(self.index, self.embedder, *records)
        self.store.records.update((each.id, each) for each in records)

    def retriever(self, **config: Any) -> Retriever:
        return Retriever(self.counting, self.embedder, self.store, RetrievalConfig(**config))

    async def search(self, *queries: str, max_candidates: int = 8, **config: Any) -> SearchResponse:
        return await self.retriever(**config).search(request(*queries, max_candidates=max_candidates))

    async def found(self, *queries: str, **config: Any) -> list[str]:
        response = await self.search(*queries, **config)
        return [self.store.records[candidate.ref.id].text for candidate in response.candidates]


def request(*queries: str, max_candidates: int = 8) -> SearchRequest:
    return SearchRequest(
        decision_id="d1",
        principal=ANN,
        gaps=tuple(Gap(category=GapCategory.PREFERENCE, query=query) for query in queries),
        context="the turn",
        max_candidates=max_candidates,
        at=NOW,
    )


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    embedder = CountingEmbedder()
    index = EdgeIndex(tmp_path / "index")
    await index.ensure(embedder.identity)
    yield World(index, embedder)
    await index.aclose()


@pytest.fixture(scope="module")
async def minilm() -> AsyncIterator[MiniLmEmbedder]:
    embedder = MiniLmEmbedder.load()
    yield embedder
    await embedder.aclose()


@pytest.fixture
async def real_world(tmp_path: Path, minilm: MiniLmEmbedder) -> AsyncIterator[World]:
    index = EdgeIndex(tmp_path / "minilm")
    await index.ensure(minilm.identity)
    world = World(index, minilm)
    await world.holds(*(record(text) for text in TEXTS))
    yield world
    await index.aclose()


async def test_three_gaps_are_one_engine_call_one_embedding_and_one_store_call(world: World) -> None:
    await world.holds(*(record(text) for text in TEXTS))
    response = await world.search("green tea", "the budget limit", "cello Sundays")

    assert world.counting.calls == 1
    assert isinstance(world.embedder, CountingEmbedder)
    assert world.embedder.calls == 1
    assert len(world.store.asked) == 1
    assert [entry.gap_index for entry in response.searches] == [0, 1, 2]
    assert len({entry.search_id for entry in response.searches}) == 3
    best = {candidate.gaps: world.store.records[candidate.ref.id].text for candidate in response.candidates}
    assert (best[0,], best[1,], best[2,]) == (TEXTS[0], TEXTS[6], TEXTS[7])


async def test_no_gap_asks_nobody(world: World) -> None:
    assert await world.search() == SearchResponse()
    assert world.counting.calls == 0


async def test_an_empty_store_is_an_answer(world: World) -> None:
    response = await world.search("green tea")
    assert response.candidates == ()
    assert response.searches[0].generated == {"dense": 0, "lexical": 0, "entity": 0}
    assert world.store.asked == []


NOISE = [
    "PHRASE_THAT_DOES_NOT_APPEAR",
    "PHRASE_THAT_DEFINITELY_DOES_NOT_APPEAR_ANYWHERE_QQQQ",
    "zxqv bloop frindle",
]


@pytest.mark.parametrize("query", NOISE)
async def test_noise_finds_nothing(world: World, real_world: World, query: str) -> None:
    await world.holds(*(record(text) for text in TEXTS))
    for each in (world, real_world):
        response = await each.search(query)
        assert response.candidates == ()
        assert response.searches[0].generated["dense"] == len(TEXTS)
        assert response.searches[0].dropped == {"gate": {"below_floor": len(TEXTS)}}


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("Which nuts make me ill?", TEXTS[3]),
        ("who is my boss", TEXTS[4]),
        ("What is the monthly spending cap?", TEXTS[6]),
        ("Where did I travel in March?", TEXTS[5]),
        ("musical instrument", TEXTS[7]),
    ],
)
async def test_a_question_in_other_words_finds_its_answer_first(real_world: World, query: str, answer: str) -> None:
    assert (await real_world.found(query))[0] == answer


async def test_what_the_store_no_longer_stands_by_is_dropped_and_counted(world: World) -> None:
    stands, later, gone, moved = (record(f"Ann drinks green tea {part}") for part in ("now", "later", "never", "away"))
    await world.holds(stands, later, gone, moved)
    world.store.records[later.id] = later.model_copy(update={"version": 2})
    del world.store.records[gone.id]
    world.store.records[moved.id] = moved.model_copy(update={"scope": "work"})

    response = await world.search("green tea")

    assert [candidate.ref for candidate in response.candidates] == [stands.ref]
    assert response.searches[0].dropped["current"] == {"gone": 3}


async def test_no_more_is_loaded_than_the_list_takes_and_all_of_it_where_the_top_is_gone(world: World) -> None:
    records = [record(f"Ann drinks green tea number {number}") for number in range(40)]
    await world.holds(*records)
    response = await world.search("green tea", max_candidates=4)
    assert len(response.candidates) == 4
    (asked,) = world.store.asked
    assert len(asked) == 7
    assert response.searches[0].dropped == {"caps": {"max_candidates": 36}}

    for ref in asked:
        del world.store.records[ref.id]
    response = await world.search("green tea", max_candidates=4)
    assert len(response.candidates) == 4
    assert not {candidate.ref for candidate in response.candidates} & set(asked)
    assert len(world.store.asked) == 3
    assert response.searches[0].dropped == {"current": {"gone": 7}, "caps": {"max_candidates": 29}}


async def test_a_record_only_words_found_is_let_in_by_its_text(world: World) -> None:
    worded = record("Ann plans a trip to the museum of modern art in Lisbon with Mel on the last weekend of June")
    await world.holds(worded)
    config: dict[str, Any] = {"dense_floors": dict.fromkeys(RecordType, 0.99)}
    assert await world.found("museum of modern art", **config) == [worded.text]
    response = await world.search("who runs the museum shop these days", **config)
    assert response.candidates == ()
    assert response.searches[0].dropped == {"gate": {"below_floor": 1}}


async def test_i_means_the_principal_and_others_step_back(world: World) -> None:
    await world.holds(record("Likes green tea", subject="Mel"), record("Likes strong green tea"))
    own, others = await world.search("Which green tea do I like?"), await world.search("Which green tea does Mel like?")
    subjects = [[world.store.records[each.ref.id].subject for each in found.candidates] for found in (own, others)]
    assert subjects == [["user", "Mel"], ["Mel", "user"]]


async def test_an_exact_name_finds_what_meaning_does_not(real_world: World) -> None:
    named = record("Our vendor for the badge printers", entities=("DGIA",))
    await real_world.holds(named)
    response = await real_world.search("dgia")
    assert named.ref in [candidate.ref for candidate in response.candidates]
    assert response.searches[0].generated["entity"] == 1


async def test_contradictions_both_stay_and_restatements_do_not(world: World) -> None:
    await world.holds(
        record("Ann likes green tea"),
        record("ann likes green tea."),
        record("Ann does not like green tea"),
        record("Ann likes green tea", type=RecordType.EPISODIC, subject="Ann"),
    )
    response = await world.search("green tea")
    assert len(response.candidates) == 3
    assert response.searches[0].dropped["dedup"] == {"restatement": 1}


async def test_the_smaller_of_both_caps_holds(world: World) -> None:
    await world.holds(*(record(f"Ann drinks green tea number {number}") for number in range(12)))
    assert len((await world.search("green tea", max_candidates=3)).candidates) == 3
    limited = await world.retriever(max_candidates=5).search(request("green tea", max_candidates=9))
    assert len(limited.candidates) == 5


async def test_a_broken_index_is_an_error_and_not_an_empty_answer(world: World) -> None:
    await world.index.aclose()
    with pytest.raises(IndexUnavailableError):
        await world.search("green tea")


@given(
    queries=st.lists(st.sampled_from(["tea", "Ann", "Mel Lisbon", "peanuts", "Tom"]), min_size=1, max_size=3),
    cap=st.integers(1, 8),
    depth=st.integers(1, 12),
    floor=st.sampled_from([0.0, 0.2, 0.9]),
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_every_finding_is_kept_or_counted(
    world: World, queries: list[str], cap: int, depth: int, floor: float
) -> None:
    if not world.store.records:
        await world.holds(*(record(text) for text in TEXTS), record(TEXTS[0] + "."))
    config = {"fused_depth": depth, "dense_floors": dict.fromkeys(RecordType, floor)}
    response = await world.search(*queries, max_candidates=cap, **config)

    again = await world.search(*queries, max_candidates=cap, **config)
    assert again.candidates == response.candidates
    assert len(response.candidates) <= cap
    for entry in response.searches:
        served = {candidate.ref for candidate in response.candidates if entry.gap_index in candidate.gaps}
        assert set(entry.kept) == served
        dropped = sum(sum(reasons.values()) for reasons in entry.dropped.values())
        restated = entry.dropped.get("dedup", {}).get("restatement", 0)
        unique = entry.generated["dense"]
        assert unique - restated <= len(entry.kept) + dropped - restated <= unique


def test_the_retriever_is_what_the_turn_asks_for(world: World) -> None:
    retriever: CandidateRetriever = world.retriever()
    assert callable(retriever.search)


def test_the_config_hash_covers_every_setting_and_the_embedder() -> None:
    identity = HashingEmbedder().identity
    plain = RetrievalConfig().config_hash(identity)
    assert plain == RetrievalConfig().config_hash(identity)
    assert len(plain) == 16
    assert int(plain, 16) >= 0

    changed = {plain}
    for name, field in RetrievalConfig.model_fields.items():
        value = field.get_default()
        other: object
        if name == "scopes":
            other = ("work",)
        elif name == "dense_floors":
            other = {**value, RecordType.EPISODIC: 0.2}
        else:
            other = value + 1 if isinstance(value, int) else value / 2
        changed.add(RetrievalConfig(**{name: other}).config_hash(identity))
    for name in ("model", "revision", "runtime", "dimension"):
        differs = identity.model_copy(update={name: 7 if name == "dimension" else "other"})
        changed.add(RetrievalConfig().config_hash(differs))
    assert len(changed) == 1 + len(RetrievalConfig.model_fields) + 4
