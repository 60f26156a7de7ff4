"""Starts jobs that should run, once enough nodes are ready; after a restart of the service, takes over those that run.

A job whose last attempt still has a living worker is adopted, never started a second time; one whose last attempt has
ended as it should is left alone.
"""

from __future__ import annotations

import threading
from typing import Protocol

import structlog

from everstep.core.engine import Attempt, ClusterEngine, ClusterSnapshot, WorkerState, WorkerStatus
from everstep.core.errors import EngineError, EverstepError
from everstep.core.settings import JobSettings
from everstep.core.topology import Topology
from everstep.service.self_metrics import SelfMetrics

LOOK_EVERY_S = 0.5
MAX_BACKOFF_S = 30.0  # between two starts that failed
SNAPSHOT_TIMEOUT_S = 2.0
ALIVE = frozenset({WorkerState.STARTING, WorkerState.RUNNING, WorkerState.STOPPED})


class Starter(Protocol):
    """The part of the controller that starts and adopts."""

    def current(self, job: str) -> Attempt | None: ...

    def launch(self, job: JobSettings) -> Attempt: ...

    def adopt(self, attempt: Attempt) -> None: ...


class AttemptStore(Protocol):
    def last_attempt(self, job: str) -> Attempt | None: ...


class Launcher:
    """One thread that ends by itself when every job has been dealt with; `look` is one round."""

    def __init__(
        self,
        jobs: list[JobSettings],
        topology: Topology,
        engine: ClusterEngine,
        controller: Starter,
        store: AttemptStore,
        metrics: SelfMetrics,
    ) -> None:
        self._waiting = {job.name: job for job in jobs}
        self._topology = topology
        self._engine = engine
        self._controller = controller
        self._store = store
        self._metrics = metrics
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="everstep-launcher", daemon=True)
        self._log = structlog.get_logger()

    @property
    def waiting(self) -> tuple[str, ...]:
        """Jobs that have been neither started nor adopted."""
        return tuple(self._waiting)

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, timeout_s: float) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def look(self) -> None:
        """Adopt or start what can be; the others stay waiting."""
        try:
            snapshot = self._engine.snapshot(timeout_s=SNAPSHOT_TIMEOUT_S)
        except EngineError as error:
            self._log.warning("launcher_snapshot_failed", error=str(error))
            return
        for job in list(self._waiting.values()):
            if self._settled(job, snapshot):
                self._waiting.pop(job.name, None)

    def _loop(self) -> None:
        pause_s = LOOK_EVERY_S
        while self._waiting and not self._stopping.is_set():
            try:
                self.look()
                pause_s = LOOK_EVERY_S
            except EverstepError as error:
                self._metrics.error("launcher")
                self._log.error("launch_failed", error=str(error), again_in_s=pause_s)
                pause_s = min(2 * pause_s, MAX_BACKOFF_S)
            except Exception:  # noqa: BLE001 - thread boundary: the next round tries again
                self._metrics.error("launcher")
                self._log.exception("launcher_round_failed")
                pause_s = min(2 * pause_s, MAX_BACKOFF_S)
            self._stopping.wait(pause_s)

    def _settled(self, job: JobSettings, snapshot: ClusterSnapshot) -> bool:
        """Whether nothing is left to do for the job."""
        if self._controller.current(job.name) is not None:
            return True
        last = self._store.last_attempt(job.name)
        if last is not None:
            workers = _workers(last, snapshot)
            if any(worker.state in ALIVE for worker in workers):
                self._controller.adopt(last)
                self._log.info("attempt_adopted", job=job.name, attempt=last.number)
                return True
            if workers and all(worker.exit_code == 0 for worker in workers) and len(workers) >= last.world_size:
                self._log.info("job_already_completed", job=job.name, attempt=last.number)
                return True
        if not job.autostart:
            return last is None or all(_reachable(node, snapshot) for node in last.nodes)
        if _ready_slots(job, self._topology, snapshot) < job.world_size:
            return False
        attempt = self._controller.launch(job)
        self._log.info("job_launched", job=job.name, attempt=attempt.number)
        return True


def _workers(attempt: Attempt, snapshot: ClusterSnapshot) -> list[WorkerStatus]:
    return [
        worker
        for status in snapshot.nodes.values()
        for worker in status.workers
        if worker.job == attempt.job and worker.attempt == attempt.number
    ]


def _reachable(node: str, snapshot: ClusterSnapshot) -> bool:
    status = snapshot.nodes.get(node)
    return status is not None and status.reachable


def _ready_slots(job: JobSettings, topology: Topology, snapshot: ClusterSnapshot) -> int:
    """Slots of reachable, uncordoned nodes outside the reserve whose warm parent is ready (or not needed)."""
    return sum(
        status.slots
        for name, status in snapshot.nodes.items()
        if status.reachable
        and not status.cordoned
        and (status.standby_ready or job.cold)
        and name in topology.nodes
        and not topology.nodes[name].spare
    )
