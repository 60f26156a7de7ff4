"""The table of this node's workers: who runs for which attempt, who has ended and why. No I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from everstep.collector.exit_reason import REASONS, ExitReason
from everstep.collector.fence import Fence
from everstep.collector.process_state import ProcessState
from everstep.collector.samples import Sample
from everstep.core.clock import Clock
from everstep.core.engine import WorkerState
from everstep.core.metrics import METRIC_BY_NAME

RETIRED_SHOWN_S = 3.0
STATES = METRIC_BY_NAME["everstep_worker_state"].labels[-1].values


@dataclass(slots=True, kw_only=True, eq=False)
class Worker:
    """One rank of one attempt on this node. A cold worker's `pid` is torchrun's until its rank record tells its own."""

    job: str
    attempt: int
    rank: int
    local_rank: int
    pid: int
    started_ticks: int
    log: Path
    launcher: str
    torchrun_pid: int | None = None
    torchrun_log: Path | None = None
    reporting: bool = False
    process: ProcessState = ProcessState.RUNNING
    inspected: bool = False
    signalled: bool = False
    exit_code: int | None = None
    reason: ExitReason | None = None
    retired_at: float | None = None
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def cold(self) -> bool:
        return self.torchrun_pid is not None

    @property
    def alive(self) -> bool:
        return self.exit_code is None

    @property
    def state(self) -> WorkerState:
        """The state as the controller knows it."""
        if self.exit_code is not None:
            return WorkerState.KILLED if self.exit_code < 0 else WorkerState.EXITED
        if self.process is ProcessState.STOPPED:
            return WorkerState.STOPPED
        return WorkerState.RUNNING if self.reporting else WorkerState.STARTING

    @property
    def shown_state(self) -> str:
        """The state as the metric tells it: blocked is told apart, starting is running."""
        state = self.state
        if state in {WorkerState.RUNNING, WorkerState.STARTING}:
            return "blocked" if self.process is ProcessState.BLOCKED else "running"
        return state.value

    def describe(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "attempt": self.attempt,
            "pid": self.pid,
            "state": self.state.value,
            "exit_code": self.exit_code,
            "reason": self.reason.value if self.reason is not None else "",
        }


@dataclass(slots=True, kw_only=True, eq=False)
class StoreProcess:
    """The store of one attempt."""

    job: str
    attempt: int
    pid: int
    port: int
    launcher: str
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class WorkerTable:
    """At most one worker for each (job, rank), of the newest attempt that was started here."""

    def __init__(self, node: str, fence: Fence, clock: Clock) -> None:
        self._node = node
        self._fence = fence
        self._clock = clock
        self._workers: dict[tuple[str, int], Worker] = {}

    def add(self, worker: Worker) -> None:
        self._workers[(worker.job, worker.rank)] = worker

    def get(self, job: str, rank: int) -> Worker | None:
        return self._workers.get((job, rank))

    def of_job(self, job: str) -> list[Worker]:
        return [worker for worker in self._workers.values() if worker.job == job]

    def alive(self) -> list[Worker]:
        return [worker for worker in self._workers.values() if worker.alive]

    def end(self, worker: Worker, exit_code: int, reason: ExitReason) -> None:
        """Note the end; the first one told counts."""
        if worker.alive:
            worker.exit_code = exit_code
            worker.reason = reason
            worker.gone.set()

    def retire(self, job: str, attempt: int) -> None:
        """The controller is done with the attempt: its series end a moment after they have told the end."""
        for worker in self.of_job(job):
            if worker.attempt <= attempt and worker.retired_at is None:
                worker.retired_at = self._clock.now()

    def accepts_record(self, job: str, rank: int, attempt: int) -> bool:
        """Whether a rank record speaks for this node's living worker, or for a job that this agent did not start."""
        worker = self.get(job, rank)
        if worker is not None:
            return worker.alive and attempt == worker.attempt
        return attempt >= self._fence.highest(job)

    def collect(self) -> Iterable[Sample]:
        now = self._clock.now()
        for worker in self._workers.values():
            if worker.retired_at is None or now - worker.retired_at < RETIRED_SHOWN_S:
                yield from self._samples(worker)

    def _samples(self, worker: Worker) -> Iterator[Sample]:
        labels = (("train_job", worker.job), ("rank", str(worker.rank)))
        shown = worker.shown_state
        for state in STATES:
            yield Sample(
                metric="everstep_worker_state", labels=(*labels, ("state", state)), value=float(state == shown)
            )
        if not (worker.alive and worker.reporting):
            # No record speaks for it: a death at start-up would be taken for the former attempt's and fenced, and a
            # service that has just started would blame the newest attempt for an old death.
            yield Sample(metric="everstep_train_attempt", labels=labels, value=float(worker.attempt))
        if worker.exit_code is not None:
            yield Sample(metric="everstep_worker_exit_code", labels=labels, value=float(worker.exit_code))
            for reason in REASONS:
                yield Sample(
                    metric="everstep_worker_exit_reason",
                    labels=(*labels, ("reason", reason)),
                    value=float(reason == worker.reason),
                )
        placed = (("local_rank", str(worker.local_rank)), ("node", self._node), ("gpu", ""), ("uuid", ""))
        yield Sample(metric="everstep_train_rank_info", labels=(*labels, *placed), value=1.0)
