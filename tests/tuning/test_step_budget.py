"""Where the seconds of a step go, with numbers that can be checked by hand."""

from __future__ import annotations

import math

import pytest

from everstep.tuning import PhaseCounters, step_budget


def read(steps: float, at: float, **seconds: float) -> PhaseCounters:
    return PhaseCounters(steps=steps, at=at, seconds=seconds)


ZERO = read(0, 100.0, forward=0.0, backward=0.0, collective=0.0, data=0.0, checkpoint=0.0)


def test_parts_sum_to_the_step() -> None:
    later = read(10, 110.0, forward=2.0, backward=3.0, collective=1.0, data=0.5, checkpoint=0.5)
    (rank,) = step_budget({0: ZERO}, {0: later}).ranks
    assert rank.step_s == pytest.approx(1.0)
    assert (rank.compute_s, rank.collective_wait_s) == (pytest.approx(0.5), pytest.approx(0.1))
    assert (rank.data_s, rank.checkpoint_s, rank.other_s) == tuple(pytest.approx(one) for one in (0.05, 0.05, 0.3))
    parts = (rank.compute_s, rank.collective_wait_s, rank.data_s, rank.checkpoint_s, rank.other_s)
    assert math.fsum(parts) == pytest.approx(rank.step_s)


def test_the_slowest_rank_costs_its_excess_over_the_peers() -> None:
    fast = read(10, 110.0, forward=4.0, collective=5.0)
    slow = read(10, 110.0, forward=8.0, collective=1.0)
    budget = step_budget({0: ZERO, 1: ZERO, 2: ZERO}, {0: fast, 1: slow, 2: fast})
    assert budget.slowest == 1
    assert budget.recoverable_s == pytest.approx(0.4)
    assert budget.parts["collective wait"] == pytest.approx(1.1 / 3)


def test_no_more_is_recoverable_than_is_waited_for() -> None:
    fast = read(10, 110.0, forward=4.0, collective=1.0)
    slow = read(10, 110.0, forward=8.0, collective=0.0)
    assert step_budget({0: ZERO, 1: ZERO}, {0: fast, 1: slow}).recoverable_s == pytest.approx(0.1)


def test_equal_ranks_have_nothing_to_recover() -> None:
    same = read(10, 110.0, forward=4.0, collective=1.0)
    assert step_budget({0: ZERO, 1: ZERO}, {0: same, 1: same}).recoverable_s == 0.0


def test_restarted_idle_and_unknown_ranks_are_left_out() -> None:
    good = read(10, 110.0, forward=4.0)
    readings = {0: good, 1: read(0, 110.0, forward=1.0), 2: read(10, 110.0, forward=-1.0), 3: good}
    first = {0: ZERO, 1: ZERO, 2: ZERO, 4: ZERO}
    assert [one.rank for one in step_budget(first, readings).ranks] == [0]
    nothing = step_budget({}, {})
    assert (nothing.ranks, nothing.slowest, nothing.recoverable_s, nothing.parts) == ((), None, 0.0, {})


def test_numbers_that_are_none_are_left_out() -> None:
    broken = read(10, 110.0, forward=math.nan)
    assert step_budget({0: ZERO}, {0: broken}).ranks == ()
