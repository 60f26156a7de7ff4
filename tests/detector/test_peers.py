from __future__ import annotations

import numpy as np
import pytest

from everstep.core.events import Entity, EntityKind
from everstep.detector.peers import PeerDetector, peer_residuals
from everstep.detector.window import FloatArray, Window


def window(values: FloatArray) -> Window:
    entities = tuple(Entity(kind=EntityKind.RANK, name=f"demo/{rank}") for rank in range(len(values)))
    return Window(metric="m", entities=entities, times=np.arange(values.shape[1], dtype=float), values=values)


def detector() -> PeerDetector:
    return PeerDetector(ratio=1.25, window=10, needed=8, warmup=10)


def run(peers: PeerDetector, values: FloatArray) -> list[tuple[int, int]]:
    """(step, rank) of every flag, fed step by step as the service does."""
    flags = []
    for end in range(1, values.shape[1] + 1):
        found = peers.score(window(values[:, max(0, end - 20) : end])).flagged()
        flags += [(end - 1, rank) for rank in found]
        if not found:
            peers.learn(window(values[:, end - 1 : end]))
    return flags


def noise(rng: np.random.Generator, ranks: int, steps: int) -> FloatArray:
    """Compute seconds on a crowded machine: shared swings, jitter, and one step in twenty several times too long."""
    shared = np.exp(np.cumsum(rng.normal(0, 0.02, steps)) * 0.2)
    jitter = np.exp(rng.normal(0, 0.1, (ranks, steps)))
    spikes = np.where(rng.random((ranks, steps)) < 0.05, 1 + rng.pareto(1.5, (ranks, steps)), 1.0)
    return 0.1 * shared * jitter * spikes


def test_median_of_the_others_leaves_oneself_out() -> None:
    values = np.array([[1.0], [2.0], [4.0], [8.0], [np.nan]])
    got = np.exp(peer_residuals(values)).ravel()
    others = ((2, 4, 8), (1, 4, 8), (1, 2, 8), (1, 2, 4))
    want = [own / float(np.median(rest)) for own, rest in zip((1, 2, 4, 8), others, strict=True)]
    np.testing.assert_allclose(got[:4], want)
    assert np.isnan(got[4])


def test_two_valid_ranks_are_too_few() -> None:
    assert np.isnan(peer_residuals(np.array([[1.0], [2.0], [np.nan]]))).all()


@pytest.mark.parametrize("ranks", [3, 4, 8])
def test_slow_rank_is_found_within_twelve_steps(ranks: int) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        values = 0.1 * np.exp(rng.normal(0, 0.05, (ranks, 80)))
        values[1, 50:] *= 1.5
        flags = run(detector(), values)
        assert flags, f"seed {seed}"
        assert flags[0][1] == 1
        assert 50 < flags[0][0] < 62
        assert {rank for _, rank in flags} == {1}


def test_slow_rank_is_found_in_heavy_noise() -> None:
    for seed in range(5):
        values = noise(np.random.default_rng(seed), 3, 120)
        values[2, 60:] *= 1.5
        flags = run(detector(), values)
        assert flags, f"seed {seed}"
        assert flags[0][1] == 2
        assert 60 < flags[0][0] < 85


@pytest.mark.parametrize("ranks", [3, 8])
def test_heavy_tailed_noise_raises_no_alarm(ranks: int) -> None:
    for seed in range(3):
        assert run(detector(), noise(np.random.default_rng(100 + seed), ranks, 500)) == []


def test_two_ranks_that_share_a_core_are_not_slow() -> None:
    rng = np.random.default_rng(5)
    values = 0.1 * np.exp(rng.normal(0, 0.05, (3, 120)))
    values[1:, 60:80] *= 2.0
    assert run(detector(), values) == []


def test_unequal_shards_are_learned() -> None:
    rng = np.random.default_rng(6)
    values = np.array([[0.1], [0.1], [0.16]]) * np.exp(rng.normal(0, 0.05, (3, 100)))
    assert run(detector(), values) == []
    values[0, 60:] *= 1.5
    assert {rank for _, rank in run(detector(), values)} == {0}


def test_everybody_slower_is_nobody_slow() -> None:
    rng = np.random.default_rng(7)
    values = 0.1 * np.exp(rng.normal(0, 0.05, (4, 100)))
    values[:, 50:] *= 3.0
    assert run(detector(), values) == []


def test_onset_is_the_first_slow_step() -> None:
    values = np.full((3, 60), 0.1)
    values[1, 45:] = 0.2
    peers = detector()
    peers.learn(window(values[:, :45]))
    scores = peers.score(window(values[:, :54]))
    assert scores.onsets[1] == 45.0


def test_state_survives_a_restart() -> None:
    rng = np.random.default_rng(8)
    values = np.array([[0.1], [0.1], [0.16]]) * np.exp(rng.normal(0, 0.05, (3, 60)))
    before, after = detector(), detector()
    before.learn(window(values))
    after.restore(before.state(), window(values).entities)
    np.testing.assert_allclose(after.score(window(values)).values, before.score(window(values)).values)
    assert after.learned(window(values).entities) == 60
