"""Bands of series without peers: they follow a trend, hold through noise, and are left by a jump or a NaN."""

from __future__ import annotations

import numpy as np
import pytest

from everstep.detector.bands import LEAST, SMOOTH, WINDOW, robust_band


def loss(steps: int, seed: int = 0) -> np.ndarray:
    """Falls like that of a language model, with the noise of its batches."""
    rng = np.random.default_rng(seed)
    return np.asarray(2.0 + 3.0 * np.arange(1, steps + 1) ** -0.4 + rng.normal(0, 0.03, steps))


def test_little_history_has_no_band() -> None:
    assert robust_band(loss(LEAST + SMOOTH - 1)) is None
    assert robust_band(loss(LEAST + SMOOTH)) is not None


@pytest.mark.parametrize("seed", range(10))
def test_a_falling_loss_stays_inside(seed: int) -> None:
    values = loss(2000, seed)
    scores = [band.score for end in range(60, 2000, 7) if (band := robust_band(values[:end])) is not None]
    assert max(scores) < 1.0


def test_a_jump_leaves_the_band_and_the_band_does_not_follow() -> None:
    calm = loss(400)
    band = robust_band(np.append(calm, calm[-SMOOTH:] + 1.0))
    assert band is not None
    assert band.score == 1.0
    assert band.lower < calm[-1] < band.upper < calm[-1] + 1.0


def test_one_odd_sample_is_no_departure() -> None:
    band = robust_band(np.append(loss(400), 9.0))
    assert band is not None
    assert band.score < 1.0


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_number_that_is_none_scores_one_at_once(value: float) -> None:
    band = robust_band(np.append(loss(400), value))
    assert band is not None
    assert band.score == 1.0


def test_a_norm_is_judged_by_factor() -> None:
    rng = np.random.default_rng(3)
    norms = np.exp(rng.normal(0.0, 0.2, 300))
    band = robust_band(norms, log=True)
    assert band is not None
    assert 0.0 < band.lower < 0.5
    assert 2.0 < band.upper < 6.0
    spiked = robust_band(np.append(norms, [30.0] * SMOOTH), log=True)
    assert spiked is not None
    assert spiked.score == 1.0


def test_a_constant_has_a_band_around_it() -> None:
    band = robust_band(np.full(WINDOW, 4.0))
    assert band is not None
    assert band.lower < 4.0 < band.upper
    assert band.score == 0.0


def test_zeros_and_gaps_are_survived() -> None:
    assert robust_band(np.zeros(100)) is not None
    assert robust_band(np.zeros(100), log=True) is None
    assert robust_band(np.full(100, np.nan)) is None
    assert robust_band(np.array([])) is None
