"""Deadlines for the next step, learned from the job's own step times and armed from second zero."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from everstep.core.events import Anomaly, Direction, Entity, EntityKind
from everstep.detector.baseline import MAD_TO_SIGMA, TINY

METRIC = "everstep_train_steps_total"
STEADY = "steady"
FEWEST_OF_STATE = 3
BAND_SIGMAS, BAND_FLOOR = 4.0, 0.04  # as in `RobustBaseline`


class StepDeadline:
    """Seconds without a step that are too many, per state of the training loop.

    Before `warmup` durations are known the deadline is that of the start-up. A duration beyond the deadline does not
    teach.

    >>> deadline = StepDeadline(factor=3, floor_s=1.5, startup_s=120, warmup=2)
    >>> deadline.seconds()
    120
    >>> for duration_s in (1.0, 1.2, 1.1): deadline.learn(duration_s)
    >>> round(deadline.seconds(), 1)
    3.3
    """

    def __init__(self, *, factor: float, floor_s: float, startup_s: float, warmup: int, memory: int = 256) -> None:
        self._factor = factor
        self._floor_s = floor_s
        self._startup_s = startup_s
        self._warmup = warmup
        self._memory = memory
        self._durations: dict[str, deque[float]] = {}
        self._medians: dict[str, float] = {}

    @property
    def steps(self) -> int:
        """Durations of the steady state learned so far, at most the memory."""
        return len(self._durations.get(STEADY, ()))

    @property
    def learned(self) -> bool:
        return self.steps >= self._warmup

    @property
    def median_step_s(self) -> float:
        """0.0 before anything is learned."""
        return self._median(STEADY)

    def learn(self, duration_s: float, state: str = STEADY) -> None:
        if self.learned and duration_s > self.seconds(state):
            return
        self._durations.setdefault(state, deque(maxlen=self._memory)).append(duration_s)
        self._medians.pop(state, None)

    def seconds(self, state: str = STEADY) -> float:
        """The deadline in this state; a state that was seen too seldom gets the longer of steady and start-up rules."""
        if not self.learned:
            return self._startup_s
        steady = max(self._factor * self._median(STEADY), self._floor_s)
        if state == STEADY or len(self._durations.get(state, ())) < FEWEST_OF_STATE:
            return steady
        return max(steady, self._factor * self._median(state))

    def band(self) -> tuple[float, float] | None:
        """Usual seconds of a steady step: median and MAD in log space; None before the warm-up is over."""
        if not self.learned:
            return None
        logs = [math.log(max(duration_s, TINY)) for duration_s in self._durations[STEADY]]
        center = median(logs)
        scatter = MAD_TO_SIGMA * median(abs(one - center) for one in logs)
        limit = BAND_SIGMAS * max(scatter, BAND_FLOOR)
        return math.exp(center - limit), math.exp(center + limit)

    @property
    def startup_s(self) -> float:
        return self._startup_s

    def durations(self) -> list[float]:
        """What was learned of the steady state, for keeping over a restart."""
        return list(self._durations.get(STEADY, ()))

    def _median(self, state: str) -> float:
        if state not in self._medians:
            held = self._durations.get(state)
            self._medians[state] = median(held) if held else 0.0
        return self._medians[state]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What is known of an attempt's steps; `last_steps` maps ranks to their newest step (0: none yet).

    `last_at` is when any rank finished a step, or the start of the attempt before that.
    """

    job: str
    last_at: float
    last_steps: Mapping[int, int]
    state: str = STEADY

    @property
    def stepped(self) -> bool:
        return any(step > 0 for step in self.last_steps.values())


def judge_progress(progress: Progress, deadline: StepDeadline, *, stepped: bool, now: float) -> Anomaly | None:
    """A stalled job, or None. `stepped` says whether this attempt has finished a step; before, the start-up counts."""
    limit_s = deadline.seconds(progress.state) if stepped else deadline.startup_s
    silent_s = now - progress.last_at
    if silent_s <= limit_s:
        return None
    return Anomaly(
        entity=Entity(kind=EntityKind.JOB, name=progress.job),
        metric=METRIC,
        onset_earliest=progress.last_at,
        onset_latest=progress.last_at + limit_s,
        score=silent_s / limit_s,
        direction=Direction.STOP,
        detector="progress",
        observed=silent_s,
        expected=limit_s,
        evidence={
            "deadline_s": limit_s,
            "median_step_s": deadline.median_step_s,
            "last_steps": {str(rank): step for rank, step in sorted(progress.last_steps.items())},
            "phase": progress.state if stepped else "startup",
        },
    )
