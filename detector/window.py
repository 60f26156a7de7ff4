"""The two arrays that every array detector speaks: a window of series in, one score for each series out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from everstep.core.events import Entity

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """`values` is [series, time], NaN where a sample is missing; `times` are seconds since the epoch, oldest first.

    Any real dtype is accepted and held as float64. Raises `ValueError` when the shapes disagree.
    """

    metric: str
    entities: tuple[Entity, ...]
    times: FloatArray
    values: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "times", _float64(self.times))
        object.__setattr__(self, "values", _float64(self.values))
        if self.values.shape != (len(self.entities), len(self.times)):
            raise ValueError(f"values {self.values.shape} do not fit {len(self.entities)} series, {self.times.shape}")

    def newest(self, count: int) -> Window:
        """The last `count` ticks."""
        start = max(0, len(self.times) - count)
        return Window(
            metric=self.metric, entities=self.entities, times=self.times[start:], values=self.values[:, start:]
        )

    def with_values(self, values: FloatArray) -> Window:
        """The same series and ticks with other numbers."""
        return Window(metric=self.metric, entities=self.entities, times=self.times, values=values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """One score a series for the newest tick: 1.0 is the threshold, NaN means no verdict.

    `onsets` holds the time of the first sample that belongs to the deviation, NaN where there is none.
    """

    entities: tuple[Entity, ...]
    values: FloatArray
    onsets: FloatArray

    @classmethod
    def none(cls, entities: tuple[Entity, ...]) -> Scores:
        blank = np.full(len(entities), np.nan)
        return cls(entities=entities, values=blank, onsets=blank.copy())

    def flagged(self) -> tuple[int, ...]:
        """Indices of the series at or above the threshold, highest score first."""
        order = np.argsort(-np.nan_to_num(self.values, nan=-np.inf), kind="stable")
        return tuple(int(index) for index in order if self.values[index] >= 1.0)


class Detector(Protocol):
    """`learn` takes samples that were not learned before; `score` judges the newest tick and changes nothing."""

    def learn(self, window: Window) -> None: ...

    def score(self, window: Window) -> Scores: ...


def _float64(values: ArrayLike) -> FloatArray:
    array: NDArray[Any] = np.asarray(values)
    return array if array.dtype == np.float64 else array.astype(np.float64)
