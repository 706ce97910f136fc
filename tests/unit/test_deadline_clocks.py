"""A deadline set by the server's clock, on a machine whose clock says something else."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest
from temporalio.testing import ActivityEnvironment

from activities.clocks import limit_by_this_clock
from retold.contracts.stages import Limit
from retold.policy.limits import left_ms, utc_now

LEFT_MS = 400.0
HOUR = timedelta(hours=1)


def left_on(skew: timedelta, *, delivery: timedelta = timedelta(0), is_local: bool = False) -> float:
    """Milliseconds a stage has whose server is behind this clock by `skew` and needed so long to hand it out."""
    handed_out = utc_now() - skew - delivery
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(environment.info, started_time=handed_out, is_local=is_local)
    limit = Limit(limit_ms=LEFT_MS, deadline_at=handed_out + timedelta(milliseconds=LEFT_MS))
    left = environment.run(lambda: left_ms(limit_by_this_clock(limit)))
    assert isinstance(left, float)
    return left


@pytest.mark.parametrize("skew", [HOUR, -HOUR, timedelta(seconds=5), timedelta(seconds=-5)])
def test_a_clock_that_is_wrong_costs_a_stage_none_of_its_time(skew: timedelta) -> None:
    assert left_on(skew) == pytest.approx(LEFT_MS, abs=100)


def test_a_task_that_was_long_under_way_has_less_left() -> None:
    assert left_on(timedelta(0), delivery=timedelta(milliseconds=300)) < 150
    assert left_on(timedelta(0), delivery=timedelta(milliseconds=900)) <= 0


@pytest.mark.parametrize("skew", [HOUR, -HOUR, timedelta(0)])
def test_a_local_stage_knows_only_how_long_it_may_take(skew: timedelta) -> None:
    assert left_on(skew, is_local=True) == LEFT_MS


def test_without_a_deadline_nothing_changes() -> None:
    limit = Limit(limit_ms=LEFT_MS)
    assert limit_by_this_clock(limit) is limit
