"""What is known of each job, built sample by sample: ranks aligned by step number, losses, process states.

One view a job, one inner view an attempt; nothing of an older attempt flows into a newer one. `JobViews` is the
`ProgressSource` of the recovery controller. All methods are called under the lock of the window store or take it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from everstep.core.progress import JobProgress
from everstep.detector.process import Worker

KEPT_STEPS = 512
KEPT_ATTEMPTS = 4
KEPT_HISTORY = 20_000
MAX_RANKS = 131_072
ALIVE = frozenset({"running", "blocked", "stopped"})


@dataclass(slots=True)
class RankView:
    """One rank of one attempt as last reported; times in seconds since the epoch by the agent's clock."""

    rank: int
    node: str = ""
    last_step: int = 0
    last_step_at: float = 0.0
    ends: dict[int, float] = field(default_factory=dict)
    steps_at: dict[float, int] = field(default_factory=dict)
    process: str = ""
    process_since: float = 0.0
    alive_at: float = 0.0
    exit_code: int | None = None
    reason: str = ""
    nonfinite_steps: int = 0
    nonfinite_batch: int = -1
    nonfinite_input: bool = False
    nonfinite_at: float = 0.0
    train_state: str = "steady"
    commits: dict[str, list[tuple[int, float]]] = field(default_factory=dict)


