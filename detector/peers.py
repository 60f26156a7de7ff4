"""Slow ranks by comparison with their peers.

In synchronous training every rank slows down together, so only rank-local seconds are compared, step by step: the log
ratio of a rank to the median of the other ranks, relative to the ratio that this rank has always had (ranks differ by
shard size). Most of the last steps must deviate, so that one hiccup is not a verdict. With few ranks the median of the
others is not robust (of two it is their mean): there the rank must also stand apart from every other rank, or two
ranks that share a core would both look slow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from everstep.core.events import Entity
from everstep.detector.baseline import TINY, Learned, LearnedSeries
from everstep.detector.window import FloatArray, Scores, Window

FEWEST_PEERS = 3
ROBUST_PEERS = 6
SCATTER_FLOOR = 0.02
NOISE_SIGMAS = 2.0


def peer_residuals(values: FloatArray) -> FloatArray:
    """Log ratio of each entry to the median of the other entries of its column; NaN where fewer than three are valid.

    >>> np.round(np.exp(peer_residuals(np.array([[1.0], [1.0], [1.5]]))), 2).ravel().tolist()
    [0.82, 0.82, 1.5]
    """
    usable = np.isfinite(values) & (values > TINY)
    logs = np.where(usable, np.log(np.where(usable, values, 1.0)), np.inf)
    valid = usable.sum(axis=0)
    if not values.size or not (valid >= FEWEST_PEERS).any():
        return np.full(values.shape, np.nan)
    order = np.argsort(logs, axis=0, kind="stable")
    position = np.argsort(order, axis=0, kind="stable")
    ordered = np.take_along_axis(logs, order, axis=0)
    low, high = np.maximum(valid - 2, 0) // 2, np.maximum(valid - 1, 0) // 2
    last = len(values) - 1
    below = np.take_along_axis(ordered, np.minimum(low + (low >= position), last), axis=0)
    above = np.take_along_axis(ordered, np.minimum(high + (high >= position), last), axis=0)
    judged = usable & (valid >= FEWEST_PEERS)
    middle = np.where(judged, below, 0.0) / 2 + np.where(judged, above, 0.0) / 2
    return np.where(judged, np.where(judged, logs, 0.0) - middle, np.nan)


class PeerDetector:
    """Score 1.0: `needed` of the last `window` steps are `ratio` times slower against the peers than ever learned."""

    def __init__(self, *, ratio: float, window: int, needed: int, warmup: int, memory: int = 256) -> None:
        self._log_ratio = math.log(ratio)
        self._window = window
        self._needed = min(needed, window)
        self._series = LearnedSeries(warmup=warmup, memory=memory)

    def learn(self, window: Window) -> None:
        self._series.learn(window.entities, peer_residuals(window.values), self._limit)

    def score(self, window: Window) -> Scores:
        scores = Scores.none(window.entities)
        recent = window.newest(self._window)
        relative = self.relative(recent).values
        typical = np.array([_median(row) for row in relative])
        for index, row in enumerate(relative):
            valid = row[np.isfinite(row)]
            learned = self._series.known(window.entities[index])
            if learned is None or len(valid) < self._needed:
                continue
            limit = self._limit(learned)
            score = float(np.sort(valid)[-self._needed]) / limit
            others = np.delete(typical, index)
            others = others[np.isfinite(others)]
            if len(others) + 1 < ROBUST_PEERS:
                apart = typical[index] - (float(others.max()) if len(others) else math.inf)
                score = min(score, apart / limit)
            scores.values[index] = max(0.0, score)
            if score >= 1.0:
                scores.onsets[index] = recent.times[int(np.argmax(row > limit))]
        return scores

    def relative(self, window: Window) -> Window:
        """Log ratio to the peers less the rank's learned one; NaN before `warmup` steps are learned."""
        residuals = peer_residuals(window.values)
        centers = np.array([self._center(entity) for entity in window.entities]).reshape(-1, 1)
        return window.with_values(residuals - centers)

    def learned(self, entities: Sequence[Entity]) -> int:
        """Steps learned for the least known of the entities."""
        return min(map(self._series.count, entities), default=0)

    def reanchor(self, entity: Entity) -> None:
        """Forget the ratio of a rank that now runs elsewhere."""
        self._series.forget(entity)

    def state(self) -> dict[str, list[float]]:
        """What was learned, by entity name, for keeping over a restart."""
        return self._series.state()

    def restore(self, state: Mapping[str, Sequence[float]], entities: Sequence[Entity]) -> None:
        self._series.restore(state, entities)

    def _center(self, entity: Entity) -> float:
        learned = self._series.known(entity)
        return learned.center if learned is not None else math.nan

    def _limit(self, learned: Learned) -> float:
        return max(self._log_ratio, NOISE_SIGMAS * max(learned.scatter, SCATTER_FLOOR))


def _median(row: FloatArray) -> float:
    valid = [value for value in row.tolist() if math.isfinite(value)]
    return median(valid) if valid else math.nan
