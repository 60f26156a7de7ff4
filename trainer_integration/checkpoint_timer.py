"""Timing of one save or load of a checkpoint as a context manager; how it ends decides the outcome."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from time import perf_counter
from types import TracebackType

from everstep.trainer_integration import slots


class CheckpointTimer:
    """Counts the time of a `with` block under success, failed or timeout; what is raised inside passes through."""

    __slots__ = ("_op", "_started", "_tier", "_values")

    def __init__(self, values: array[float], tier: str, op: str) -> None:
        self._values = values
        self._tier = tier
        self._op = op
        self._started = 0.0

    def __enter__(self) -> None:
        self._started = perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        timed_out = kind is not None and issubclass(kind, TimeoutError)
        outcome = "timeout" if timed_out else "success" if kind is None else "failed"
        observe(self._values, (self._tier, self._op, outcome), perf_counter() - self._started)


def observe(values: array[float], labels: tuple[str, str, str], seconds: float) -> None:
    """Add one duration to the histogram of (tier, op, outcome). Raises `KeyError` for labels that do not exist."""
    buckets, total, count = slots.CHECKPOINT_DURATION[labels]
    for slot in buckets[bisect_left(slots.CHECKPOINT_BOUNDS, seconds) :]:
        values[slot] += 1.0
    values[total] += seconds
    values[count] += 1.0