@dataclass(slots=True)
class AttemptView:
    """One attempt; `compute` maps steps to the rank-local seconds of each rank, `ends` to when the last rank known
    finished; `fresh` holds step durations that nobody has learned from yet."""

    job: str
    number: int
    ranks: dict[int, RankView] = field(default_factory=dict)
    compute: dict[int, dict[int, float]] = field(default_factory=dict)
    ends: dict[int, float] = field(default_factory=dict)
    losses: dict[int, float] = field(default_factory=dict)
    batches: dict[int, int] = field(default_factory=dict)
    learning_rate: float = 0.0
    frontier: int = 0
    frontier_at: float = 0.0
    fresh: list[tuple[str, float]] = field(default_factory=list)

    def rank(self, number: int) -> RankView:
        found = self.ranks.get(number)
        if found is None:
            found = self.ranks[number] = RankView(rank=number)
        return found

    def add_step(self, number: int, step: int, at: float) -> None:
        """The first report of a step counts; a repeated or older one changes nothing."""
        rank = self.rank(number)
        rank.steps_at[at] = step
        if step <= 0 or step in rank.ends:
            return
        rank.ends[step] = at
        self.ends[step] = max(at, self.ends.get(step, at))
        if step > rank.last_step:
            rank.last_step, rank.last_step_at = step, at
        if step > self.frontier:
            if step == self.frontier + 1 and self.frontier > 0 and at > self.frontier_at:
                self.fresh.append((rank.train_state, at - self.frontier_at))
            self.frontier, self.frontier_at = step, at
        _forget(rank.ends, step - KEPT_STEPS)
        _forget(self.ends, step - KEPT_STEPS)
        if len(rank.steps_at) > KEPT_STEPS:
            for old in list(rank.steps_at)[: -KEPT_STEPS // 2]:
                del rank.steps_at[old]

    def finished(self, world_size: int) -> tuple[int, float]:
        """The newest step that every rank has finished and when its last rank did; (-1, 0.0) when there is none."""
        if len(self.ranks) < world_size:
            return -1, 0.0
        step = min(rank.last_step for rank in self.ranks.values())
        if step <= 0:
            return -1, 0.0
        return step, max(rank.ends.get(step, 0.0) for rank in self.ranks.values())

    def workers(self) -> list[Worker]:
        return [
            Worker(
                job=self.job,
                rank=rank.rank,
                node=rank.node,
                state=rank.process,
                since=rank.process_since,
                alive_at=rank.alive_at,
                exit_code=rank.exit_code,
                reason=rank.reason,
            )
            for rank in self.ranks.values()
            if rank.process
        ]

    def on_steps(self, number: int, label: str, at: float, value: float) -> None:
        del label
        self.add_step(number, int(value), at)

    def on_compute(self, number: int, label: str, at: float, value: float) -> None:
        del label
        step = self.rank(number).steps_at.get(at)
        if step is not None:
            self.compute.setdefault(step, {})[number] = value
            _forget(self.compute, step - KEPT_STEPS)

    def on_loss(self, number: int, label: str, at: float, value: float) -> None:
        del label
        step = self.rank(number).steps_at.get(at)
        if step is not None:
            self.losses.setdefault(step, value)
            _forget(self.losses, step - KEPT_STEPS)

    def on_batch(self, number: int, label: str, at: float, value: float) -> None:
        del label
        step = self.rank(number).steps_at.get(at)
        if step is not None:
            self.batches.setdefault(step, int(value))
            _forget(self.batches, step - KEPT_STEPS)

    def on_learning_rate(self, number: int, label: str, at: float, value: float) -> None:
        del number, label, at
        self.learning_rate = value

    def on_worker_state(self, number: int, label: str, at: float, value: float) -> None:
        rank = self.rank(number)
        if value != 1.0:
            return
        if label in ALIVE:
            rank.alive_at = max(rank.alive_at, at)
        if rank.process != label:
            rank.process, rank.process_since = label, at

    def on_exit_code(self, number: int, label: str, at: float, value: float) -> None:
        del label, at
        self.rank(number).exit_code = int(value)

    def on_exit_reason(self, number: int, label: str, at: float, value: float) -> None:
        del at
        if value == 1.0:
            self.rank(number).reason = label

    def on_nonfinite_steps(self, number: int, label: str, at: float, value: float) -> None:
        del label
        rank = self.rank(number)
        if int(value) > rank.nonfinite_steps:
            rank.nonfinite_steps, rank.nonfinite_at = int(value), at

    def on_nonfinite_batch(self, number: int, label: str, at: float, value: float) -> None:
        del label, at
        self.rank(number).nonfinite_batch = int(value)

    def on_nonfinite_input(self, number: int, label: str, at: float, value: float) -> None:
        del label, at
        self.rank(number).nonfinite_input = value >= 1.0

    def on_train_state(self, number: int, label: str, at: float, value: float) -> None:
        del at
        if value == 1.0:
            self.rank(number).train_state = label

    def on_commit(self, number: int, label: str, at: float, value: float) -> None:
        commits = self.rank(number).commits.setdefault(label, [])
        if value >= 0 and (not commits or int(value) > commits[-1][0]):
            commits.append((int(value), at))
            del commits[:-16]


Handler = Callable[[AttemptView, int, str, float, float], None]

STEP_HANDLERS: dict[str, Handler] = {"everstep_train_steps_total": AttemptView.on_steps}
"""Applied before the others: they say which step a time stamp belongs to."""

VALUE_HANDLERS: dict[str, Handler] = {
    "everstep_train_step_compute_seconds": AttemptView.on_compute,
    "everstep_train_loss": AttemptView.on_loss,
    "everstep_train_batch_index": AttemptView.on_batch,
    "everstep_train_learning_rate": AttemptView.on_learning_rate,
    "everstep_worker_state": AttemptView.on_worker_state,
    "everstep_worker_exit_code": AttemptView.on_exit_code,
    "everstep_worker_exit_reason": AttemptView.on_exit_reason,
    "everstep_train_nonfinite_batch": AttemptView.on_nonfinite_batch,
    "everstep_train_nonfinite_input": AttemptView.on_nonfinite_input,
    "everstep_train_nonfinite_steps_total": AttemptView.on_nonfinite_steps,
    "everstep_train_state": AttemptView.on_train_state,
    "everstep_checkpoint_last_step": AttemptView.on_commit,
}


class JobView:
    """The attempts of one job, newest last, and the losses of those that are gone."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.attempts: dict[int, AttemptView] = {}
        self.losses: dict[int, float] = {}
        self.highest_step = 0

    def attempt(self, number: int) -> AttemptView:
        """The view of this attempt, made on first sight; older ones hand their losses to the job."""
        found = self.attempts.get(number)
        if found is None:
            found = self.attempts[number] = AttemptView(job=self.name, number=number)
            for old in sorted(self.attempts):
                if old < max(self.attempts):
                    self._absorb(self.attempts[old])
            for old in sorted(self.attempts)[:-KEPT_ATTEMPTS]:
                del self.attempts[old]
        return found

    @property
    def newest(self) -> AttemptView | None:
        return self.attempts[max(self.attempts)] if self.attempts else None

    def _absorb(self, view: AttemptView) -> None:
        self.losses.update(view.losses)
        self.highest_step = max(self.highest_step, view.frontier)
        _forget(self.losses, max(self.losses, default=0) - KEPT_HISTORY)


class JobViews:
    """All jobs; implements `core.progress.ProgressSource`."""

    def __init__(self, lock: threading.RLock, world_size: Callable[[str], int], current: Callable[[str], int]) -> None:
        """`world_size` gives the ranks of a job's current attempt, `current` its number; 0 when unknown."""
        self._lock = lock
        self._current = current
        self._world_size = world_size
        self._jobs: dict[str, JobView] = {}

    def job(self, name: str) -> JobView:
        return self._jobs.setdefault(name, JobView(name))

    def known(self, name: str) -> JobView | None:
        return self._jobs.get(name)

    def progress(self, job: str) -> JobProgress | None:
        """Of the controller's current attempt, or of the newest that anything is known of when there is none."""
        with self._lock:
            view = self._jobs.get(job)
            found = None if view is None else view.attempts.get(self._current(job), view.newest)
            if found is None:
                return None
            step, at = found.finished(self._world_size(job) or len(found.ranks))
            return JobProgress(
                job=job,
                attempt=found.number,
                step=step,
                at=at,
                losses=dict(found.losses),
                batches=dict(found.batches),
                learning_rate=found.learning_rate,
                ends={done: end for done, end in found.ends.items() if done <= step},
            )

    def history(self, job: str) -> Mapping[int, float]:
        """Loss of each recent step as last reported by any earlier attempt."""
        with self._lock:
            view = self._jobs.get(job)
            return dict(view.losses) if view is not None else {}


def _forget(steps: dict[int, Any], below: int) -> None:
    """Drop entries below a step; entries stand in about the order of their steps."""
    while len(steps) > KEPT_STEPS and (oldest := next(iter(steps))) < below:
        del steps[oldest]
