"""One simulated training job: synchronous steps, deterministic losses, checkpoints in memory and on disk."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace

from everstep.core.engine import Attempt, CheckpointCopy, ResumePoint, WorkerState, WorkerStatus
from everstep.core.exits import WorkerExit
from everstep.core.progress import JobProgress

DISK = "disk"
MEMORY = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimTraining:
    """How the job trains. Times in seconds, intervals in steps; `total_steps` None never ends."""

    step_s: float = 0.1
    start_s: float = 0.5
    memory_every: int = 5
    disk_every: int = 10
    keep_memory: int = 2
    keep_disk: int = 3
    total_steps: int | None = None


@dataclass(slots=True)
class SimJob:
    """The running attempt and everything that survives it. Batches in `poisoned` make the loss NaN.

    Copies of a point in `unloadable` verify and still end every attempt that begins with them.
    """

    training: SimTraining
    attempt: Attempt
    workers: dict[int, WorkerStatus] = field(default_factory=dict)
    step: int = 0
    next_batch: int = 0
    ready_at: float = 0.0
    stepped_at: float = 0.0
    losses: dict[int, float] = field(default_factory=dict)
    ends: dict[int, float] = field(default_factory=dict)
    batches: dict[int, int] = field(default_factory=dict)
    history: dict[int, float] = field(default_factory=dict)
    copies: list[CheckpointCopy] = field(default_factory=list)
    positions: dict[tuple[int, int], int] = field(default_factory=dict)
    poisoned: set[int] = field(default_factory=set)
    bad_states: set[ResumePoint] = field(default_factory=set)
    unloadable: set[ResumePoint] = field(default_factory=set)
    drift: float = 0.0
    nonfinite: int | None = None

    def begin(self, attempt: Attempt, pid: int, now: float) -> None:
        """A new attempt with its own workers; what earlier ones reported becomes history."""
        self.history.update(self.losses)
        self.attempt = attempt
        self.losses, self.batches, self.ends, self.nonfinite = {}, {}, {}, None
        self.workers = {
            one.rank: WorkerStatus(
                node=one.node,
                job=attempt.job,
                rank=one.rank,
                attempt=attempt.number,
                pid=pid + one.rank,
                state=WorkerState.RUNNING,
            )
            for one in attempt.placements
        }
        point = attempt.resume or self.newest_good()
        self.step = point.step if point is not None else 0
        self.next_batch = self.positions.get((point.attempt, point.step), 0) if point is not None else 0
        self.drift = 1.0 if point in self.bad_states else 0.0
        self.ready_at = now + self.training.start_s
        self.stepped_at = self.ready_at
        if attempt.resume is not None and (attempt.resume in self.unloadable or self._damaged(attempt.resume)):
            self.end_all(WorkerExit.CHECKPOINT, "checkpoint")

    @property
    def alive(self) -> bool:
        """Whether every rank can step."""
        return bool(self.workers) and all(one.state is WorkerState.RUNNING for one in self.workers.values())

    @property
    def finished(self) -> bool:
        return self.training.total_steps is not None and self.step >= self.training.total_steps

    def run(self, now: float) -> None:
        """All steps that end by now."""
        while self.alive and not self.finished and self.stepped_at + self.training.step_s <= now + 1e-9:
            self.stepped_at += self.training.step_s
            self._one_step()
        if self.alive and self.finished:
            self.end_all(WorkerExit.SUCCESS, "success")

    def progress(self) -> JobProgress:
        return JobProgress(
            job=self.attempt.job,
            attempt=self.attempt.number,
            step=max(self.losses, default=-1),
            at=self.stepped_at,
            losses=dict(self.losses),
            batches=dict(self.batches),
            learning_rate=1e-3,
            ends=dict(self.ends),
        )

    def end(self, rank: int, state: WorkerState, code: int, reason: str) -> None:
        self.workers[rank] = replace(self.workers[rank], state=state, exit_code=code, reason=reason)

    def end_all(self, code: int, reason: str) -> None:
        """Every rank that has not ended yet."""
        for rank, worker in self.workers.items():
            if worker.state not in {WorkerState.EXITED, WorkerState.KILLED}:
                self.end(rank, WorkerState.EXITED, int(code), reason)

    def newest_good(self) -> ResumePoint | None:
        """What a trainer picks by itself: disk only, for the simulator's ranks do not talk."""
        good = [copy for copy in self.copies if copy.tier == DISK and not copy.problem]
        best = max(good, key=lambda copy: (copy.attempt, copy.step), default=None)
        return ResumePoint(step=best.step, tier=DISK, attempt=best.attempt) if best is not None else None

    def damage(self, step: int, tier: str | None, problem: str) -> None:
        self.copies = [
            replace(copy, problem=problem) if copy.step == step and tier in {None, copy.tier} else copy
            for copy in self.copies
        ]

    def _one_step(self) -> None:
        batch = self.next_batch
        while batch in self.attempt.skip_batches:
            batch += 1
        if batch in self.poisoned:
            self.nonfinite = batch
            self.end_all(WorkerExit.NONFINITE, "nonfinite")
            return
        self.step += 1
        self.next_batch = batch + 1
        self.batches[self.step] = batch
        self.losses[self.step] = loss_of(self.step, batch) + self.drift
        self.ends[self.step] = self.stepped_at
        self._commit()

    def _commit(self) -> None:
        number = self.attempt.number
        self.positions[number, self.step] = self.next_batch
        size = self.attempt.world_size
        if self.step % self.training.memory_every == 0:
            for one in self.attempt.placements:
                buddy = self.attempt.placements[(one.rank + 1) % size]
                for holder in dict.fromkeys((one.node, buddy.node)):
                    self.copies.append(self._copy(MEMORY, holder, one.rank))
            self._prune(MEMORY, self.training.keep_memory)
        if self.step % self.training.disk_every == 0:
            self.copies.append(self._copy(DISK, "storage", None))
            self._prune(DISK, self.training.keep_disk)

    def _copy(self, tier: str, holder: str, rank: int | None) -> CheckpointCopy:
        return CheckpointCopy(step=self.step, tier=tier, attempt=self.attempt.number, holder=holder, rank=rank)

    def _prune(self, tier: str, keep: int) -> None:
        known = sorted({(copy.attempt, copy.step) for copy in self.copies if copy.tier == tier})[-keep:]
        self.copies = [copy for copy in self.copies if copy.tier != tier or (copy.attempt, copy.step) in known]

    def _damaged(self, point: ResumePoint) -> bool:
        mine = [
            copy
            for copy in self.copies
            if (copy.step, copy.tier, copy.attempt) == (point.step, point.tier, point.attempt)
        ]
        return not mine or (point.tier == DISK and any(copy.problem for copy in mine))


def loss_of(step: int, batch: int) -> float:
    """Falls with the steps and depends on the data.

    >>> loss_of(1, 0) > loss_of(400, 399)
    True
    """
    noise = int.from_bytes(hashlib.blake2b(str(batch).encode(), digest_size=4).digest(), "little") / 2**32
    return 1.5 + 4.0 * math.exp(-step / 100) + 0.01 * noise
