from __future__ import annotations

import numpy as np

from everstep.core.events import Entity, EntityKind
from everstep.detector.baseline import Learned, RobustBaseline
from everstep.detector.window import Window

RANK = Entity(kind=EntityKind.RANK, name="demo/0")


def window(*values: float) -> Window:
    return Window(metric="m", entities=(RANK,), times=np.arange(len(values), dtype=float), values=np.array([values]))


def test_learned_forgets_the_oldest() -> None:
    learned = Learned(3)
    learned.add(np.array([9.0, 1.0, 2.0, 3.0]))
    assert len(learned) == 3
    assert learned.center == 2.0
    learned.add(np.array([4.0]))
    assert learned.center == 3.0


def test_constant_series_has_a_floor() -> None:
    baseline = RobustBaseline(warmup=4)
    baseline.learn(window(*[0.1] * 20))
    assert baseline.score(window(0.105)).values[0] < 1
    assert baseline.score(window(0.2)).values[0] > 1


def test_a_slow_leak_is_not_absorbed() -> None:
    baseline = RobustBaseline(warmup=10, smooth=1)
    rng = np.random.default_rng(1)
    baseline.learn(window(*(0.1 * np.exp(rng.normal(0, 0.02, 50)))))
    value = 0.1
    for _ in range(200):
        value *= 1.01
        baseline.learn(window(value))
    assert baseline.score(window(value)).values[0] > 3


def test_one_spike_is_not_a_vote() -> None:
    baseline = RobustBaseline(warmup=10)
    baseline.learn(window(*[0.1] * 20))
    assert baseline.score(window(0.1, 0.1, 0.1, 0.1, 5.0)).values[0] < 1


def test_reanchor_starts_over() -> None:
    baseline = RobustBaseline(warmup=4)
    baseline.learn(window(*[0.1] * 20))
    baseline.reanchor(RANK)
    assert np.isnan(baseline.score(window(0.5)).values[0])


def test_state_round_trip() -> None:
    baseline, other = RobustBaseline(warmup=4), RobustBaseline(warmup=4)
    baseline.learn(window(0.1, 0.11, 0.09, 0.1))
    other.restore(baseline.state(), [RANK])
    np.testing.assert_allclose(other.score(window(0.3)).values, baseline.score(window(0.3)).values)
