"""Samples of one series, bounded in number and age: 16 bytes each, appended and dropped in amortised constant time."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

TRIM_EVERY = 256


class Ring:
    """Times only ever grow; the owner checks that before it appends."""

    __slots__ = ("times", "values")

    def __init__(self) -> None:
        self.times = array("d")
        self.values = array("d")

    def __len__(self) -> int:
        return len(self.times)

    def append(self, at: float, value: float, *, window_s: float, most: int) -> None:
        """`window_s` and `most` bound what is kept; trimming happens in blocks, so a little more may stand."""
        self.times.append(at)
        self.values.append(value)
        if not len(self.times) % TRIM_EVERY:
            self.trim(at - window_s, most)

    @property
    def newest(self) -> tuple[float, float] | None:
        return (self.times[-1], self.values[-1]) if self.times else None

    def arrays(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Copies of times and values, oldest first."""
        return np.array(self.times, dtype=np.float64), np.array(self.values, dtype=np.float64)

    def trim(self, oldest: float, most: int) -> None:
        drop = max(0, len(self.times) - most)
        while drop < len(self.times) and self.times[drop] < oldest:
            drop += 1
        if drop:
            del self.times[:drop]
            del self.values[:drop]
