"""Checkpoints that have become old: the newest committed step lags behind by several of the job's own intervals."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from everstep.core.events import Anomaly, Direction, Entity, EntityKind

METRIC = "everstep_checkpoint_last_step"
LATE_INTERVALS = 3.0
FEWEST_COMMITS = 3


def judge_checkpoint_age(job: str, tier: str, commits: Sequence[tuple[int, float]], *, step: int) -> Anomaly | None:
    """`commits` are (step, seen at) of one tier, oldest first; `step` is where the job is now.

    >>> commits = [(10, 1.0), (20, 2.0), (30, 3.0)]
    >>> judge_checkpoint_age("demo", "disk", commits, step=45) is None
    True
    >>> judge_checkpoint_age("demo", "disk", commits, step=70).evidence
    {'tier': 'disk', 'interval_steps': 10.0, 'behind_steps': 40}
    """
    if len(commits) < FEWEST_COMMITS:
        return None
    steps = [committed for committed, _ in commits]
    interval = median(later - earlier for earlier, later in pairwise(steps))
    behind = step - steps[-1]
    if interval <= 0 or behind <= LATE_INTERVALS * interval:
        return None
    return Anomaly(
        entity=Entity(kind=EntityKind.JOB, name=job),
        metric=METRIC,
        onset_earliest=commits[-1][1],
        onset_latest=commits[-1][1],
        score=behind / (LATE_INTERVALS * interval),
        direction=Direction.STOP,
        detector="checkpoint_age",
        observed=float(steps[-1]),
        expected=float(step),
        evidence={"tier": tier, "interval_steps": interval, "behind_steps": behind},
    )
