"""What a stage does with its time: works, waits for the stage before it, or waits for the one behind it.

The stage with the most `busy_s` is the bottleneck; those before it wait for output, those behind it for input.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum


class Activity(StrEnum):
    BUSY = "busy"
    INPUT = "input"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTiming:
    """Seconds since the start, of all threads of the stage together, and what it finished."""

    busy_s: float = 0.0
    input_wait_s: float = 0.0
    output_wait_s: float = 0.0
    num_items: int = 0

    def __add__(self, other: StageTiming) -> StageTiming:
        return StageTiming(
            busy_s=self.busy_s + other.busy_s,
            input_wait_s=self.input_wait_s + other.input_wait_s,
            output_wait_s=self.output_wait_s + other.output_wait_s,
            num_items=self.num_items + other.num_items,
        )


class StageClock:
    """Written by one thread, read by any. Time counts from `start` to `close`."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._seconds = dict.fromkeys(Activity, 0.0)
        self._num_items = 0
        self._activity: Activity | None = None
        self._since = 0.0

    def start(self) -> None:
        self._turn(Activity.BUSY)

    def close(self) -> None:
        self._turn(None)

    def count(self) -> None:
        self._num_items += 1

    @contextmanager
    def running(self) -> Iterator[None]:
        self.start()
        try:
            yield
        finally:
            self.close()

    @contextmanager
    def during(self, activity: Activity) -> Iterator[None]:
        before = self._turn(activity)
        try:
            yield
        finally:
            self._turn(before)

    def timing(self) -> StageTiming:
        with self._lock:
            seconds = dict(self._seconds)
            if self._activity is not None:
                seconds[self._activity] += self._now() - self._since
        return StageTiming(
            busy_s=seconds[Activity.BUSY],
            input_wait_s=seconds[Activity.INPUT],
            output_wait_s=seconds[Activity.OUTPUT],
            num_items=self._num_items,
        )

    @property
    def doing(self) -> tuple[Activity | None, float]:
        """What it does now and for how many seconds already."""
        with self._lock:
            return self._activity, self._now() - self._since if self._activity else 0.0

    def _turn(self, activity: Activity | None) -> Activity | None:
        with self._lock:
            now, before = self._now(), self._activity
            if before is not None:
                self._seconds[before] += now - self._since
            self._activity, self._since = activity, now
        return before
