"""Each stage by itself: what it scores, what it drops, and what must never happen whatever comes in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retold.contracts.record import MemoryRecord, RecordType
from retold.retrieval.caps import choose, cost_tokens
from retold.retrieval.dedup import restated_by
from retold.retrieval.found import Found, Tally
from retold.retrieval.freshness import freshness, prefer_fresh
from retold.retrieval.fusion import fuse, sketch, sketched_cosines
from retold.retrieval.gate import gate_for
from retold.retrieval.ports import Generator, Hit
from retold.retrieval.strength import by_strength, support_by_day
from retold.retrieval.subject import prefer_subjects, spoken_of
from tests.unit.retrieval.findings import NOW, found, hit

EVEN = {Generator.DENSE: 1.0, Generator.LEXICAL: 1.0, Generator.ENTITY: 1.0}
EAST = np.array([1.0, 0.0], dtype=np.float32)


def order(found: Sequence[Found]) -> list[str]:
    return [each.ref.id for each in found]


# --- fusion


def test_fusion_adds_reciprocal_ranks_and_keeps_each_generators_score() -> None:
    lists = {
        Generator.DENSE: [hit("a", 0.9), hit("b", 0.8)],
        Generator.LEXICAL: [hit("b", 7.0), hit("c", 5.0, vector=(0.6, 0.8))],
    }
    b, a, c = fuse(lists, EAST, k=10, weights={**EVEN, Generator.LEXICAL: 0.5})
    assert order([b, a, c]) == ["b", "a", "c"]
    assert b.score == pytest.approx(1 / 12 + 0.5 / 11)
    assert (b.cosine, b.lexical) == (0.8, 7.0)
    assert set(b.generators) == {Generator.DENSE, Generator.LEXICAL}
    assert a.lexical is None
    assert c.cosine == pytest.approx(0.6, abs=0.01), "read off the sketch"


def test_fusion_keeps_the_later_of_two_versions() -> None:
    lists = {Generator.DENSE: [hit("a", version=2)], Generator.LEXICAL: [hit("a", version=1)]}
    (a,) = fuse(lists, EAST, k=10, weights=EVEN)
    assert a.ref.version == 2


ranks = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)


@given(dense=ranks, lexical=ranks, entity=ranks)
def test_fusion_keeps_everything_once_in_one_order(dense: list[str], lexical: list[str], entity: list[str]) -> None:
    def lists(flip: bool) -> dict[Generator, list[Hit]]:
        given = {Generator.DENSE: dense, Generator.LEXICAL: lexical, Generator.ENTITY: entity}
        made = {generator: [hit(id) for id in ids] for generator, ids in given.items()}
        return dict(reversed(made.items())) if flip else made

    fused = fuse(lists(False), EAST, k=10, weights=EVEN)
    assert sorted(order(fused)) == sorted({*dense, *lexical, *entity})
    assert order(fused) == order(fuse(lists(True), EAST, k=10, weights=EVEN))
    assert [each.score for each in fused] == sorted((each.score for each in fused), reverse=True)


@given(st.lists(st.floats(-1, 1, width=32), min_size=2, max_size=32), st.integers(0, 1_000))
def test_a_sketch_knows_the_cosine(values: list[float], seed: int) -> None:
    other = np.random.default_rng(seed).standard_normal(len(values)).astype(np.float32)
    vector = np.array(values, dtype=np.float32)
    norm = float(np.linalg.norm(vector))
    if norm < 1e-3:
        return
    cosine = float(vector @ other) / (norm * float(np.linalg.norm(other)))
    longer = np.ones(len(values) + 1, dtype=np.float32)
    known, incomparable, zero = sketched_cosines([sketch(vector), sketch(longer), bytes(len(values))], other)
    assert known == pytest.approx(cosine, abs=0.02)
    assert (incomparable, zero) == (0.0, 0.0)


# --- strength, freshness, subject


def test_strength_weighs_words_on_the_scale_of_meaning() -> None:
    near, worded = found("near", cosine=0.6), found("worded", cosine=0.4, lexical=9.0)
    strong = by_strength([near, worded], "tea", lexical_weight=0.6, date_bonus=0.1)
    assert [(each.ref.id, round(each.score, 3)) for each in strong] == [("worded", 0.76), ("near", 0.6)]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("What happened in March?", "march"),
        ("What happened in May 2025?", "may-2025"),
        ("What may have happened?", "april"),
        ("May I ask what happened?", "april"),
        ("What happened in May, 2026?", "may-2026"),
    ],
)
def test_the_month_a_query_names_counts(query: str, first: str) -> None:
    told = {"april": (2026, 4), "march": (2026, 3), "may-2025": (2025, 5), "may-2026": (2026, 5)}
    records = [found(id, told_at=datetime(*month, 3, tzinfo=UTC)) for id, month in told.items()]
    assert order(by_strength(records, query, lexical_weight=0.6, date_bonus=0.1))[0] == first


def test_what_was_told_on_one_day_supports_each_other_but_an_import_does_not() -> None:
    days = [NOW - timedelta(days=number) for number in range(7)]
    lone = [found(f"lone{number}", score=0.5, told_at=day) for number, day in enumerate(days[1:])]
    pair = [found("pair", score=0.45, told_at=days[0]), found("best", score=0.9, told_at=days[0])]
    supported = {each.ref.id: each.score for each in support_by_day([*lone, *pair], weight=0.2)}
    assert supported["pair"] == pytest.approx(0.45 + 0.2 * 0.9)
    assert supported["best"] == pytest.approx(0.9 + 0.2 * 0.45)
    assert supported["lone0"] == 0.5

    imported = [found(f"i{number}", score=0.5) for number in range(6)]
    assert {each.score for each in support_by_day(imported, weight=0.2)} == {0.5}


@pytest.mark.parametrize(("days", "left"), [(-5, 1.0), (0, 1.0), (15, 0.5**0.5), (30, 0.5), (31, 0.5), (4_000, 0.5)])
def test_freshness_halves_in_its_time_and_stops_at_the_floor(days: int, left: float) -> None:
    assert freshness(timedelta(days=days), half_life_days=30, floor=0.5) == pytest.approx(left)


def test_only_episodes_fade() -> None:
    old = NOW - timedelta(days=60)
    episode = found("episode", type=RecordType.EPISODIC, told_at=old)
    fact = found("fact", score=0.9, told_at=old)
    assert order(prefer_fresh([episode, fact], at=NOW, half_life_days=30, floor=0.5)) == ["fact", "episode"]


@pytest.mark.parametrize(
    ("query", "subjects"),
    [
        ("Where did I leave my bike?", {"user"}),
        ("I'm asking about Mel's bike", {"user", "mel"}),
        ("What does Ann Smith's sister do?", {"ann smith"}),
        ("What does Ann do?", {"ann smith"}),
        ("What does smithy do?", set()),
        ("What is the capital of France?", set()),
        ("Who is 山田?", {"山田"}),
    ],
)
def test_whom_a_query_speaks_of(query: str, subjects: set[str]) -> None:
    assert spoken_of(query, ["user", "Mel", "Ann Smith", "山田"]) == subjects


def test_records_about_others_step_back_and_stay() -> None:
    records = [found("mel", score=0.6, subject="Mel"), found("own", score=0.5)]
    assert order(prefer_subjects(records, {"user"}, penalty=0.2)) == ["own", "mel"]
    assert order(prefer_subjects(records, set(), penalty=0.2)) == ["mel", "own"]


# --- gate


def gated(records: Sequence[Found], query: str = "green tea", *, heard: bool = True) -> list[str]:
    gate = gate_for(
        records,
        query,
        heard=heard,
        dense_floors=dict.fromkeys(RecordType, 0.15),
        unheard_floor=0.25,
        lexical_min_share=0.5,
        relative_floor=0.3,
    )
    for each in records:
        unread = gate.lets_in(each._replace(record=None))
        assert unread is None or unread == gate.lets_in(each), "a text that was read only settles what was open"
    return order([each for each in records if gate.lets_in(each)])


def test_the_gate_lets_in_by_meaning_words_or_name() -> None:
    near = found("near", cosine=0.2)
    worded = found("worded", "Green tea at noon", cosine=0.05, lexical=5.0)
    named = found("named", cosine=0.1, generators=(Generator.ENTITY,))
    assert gated([near, worded, named]) == ["near", "worded", "named"]


def test_the_gate_stops_what_is_far_whatever_its_rank() -> None:
    far = found("far", cosine=0.14)
    half_worded = found("one-word", "Tea", cosine=0.05, lexical=1.0)
    few_words = found("few-words", "Green tea or black tea", cosine=0.05, lexical=5.0)
    assert gated([far]) == []
    assert gated([half_worded, few_words], "green tea ceremony in China tonight") == []
    assert gated([half_worded, found("best", "Green tea", cosine=0.1, lexical=9.0)]) == ["best"]
    assert gated([found("best", cosine=0.9), found("relative", cosine=0.26)]) == ["best"]


def test_a_query_nobody_heard_of_needs_more_than_nearness() -> None:
    assert gated([found("near", cosine=0.2)], heard=False) == []
    assert gated([found("near", cosine=0.26)], heard=False) == ["near"]


def test_only_what_hangs_on_its_words_waits_for_its_text() -> None:
    near, far = found("near", cosine=0.5), found("far", cosine=0.01)
    worded = found("worded", "Green tea", cosine=0.1, lexical=5.0)
    gate = gate_for(
        [near, far, worded], "green tea",
        heard=True, dense_floors=dict.fromkeys(RecordType, 0.15), unheard_floor=0.25, lexical_min_share=0.5,
        relative_floor=0.3,
    )  # fmt: skip
    unread = [gate.lets_in(each._replace(record=None)) for each in (near, far, worded)]
    assert unread == [True, False, None]
    assert gate.lets_in(worded) is True


# --- dedup


def restates(other: Found, kept: Found, *, least_cosine: float) -> bool:
    return restated_by(other, [kept], least_cosine=least_cosine) is kept


@pytest.mark.parametrize(
    ("kept", "other"),
    [
        ("Ann lives in Berlin.", "ann lives in  BERLIN"),
        ("She enjoys green tea in the morning", "She enjoys green tea"),
        ("我住在北京", "我住在北京。"),
        ("Ann works at Acme as a designer", "Ann works at Acme"),
    ],
)
def test_restatements_collapse(kept: str, other: str) -> None:
    assert restates(found("2", other), found("1", kept), least_cosine=0.92)


CONTRADICTIONS = [
    ("She likes green tea", "She does not like green tea"),
    ("She likes green tea", "She never likes green tea"),
    ("The limit is 50 euros", "The limit is 60 euros"),
    ("They met at 3pm on Monday", "They met at 4pm on Monday"),
    ("My name is liguoyu", "My name is liguosong"),
    ("She is married to Tom", "She is married to Tim"),
    ("Once Ann beat Bob at chess", "Once Bob beat Ann at chess"),
    ("She prefers the aisle seat", "She prefers the window seat"),
    ("She prefers tea over coffee", "She prefers coffee over tea"),
    ("She works at Google", "She just joined Microsoft"),
    ("我喜欢喝茶", "我不喜欢喝茶"),
    ("Er trinkt Kaffee", "Er trinkt keinen Kaffee"),
]


@pytest.mark.parametrize(("one", "two"), CONTRADICTIONS)
def test_contradictions_never_collapse_however_near(one: str, two: str) -> None:
    assert not restates(found("2", two), found("1", one), least_cosine=0.0)
    assert not restates(found("1", one), found("2", two), least_cosine=0.0)


def test_the_same_words_about_somebody_else_are_another_fact() -> None:
    assert not restates(found("2", "Likes tea", subject="Mel"), found("1", "Likes tea"), least_cosine=0.0)


def test_words_inside_a_far_text_are_no_restatement() -> None:
    one, two = found("1", "Likes green tea and cats"), found("2", "Likes cats", vector=(0.0, 1.0))
    assert not restates(two, one, least_cosine=0.92)


facts = st.builds(
    "{} {} the {} {} times".format,
    st.sampled_from(["Ann", "Bob"]),
    st.sampled_from(["visited", "never visited", "left"]),
    st.sampled_from(["lake", "museum", "Louvre", "Prado"]),
    st.integers(1, 3),
)


@given(facts, facts)
def test_facts_that_differ_in_any_part_both_stay(one: str, two: str) -> None:
    assert restates(found("2", two), found("1", one), least_cosine=0.92) == (one == two)


# --- caps

listed = st.lists(
    st.builds(
        lambda number, length: found(f"r{number:02}", f"{number} " + "word " * length, score=1 / (1 + number)),
        st.integers(0, 25),
        st.integers(1, 120),
    ),
    unique_by=lambda each: each.ref.id,
    max_size=12,
)


def record_of(found: Found) -> MemoryRecord:
    assert found.record is not None
    return found.record


def chosen_of(per_gap: list[list[Found]], **caps: int) -> tuple[list[tuple[str, tuple[int, ...]]], list[Counter[str]]]:
    tallies = [Tally() for _ in per_gap]
    caps = {"max_candidates": 8, "max_tokens": 1_500, **caps}
    chosen = choose(per_gap, tallies, restatement_cosine=0.92, **caps)
    assert chosen is not None
    dropped = [sum((Counter(reasons) for reasons in tally.as_dict().values()), Counter[str]()) for tally in tallies]
    assert len(chosen) <= caps["max_candidates"]
    assert sum(cost_tokens(record_of(each.found)) for each in chosen) <= caps["max_tokens"]
    return [(each.found.ref.id, tuple(each.gaps)) for each in chosen], dropped


@given(per_gap=st.lists(listed, min_size=1, max_size=3), cap=st.integers(1, 10), tokens=st.integers(1, 400))
def test_caps_hold_and_nothing_vanishes_uncounted(per_gap: list[list[Found]], cap: int, tokens: int) -> None:
    chosen, dropped = chosen_of(per_gap, max_candidates=cap, max_tokens=tokens)
    assert (chosen, dropped) == chosen_of(per_gap, max_candidates=cap, max_tokens=tokens)
    assert len({id for id, _ in chosen}) == len(chosen)
    for gap, records in enumerate(per_gap):
        kept = {id for id, gaps in chosen if gap in gaps} & set(order(records))
        assert len(kept) + sum(dropped[gap].values()) >= len(records)
        assert len(kept) + sum(dropped[gap].values()) <= len(records) + dropped[gap]["restatement"]


@given(per_gap=st.lists(listed, min_size=3, max_size=3))
def test_every_gap_keeps_its_best(per_gap: list[list[Found]]) -> None:
    chosen, _ = chosen_of(per_gap, max_candidates=3)
    for gap, records in enumerate(per_gap):
        if records:
            assert (records[0].ref.id, gap) in [(id, each) for id, gaps in chosen for each in gaps]


def test_a_record_too_long_is_skipped_and_a_shorter_one_still_fits() -> None:
    long, short = found("long", "word " * 700, score=0.9), found("short", "word", score=0.1)
    assert chosen_of([[long, short]], max_tokens=100) == ([("short", (0,))], [Counter({"max_tokens": 1})])


def test_a_restatement_in_another_gap_brings_its_gap_along() -> None:
    chosen, dropped = chosen_of([[found("a", "Ann likes tea")], [found("b", "ann likes tea.")]])
    assert chosen == [("a", (0, 1))]
    assert dropped[1] == Counter({"restatement": 1})


@given(per_gap=st.lists(listed, min_size=1, max_size=3), cap=st.integers(1, 6), loaded=st.integers(0, 12))
def test_a_choice_from_the_loaded_top_is_the_choice_from_everything(
    per_gap: list[list[Found]], cap: int, loaded: int
) -> None:
    """Or it says that the top is not enough: it never settles for less."""
    caps = {"max_candidates": cap, "max_tokens": 400}
    top = [
        [each if at < loaded else each._replace(record=None) for at, each in enumerate(records)] for records in per_gap
    ]
    from_top = choose(top, [Tally() for _ in top], restatement_cosine=0.92, **caps)
    from_all, _ = chosen_of(per_gap, **caps)
    if from_top is None:
        assert any(len(records) > loaded for records in per_gap)
    else:
        assert [(each.found.ref.id, tuple(each.gaps)) for each in from_top] == from_all
