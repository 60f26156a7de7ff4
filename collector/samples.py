"""What a collector yields: one reading of one series, and the one-method protocol that yields it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The newest value of a series; `suffix` is the part after the metric's name in a histogram.

    `points` are (seconds since the epoch, value) pairs to push instead of the value at push time; an empty tuple says
    that the series lives and has nothing new.
    """

    metric: str
    value: float
    labels: Labels = ()
    suffix: str = ""
    points: tuple[tuple[float, float], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dated:
    """Samples without points of their own that were read together, `at` seconds since the epoch.

    None says that they have been pushed before and that their series live.
    """

    samples: Iterable[Sample]
    at: float | None


class SampleSource(Protocol):
    """Something that can be read at any moment without waiting."""

    def collect(self) -> Iterable[Sample]: ...
