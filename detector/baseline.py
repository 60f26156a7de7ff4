"""Each series against its own past: median and MAD in log space.

The log makes a slow-down of the same factor equally visible for 10 ms and for 10 s. The scale has a floor, so that a
constant series does not make every ripple an alarm, and a sample beyond the threshold does not teach, so that a slow
leak is not absorbed. The location and scale estimators: Rousseeuw and Croux, "Alternatives to the Median Absolute
Deviation", JASA 1993.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from everstep.core.events import Entity
from everstep.detector.window import FloatArray, Scores, Window

MAD_TO_SIGMA = 1.4826  # makes the MAD of a normal distribution its standard deviation
TINY = 1e-9
REFRESH_AT = 64


class Learned:
    """Centre and scatter of the last `memory` accepted numbers of one series."""

    __slots__ = ("_at", "_center", "_count", "_ring", "_scatter", "_stale")

    def __init__(self, memory: int) -> None:
        self._ring: FloatArray = np.zeros(memory)
        self._count = 0
        self._at = 0
        self._center = 0.0
        self._scatter = 0.0
        self._stale = 0

    def __len__(self) -> int:
        return self._count

    def add(self, values: FloatArray) -> None:
        for value in values:
            self._ring[self._at] = value
            self._at = (self._at + 1) % len(self._ring)
            self._count = min(self._count + 1, len(self._ring))
        self._stale += len(values)

    def clear(self) -> None:
        self._count = self._at = self._stale = 0

    def values(self) -> FloatArray:
        return self._ring[: self._count].copy()

    @property
    def center(self) -> float:
        self._refresh()
        return self._center

    @property
    def scatter(self) -> float:
        """Standard deviation by MAD; 0.0 for a constant series."""
        self._refresh()
        return self._scatter

    def _refresh(self) -> None:
        """A long history is summed up anew only when an eighth of `REFRESH_AT` samples has come."""
        if not self._count or self._stale <= (REFRESH_AT // 8 if self._count > REFRESH_AT else 0):
            return
        held = self._ring[: self._count]
        self._center = float(np.median(held))
        self._scatter = MAD_TO_SIGMA * float(np.median(np.abs(held - self._center)))
        self._stale = 0


class LearnedSeries:
    """What is learned of each entity: its own centre and scatter, kept over a restart."""

    def __init__(self, *, warmup: int, memory: int) -> None:
        self._warmup = warmup
        self._memory = memory
        self._learned: dict[Entity, Learned] = {}

    def known(self, entity: Entity) -> Learned | None:
        """None before the warm-up is over."""
        learned = self._learned.get(entity)
        return learned if learned is not None and len(learned) >= self._warmup else None

    def count(self, entity: Entity) -> int:
        return len(self._learned[entity]) if entity in self._learned else 0

    def learn(self, entities: Sequence[Entity], rows: FloatArray, limit: Callable[[Learned], float]) -> None:
        """A number further than `limit` from the centre does not teach once the warm-up is over."""
        for entity, row in zip(entities, rows, strict=True):
            learned = self._learned.setdefault(entity, Learned(self._memory))
            valid = row[np.isfinite(row)]
            usual = np.abs(valid - learned.center) <= limit(learned)
            learned.add(valid[usual] if len(learned) >= self._warmup else valid)

    def forget(self, entity: Entity) -> None:
        self._learned.pop(entity, None)

    def state(self) -> dict[str, list[float]]:
        """By entity name."""
        return {entity.name: learned.values().tolist() for entity, learned in self._learned.items()}

    def restore(self, state: Mapping[str, Sequence[float]], entities: Sequence[Entity]) -> None:
        for entity in entities:
            if entity.name in state:
                self._learned[entity] = Learned(self._memory)
                self._learned[entity].add(np.asarray(state[entity.name], dtype=np.float64)[-self._memory :])


class RobustBaseline:
    """Score 1.0 is a median of the last `smooth` samples `sigmas` robust deviations above the own history.

    >>> from everstep.core.events import EntityKind
    >>> rank = Entity(kind=EntityKind.RANK, name="demo/0")
    >>> def of(*values):
    ...     return Window(metric="m", entities=(rank,), times=np.arange(len(values)), values=np.array([values]))
    >>> baseline = RobustBaseline(warmup=4)
    >>> baseline.learn(of(1.0, 1.1, 0.9, 1.0, 1.05))
    >>> bool(baseline.score(of(1.02)).values[0] < 1), bool(baseline.score(of(3.0)).values[0] > 1)
    (True, True)
    """

    def __init__(
        self, *, warmup: int, sigmas: float = 4.0, floor: float = 0.04, smooth: int = 5, memory: int = 256
    ) -> None:
        self._sigmas = sigmas
        self._floor = floor
        self._smooth = smooth
        self._series = LearnedSeries(warmup=warmup, memory=memory)

    def learn(self, window: Window) -> None:
        self._series.learn(window.entities, _logs(window.values), self._limit)

    def score(self, window: Window) -> Scores:
        scores = Scores.none(window.entities)
        recent = _logs(window.newest(self._smooth).values)
        for index, (entity, row) in enumerate(zip(window.entities, recent, strict=True)):
            learned = self._series.known(entity)
            valid = row[np.isfinite(row)]
            if learned is None or not len(valid):
                continue
            scores.values[index] = max(0.0, float(np.median(valid)) - learned.center) / self._limit(learned)
            if scores.values[index] >= 1.0:
                scores.onsets[index] = _onset(window, index, learned.center + self._limit(learned))
        return scores

    def band(self, entity: Entity) -> tuple[float, float] | None:
        """What counts as normal, in the unit of the series; None before the warm-up is over."""
        learned = self._series.known(entity)
        if learned is None:
            return None
        limit = self._limit(learned)
        return float(np.exp(learned.center - limit)), float(np.exp(learned.center + limit))

    def reanchor(self, entity: Entity) -> None:
        """Forget a series whose level has shifted for good (a confirmed change, such as a move to another node)."""
        self._series.forget(entity)

    def state(self) -> dict[str, list[float]]:
        """What was learned, by entity name, for keeping over a restart."""
        return self._series.state()

    def restore(self, state: Mapping[str, Sequence[float]], entities: Sequence[Entity]) -> None:
        self._series.restore(state, entities)

    def _limit(self, learned: Learned) -> float:
        return self._sigmas * max(learned.scatter, self._floor)


def _logs(values: FloatArray) -> FloatArray:
    """Natural logarithm; what is not a positive number becomes NaN (missing), never a guess."""
    usable = np.isfinite(values) & (values > TINY)
    return np.where(usable, np.log(np.where(usable, values, 1.0)), np.nan)


def _onset(window: Window, index: int, limit: float) -> float:
    """Time of the first sample of the run above `limit` that reaches the end of the window, gaps of one allowed."""
    above = _logs(window.values[index : index + 1])[0] > limit
    first = len(above) - 1
    for at in range(len(above) - 1, -1, -1):
        if above[at]:
            first = at
        elif at + 1 < len(above) and not above[at + 1]:
            break
    return float(window.times[first])
