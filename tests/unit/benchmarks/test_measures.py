"""The arithmetic behind every number of the benchmarks."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.measures import median_of_rounds, quantile, ratio_of_rounds, rotated

MS = st.floats(min_value=0.01, max_value=1e6)
ROUND = st.lists(MS, min_size=1, max_size=20)


@given(ROUND, st.floats(min_value=0, max_value=1))
def test_a_quantile_was_measured_and_bounds_its_share_of_the_values(values: list[float], share: float) -> None:
    found = quantile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9


def test_quantiles_of_twenty_runs() -> None:
    values = list(map(float, range(20, 0, -1)))
    assert (quantile(values, 0.5), quantile(values, 0.95), quantile(values, 1)) == (10, 19, 20)


@pytest.mark.parametrize(("values", "share"), [([], 0.5), ([1.0], 1.1), ([1.0], -0.1)])
def test_a_quantile_of_nothing_is_refused(values: list[float], share: float) -> None:
    with pytest.raises(ValueError):
        quantile(values, share)


def test_one_disturbed_round_moves_neither_median_nor_ratio() -> None:
    quiet = [[200.0, 201.0, 205.0], [200.0, 200.0, 200.0], [199.0, 200.0, 900.0]]
    floor = [[100.0], [100.0], [100.0]]
    disturbed = [*quiet[:2], [5_000.0, 6_000.0, 7_000.0]]
    assert median_of_rounds(quiet) == 200.0
    assert median_of_rounds(disturbed) == 201.0
    assert ratio_of_rounds(disturbed, floor) == 2.01


@given(st.lists(ROUND, min_size=1, max_size=6), st.floats(min_value=1, max_value=50))
def test_a_slow_machine_cancels_out_of_the_ratio(rounds: list[list[float]], slower: float) -> None:
    """Each round is held against the floor of the same round: what slows both down is in neither."""
    plain = [[statistics.median(each) / 2] for each in rounds]
    slow_rounds = [[value * slower for value in each] for each in rounds]
    slow_floor = [[value * slower for value in each] for each in plain]
    assert ratio_of_rounds(rounds, plain) == pytest.approx(2)
    assert ratio_of_rounds(slow_rounds, slow_floor) == pytest.approx(2)


def test_rounds_that_were_not_run_side_by_side_have_no_ratio() -> None:
    with pytest.raises(ValueError):
        ratio_of_rounds([[1.0], [1.0]], [[1.0]])


def test_everybody_begins_a_round_once() -> None:
    names = ["a", "b", "c"]
    assert [rotated(names, by)[0] for by in range(4)] == ["a", "b", "c", "a"]
    assert sorted(rotated(names, 2)) == names
    assert rotated([], 3) == []
