"""One isolation forest over all entities of a metric, as a vote.

It is fed short-window features of peer residuals, pooled over entities, and never decides alone: its score saturates
(a shift of 1.5 and one of 8 look the same). Liu, Ting and Zhou, "Isolation Forest", ICDM 2008.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from everstep.detector.window import FloatArray, Scores, Window

FEATURES = 4


class ForestVote:
    """`learn` only collects; `refit` builds the trees and belongs on another thread than `score`.

    The threshold is the `quantile` of the training scores. Deterministic for one `seed` and one history.
    """

    def __init__(
        self,
        *,
        window: int,
        trees: int = 24,
        fewest_rows: int = 48,
        memory: int = 2048,
        quantile: float = 0.995,
        seed: int = 7,
    ) -> None:
        self._window = window
        self._trees = trees
        self._fewest_rows = fewest_rows
        self._quantile = quantile
        self._seed = seed
        self._rows: FloatArray = np.zeros((memory, FEATURES))
        self._seen = 0
        self._fitted_at = 0
        self._model: tuple[Any, float] | None = None

    @property
    def rows(self) -> int:
        return min(self._seen, len(self._rows))

    @property
    def due(self) -> bool:
        """Whether as much was collected since the last fit as it knew (or as is kept): more would cost, not tell."""
        return self._seen - self._fitted_at >= min(max(self._fewest_rows, self._fitted_at), len(self._rows))

    def learn(self, window: Window) -> None:
        rows, _ = _features(window.newest(self._window))
        for row in rows:
            self._rows[self._seen % len(self._rows)] = row
            self._seen += 1

    def refit(self) -> None:
        """Build the trees from what was collected; does nothing before `fewest_rows` rows."""
        seen, rows = self._seen, self._rows[: self.rows].copy()
        if len(rows) < self._fewest_rows:
            return
        model = _forest_class()(
            n_estimators=self._trees, max_samples=min(256, len(rows)), random_state=self._seed, n_jobs=1
        ).fit(rows)
        threshold = float(np.quantile(-model.score_samples(rows), self._quantile))
        self._model = (model, max(threshold, 1e-6))
        self._fitted_at = seen

    def score(self, window: Window) -> Scores:
        """One batched call for all entities; NaN before the first `refit`."""
        scores = Scores.none(window.entities)
        model = self._model
        rows, indices = _features(window.newest(self._window))
        if model is None or not len(rows):
            return scores
        forest, threshold = model
        scores.values[indices] = -forest.score_samples(rows) / (threshold * 1.02)  # equal to the edge is not beyond it
        flagged = np.flatnonzero(scores.values >= 1.0)
        scores.onsets[flagged] = window.times[-1]
        return scores


def warm() -> None:
    """Import scikit-learn, which takes seconds: once, early, on a thread that nobody waits for."""
    _forest_class()


def _forest_class() -> Any:
    from sklearn.ensemble import IsolationForest

    return IsolationForest


def _features(window: Window) -> tuple[FloatArray, NDArray[np.intp]]:
    """Rows of (median, newest, largest, spread) and the indices of the series that have at least half their samples."""
    values = window.values
    if not values.size:
        return np.zeros((0, FEATURES)), np.zeros(0, dtype=np.intp)
    usable = np.isfinite(values)
    indices = np.flatnonzero(usable.sum(axis=1) * 2 >= max(2, values.shape[1]))
    if usable[indices].all():
        kept = values[indices]
        middle = np.median(kept, axis=1)
        spread = np.median(np.abs(kept - middle[:, None]), axis=1)
        return np.column_stack([middle, kept[:, -1], kept.max(axis=1), spread]), indices
    rows = []
    for index in indices:
        kept = values[index][usable[index]]
        middle = np.median(kept)
        rows.append((middle, kept[-1], kept.max(), np.median(np.abs(kept - middle))))
    return np.array(rows).reshape(-1, FEATURES), indices
