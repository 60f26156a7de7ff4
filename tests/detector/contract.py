"""The contract of every array detector, as one check; `docs/adding_a_detector.md` points here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from everstep.core.events import Entity, EntityKind
from everstep.detector.window import Detector, FloatArray, Scores, Window

STEPS = 60


def window(values: FloatArray, *, names: tuple[str, ...] | None = None) -> Window:
    values = np.asarray(values)
    names = names or tuple(f"demo/{index}" for index in range(len(values)))
    return Window(
        metric="everstep_train_step_compute_seconds",
        entities=tuple(Entity(kind=EntityKind.RANK, name=name) for name in names),
        times=np.arange(values.shape[1], dtype=np.float64),
        values=values,
    )


def check_detector(make: Callable[[], Detector], finish: Callable[[Detector], None] = lambda _: None) -> None:
    """`make` builds a fresh detector; `finish` does what must follow learning (a refit)."""
    rng = np.random.default_rng(11)
    healthy = 0.1 * np.exp(rng.normal(0, 0.05, (4, STEPS)))
    broken = healthy[:, -20:].copy()
    broken[2, -12:] *= 3.0

    def trained() -> Detector:
        detector = make()
        for end in range(1, STEPS + 1):
            detector.learn(window(healthy[:, max(0, end - 12) : end]))
        finish(detector)
        return detector

    _check_verdicts(trained(), healthy, broken)
    _check_missing(trained(), healthy)
    _check_odd_shapes(make(), trained())
    _check_order(trained(), broken)
    _check_types(trained(), broken)
    first, second = trained().score(window(broken)), trained().score(window(broken))
    np.testing.assert_array_equal(first.values, second.values)


def _well_formed(scores: Scores, given: Window) -> None:
    assert scores.entities == given.entities
    assert scores.values.shape == scores.onsets.shape == (len(given.entities),)
    assert scores.values.dtype == np.float64
    judged = scores.values[~np.isnan(scores.values)]
    assert np.isfinite(judged).all()
    assert (judged >= 0).all()
    for index in scores.flagged():
        assert given.times[0] <= scores.onsets[index] <= given.times[-1]


def _check_verdicts(detector: Detector, healthy: FloatArray, broken: FloatArray) -> None:
    quiet = detector.score(window(healthy[:, -20:]))
    _well_formed(quiet, window(healthy[:, -20:]))
    assert quiet.flagged() == ()
    loud = detector.score(window(broken))
    _well_formed(loud, window(broken))
    assert loud.flagged()[:1] == (2,)
    again = detector.score(window(broken))
    np.testing.assert_array_equal(loud.values, again.values)  # scoring teaches nothing


def _check_missing(detector: Detector, healthy: FloatArray) -> None:
    holes = healthy[:, -20:].copy()
    holes[0, ::3] = np.nan
    holes[1, :] = np.nan
    scores = detector.score(window(holes))
    _well_formed(scores, window(holes))
    assert np.isnan(scores.values[1])
    assert scores.flagged() == ()
    detector.learn(window(holes))
    infinite = healthy[:, -20:].copy()
    infinite[3, -1] = np.inf
    _well_formed(detector.score(window(infinite)), window(infinite))


def _check_odd_shapes(fresh: Detector, trained: Detector) -> None:
    for values in (np.zeros((0, 0)), np.zeros((3, 0)), np.zeros((0, 5)), np.full((4, 1), 0.1), np.full((4, 20), 0.1)):
        given = window(values)
        for detector in (fresh, trained):
            scores = detector.score(given)
            _well_formed(scores, given)
            assert scores.flagged() == ()
        fresh.learn(given)
    zeros = window(np.zeros((4, 20)))
    fresh.learn(zeros)
    assert fresh.score(zeros).flagged() == ()


def _check_order(detector: Detector, broken: FloatArray) -> None:
    order = [3, 2, 0, 1]
    straight = detector.score(window(broken))
    turned = detector.score(window(broken[order], names=tuple(f"demo/{index}" for index in order)))
    np.testing.assert_allclose(turned.values, straight.values[order], rtol=1e-9)


def _check_types(detector: Detector, broken: FloatArray) -> None:
    exact = detector.score(window(broken))
    single = detector.score(window(broken.astype(np.float32)))
    assert single.flagged() == exact.flagged()
    whole = window(np.full((4, 20), 2, dtype=np.int64))
    _well_formed(detector.score(whole), whole)
