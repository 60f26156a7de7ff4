"""The budget of a step: what each rank computes, waits for its peers, reads, saves; and what the slowest rank costs.

In synchronous training a slow rank's extra seconds show up as waiting of all others, so the cost is read from the
rank-local work (compute and data), never from the step time, which is the same for everybody.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

COMPUTE_PHASES = frozenset({"forward", "backward", "optimizer"})
COLLECTIVE, DATA, CHECKPOINT = "collective", "data", "checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseCounters:
    """Counters of one rank, read at one moment: `everstep_train_steps_total` and the seconds of each phase."""

    steps: float
    at: float
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBudget:
    """Mean seconds a step of one rank; the five parts sum to `step_s`."""

    rank: int
    step_s: float
    compute_s: float
    collective_wait_s: float
    data_s: float
    checkpoint_s: float
    other_s: float

    @property
    def work_s(self) -> float:
        """What the rank does by itself."""
        return self.compute_s + self.data_s


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBudget:
    """`recoverable_s` a step would be saved if the slowest rank worked at its peers' speed."""

    ranks: tuple[RankBudget, ...]
    slowest: int | None
    recoverable_s: float

    @property
    def parts(self) -> dict[str, float]:
        """Mean over the ranks, for a report; empty without ranks."""
        if not self.ranks:
            return {}
        size = len(self.ranks)
        return {
            "compute": math.fsum(one.compute_s for one in self.ranks) / size,
            "collective wait": math.fsum(one.collective_wait_s for one in self.ranks) / size,
            "data": math.fsum(one.data_s for one in self.ranks) / size,
            "checkpoint": math.fsum(one.checkpoint_s for one in self.ranks) / size,
            "other": math.fsum(one.other_s for one in self.ranks) / size,
        }


def step_budget(first: Mapping[int, PhaseCounters], last: Mapping[int, PhaseCounters]) -> StepBudget:
    """The budget between two readings of the counters by rank.

    Ranks that made no step in between, were restarted (a counter fell) or are in one reading only are left out.

    >>> def read(steps, forward, wait): return PhaseCounters(
    ...     steps=steps, at=steps * 1.0, seconds={"forward": forward, "collective": wait})
    >>> zero = {rank: read(0, 0, 0) for rank in range(3)}
    >>> later = {0: read(10, 5, 4), 1: read(10, 8, 1), 2: read(10, 5, 4)}
    >>> budget = step_budget(zero, later)
    >>> budget.slowest, round(budget.recoverable_s, 3)
    (1, 0.3)
    """
    ranks = [
        budget
        for rank in sorted(first.keys() & last.keys())
        if (budget := _rank_budget(rank, first[rank], last[rank])) is not None
    ]
    slowest = max(ranks, key=lambda one: (one.work_s, -one.rank), default=None)
    return StepBudget(
        ranks=tuple(ranks),
        slowest=slowest.rank if slowest is not None and len(ranks) > 1 else None,
        recoverable_s=_recoverable(ranks, slowest),
    )


def _rank_budget(rank: int, first: PhaseCounters, last: PhaseCounters) -> RankBudget | None:
    steps, wall_s = last.steps - first.steps, last.at - first.at
    spent = {phase: last.seconds[phase] - first.seconds.get(phase, 0.0) for phase in last.seconds}
    values = (steps, wall_s, *spent.values())
    if not all(math.isfinite(value) and value >= 0 for value in values) or steps < 1 or wall_s <= 0:
        return None
    compute = math.fsum(seconds for phase, seconds in spent.items() if phase in COMPUTE_PHASES)
    parts = [compute, spent.get(COLLECTIVE, 0.0), spent.get(DATA, 0.0), spent.get(CHECKPOINT, 0.0)]
    total = max(wall_s, math.fsum(parts))  # readings of clock and counters are not taken at the very same moment
    return RankBudget(
        rank=rank,
        step_s=total / steps,
        compute_s=parts[0] / steps,
        collective_wait_s=parts[1] / steps,
        data_s=parts[2] / steps,
        checkpoint_s=parts[3] / steps,
        other_s=(total - math.fsum(parts)) / steps,
    )


def _recoverable(ranks: Sequence[RankBudget], slowest: RankBudget | None) -> float:
    """The slowest rank's excess over the median of its peers, at most what the fastest rank waits for."""
    peers = [one.work_s for one in ranks if one is not slowest]
    if slowest is None or not peers:
        return 0.0
    longest_wait = max(one.collective_wait_s for one in ranks)
    return max(0.0, min(slowest.work_s - median(peers), longest_wait))
