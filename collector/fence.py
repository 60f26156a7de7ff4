"""Fencing: the newest attempt of each job that this node has seen, remembered over a restart of the agent."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import structlog

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
        self._keep(job, attempt)
        return True

    def _keep(self, job: str, attempt: int) -> None:
        """A full tmpfs must not keep an attempt from being stopped; the number then counts until the agent ends."""
        file = self._file_of(job)
        fresh = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            fresh.write_text(str(attempt))
            fresh.rename(file)
        except OSError as error:
            with contextlib.suppress(OSError):
                fresh.unlink()
            structlog.get_logger().error(
                "fence_not_kept", job=job, attempt=attempt, error=str(error), mend=f"free space in {file.parent}"
            )
