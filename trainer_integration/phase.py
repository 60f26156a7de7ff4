"""Timing of one phase of a step as a reusable context manager."""

from __future__ import annotations

from array import array
from time import perf_counter, thread_time
from types import TracebackType


class Phase:
    """Adds the wall time of a `with` block to one slot. One instance per phase; not re-entrant."""

    __slots__ = ("_slot", "_started", "_values")

    def __init__(self, values: array[float], slot: int) -> None:
        self._values = values
        self._slot = slot
        self._started = 0.0

    def __enter__(self) -> None:
        self._started = perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._values[self._slot] += perf_counter() - self._started


class ComputePhase:
    """A phase in which a rank both computes and waits for its peers (forward, backward under sharding).

    The calling thread's CPU time is the rank's own compute and goes to the phase; what is left of the wall time is
    waiting (for peers, for the network, for a core) and goes to `collective`. Right on CPU, where autograd runs in the
    calling thread and gloo works in threads of its own.
    """

    __slots__ = ("_cpu", "_slot", "_started", "_values", "_wait_slot", "compute_s")

    def __init__(self, values: array[float], slot: int, wait_slot: int) -> None:
        self._values = values
        self._slot = slot
        self._wait_slot = wait_slot
        self._started = 0.0
        self._cpu = 0.0
        self.compute_s = 0.0

    def __enter__(self) -> None:
        self._started = perf_counter()
        self._cpu = thread_time()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        compute = thread_time() - self._cpu
        wait = perf_counter() - self._started - compute
        self.compute_s += compute
        values = self._values
        values[self._slot] += compute
        if wait > 0.0:
            values[self._wait_slot] += wait
