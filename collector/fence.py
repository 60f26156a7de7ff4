"""Fencing: the newest attempt of each job that this node has seen, remembered over a restart of the agent."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from everstep.collector.refusal import RefusedError


class Fence:
    """Attempts only grow. `file_of(job)` is where a job's number is kept."""

    def __init__(self, file_of: Callable[[str], Path]) -> None:
        self._file_of = file_of
        self._highest: dict[str, int] = {}

    def recall(self, job: str) -> None:
        """Read what an earlier agent has left; an unreadable file says nothing."""
        with contextlib.suppress(OSError, ValueError):
            self._highest[job] = max(self.highest(job), int(self._file_of(job).read_text()))

    def highest(self, job: str) -> int:
        """-1 before any."""
        return self._highest.get(job, -1)

    def refuse_old(self, job: str, attempt: int) -> None:
        """Raises `RefusedError` 409 for an attempt older than the newest seen."""
        if attempt < self.highest(job):
            raise RefusedError(
                f"attempt {attempt} of job {job} is older than attempt {self.highest(job)}",
                mend="use the newest attempt: this one is fenced",
                status=409,
            )

    def advance(self, job: str, attempt: int) -> bool:
        """Whether the attempt is newer than any before; raises `RefusedError` 409 when it is older."""
        self.refuse_old(job, attempt)
        if attempt == self.highest(job):
            return False
        self._highest[job] = attempt
        file = self._file_of(job)
        fresh = file.with_name(f".{file.name}.{os.getpid()}")
        fresh.write_text(str(attempt))
        fresh.rename(file)
        return True
