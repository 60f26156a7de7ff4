"""What the storage probe has measured. Read without waiting, so that a hang shows while it lasts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

from everstep.collector.histogram import Histogram
from everstep.collector.samples import Sample

METRIC = "everstep_storage_latency_seconds"
Operation = Literal["read", "write", "fsync"]
OPERATIONS: tuple[Operation, ...] = ("read", "write", "fsync")


class StorageLatency:
    """One target. The probe's thread times operations, one at a time; any thread may collect."""

    def __init__(self, target: str, timeout_s: float, now: Callable[[], float] = time.perf_counter) -> None:
        self._timeout_s = timeout_s
        self._now = now
        self._lock = threading.Lock()
        self._histograms = {one: Histogram(METRIC, (("target", target), ("op", one))) for one in OPERATIONS}
        self._running: tuple[Operation, float] | None = None

    @contextmanager
    def timed(self, operation: Operation) -> Iterator[None]:
        """Observed, unless it raises or counts as a hang already."""
        with self.guarded(operation):
            yield
            self._finish()

    @contextmanager
    def guarded(self, operation: Operation) -> Iterator[None]:
        """Not observed, but what outlasts the timeout counts in +Inf, once and whenever it ends."""
        with self._lock:
            self._running = (operation, self._now())
        try:
            yield
        finally:
            with self._lock:
                self._count_overdue()
                self._running = None

    def collect(self) -> Iterable[Sample]:
        with self._lock:
            self._count_overdue()
            return [sample for histogram in self._histograms.values() for sample in histogram.samples()]

    def _finish(self) -> None:
        with self._lock:
            self._count_overdue()
            if self._running is not None:
                operation, start = self._running
                self._histograms[operation].observe(self._now() - start)

    def _count_overdue(self) -> None:
        if self._running is not None and self._now() - self._running[1] > self._timeout_s:
            self._histograms[self._running[0]].lose(self._timeout_s)
            self._running = None
