"""Where the GPU-seconds of a job go: wall time times world size, each second in exactly one class.

A step counts as productive once: when it is repeated after a rollback, its time is recompute. Time is split at the
monitor's ticks, so a class is right to about one tick.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import StrEnum


class TimeClass(StrEnum):
    PRODUCTIVE = "productive"
    CHECKPOINT = "checkpoint"
    RESTART = "restart"
    RECOMPUTE = "recompute"
    HANG = "hang"
    SLOW = "slow"
    QUEUE = "queue"
    IDLE = "idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMoment:
    """What a job does right now. `step` is its newest step (0 before the first), `highest_before` the newest step of
    any earlier attempt; `late` says that a step is overdue, `broken` that an incident waits for its verdict."""

    started: bool
    ended: bool = False
    recovering: bool = False
    broken: bool = False
    late: bool = False
    slow: bool = False
    checkpointing: bool = False
    step: int = 0
    highest_before: int = 0


def classify(moment: JobMoment) -> TimeClass:  # noqa: PLR0911 - one line a class, first match wins
    """The one class of this moment.

    >>> classify(JobMoment(started=True, step=5, highest_before=9)).value
    'recompute'
    """
    if not moment.started:
        return TimeClass.QUEUE
    if moment.ended:
        return TimeClass.IDLE
    if moment.recovering:
        return TimeClass.RESTART
    if moment.late or moment.broken:
        return TimeClass.HANG
    if moment.step <= 0:
        return TimeClass.RESTART
    if moment.step < moment.highest_before:
        return TimeClass.RECOMPUTE
    if moment.checkpointing:
        return TimeClass.CHECKPOINT
    return TimeClass.SLOW if moment.slow else TimeClass.PRODUCTIVE


class Goodput:
    """GPU-seconds by job and class; a rank without a GPU counts as one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: dict[str, dict[TimeClass, float]] = {}
        self._last: dict[str, float] = {}

    def account(self, job: str, moment: JobMoment, *, world_size: int, now: float) -> None:
        """Give the time since the last call to the class of this moment."""
        with self._lock:
            since = self._last.get(job, now)
            self._last[job] = now
            classes = self._seconds.setdefault(job, dict.fromkeys(TimeClass, 0.0))
            classes[classify(moment)] += max(0.0, now - since) * world_size

    def seconds(self) -> dict[str, dict[str, float]]:
        with self._lock:
            return {
                job: {kind.value: seconds for kind, seconds in classes.items()}
                for job, classes in self._seconds.items()
            }

    def ratio(self, job: str) -> float | None:
        """Productive share, None before any time has passed."""
        with self._lock:
            classes = self._seconds.get(job, {})
            total = sum(classes.values())
            return classes[TimeClass.PRODUCTIVE] / total if total > 0 else None
