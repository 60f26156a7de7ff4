"""Samples of one series, bounded in number and age: 16 bytes each, appended and dropped in amortised constant time."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

TRIM_EVERY = 256


class Ring:
    """Times only ever grow; the owner checks that before it appends."""

    __slots__ = ("_times", "_values")

    def __init__(self) -> None:
        self._times = array("d")
        self._values = array("d")

    def __len__(self) -> int:
        return len(self._times)

    def append(self, at: float, value: float, *, window_s: float, most: int) -> None:
        """`window_s` and `most` bound what is kept; trimming happens in blocks, so a little more may stand."""
        self._times.append(at)
        self._values.append(value)
        if len(self._times) % TRIM_EVERY == 0:
            self._trim(at - window_s, most)

    @property
    def newest(self) -> tuple[float, float] | None:
        return (self._times[-1], self._values[-1]) if self._times else None

    def arrays(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Copies of times and values, oldest first."""
        return np.array(self._times, dtype=np.float64), np.array(self._values, dtype=np.float64)

    def _trim(self, oldest: float, most: int) -> None:
        drop = max(0, len(self._times) - most)
        while drop < len(self._times) and self._times[drop] < oldest:
            drop += 1
        if drop:
            del self._times[:drop]
            del self._values[:drop]
