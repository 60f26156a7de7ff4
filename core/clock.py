"""Time as a value: deciding code takes `now`; only the edges own a clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds since the epoch."""

    def now(self) -> float: ...


class SystemClock:
    """The machine's wall clock."""

    def now(self) -> float:
        return time.time()


class ManualClock:
    """A clock that stands still until it is told to move; the official test double."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds


class SteadyClock:
    """Seconds since some moment: for ages and deadlines, which a step of the wall clock must not touch."""

    def now(self) -> float:
        return time.monotonic()
