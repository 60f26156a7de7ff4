"""How far a job is, as the recovery controller sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """`step` is the newest step that every rank of `attempt` has finished (-1: none), at `at` seconds since the epoch.

    `losses` maps recent steps of this attempt to their loss, `batches` to the batch index consumed,
    `ends` to when their last rank finished; a source may leave `ends` empty.
    """

    job: str
    attempt: int
    step: int
    at: float
    losses: Mapping[int, float]
    batches: Mapping[int, int]
    learning_rate: float
    ends: Mapping[int, float] = field(default_factory=dict)


class ProgressSource(Protocol):
    def progress(self, job: str) -> JobProgress | None: ...

    def history(self, job: str) -> Mapping[int, float]:
        """Loss of each recent step as last reported by any earlier attempt."""
        ...
