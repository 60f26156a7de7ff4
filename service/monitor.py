"""The detection loop: wakes on every push or tick, runs the detectors of each job and carries incidents to a verdict.

One thread decides. What can wait on the network (probes of the agents, the controller's recovery, refitting the
forest) runs on a few worker threads, and the loop looks at their results at its next turn.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import structlog

from everstep.core.clock import Clock
from everstep.core.engine import Attempt, ClusterSnapshot
from everstep.core.errors import EngineError
from everstep.core.events import Anomaly, Incident, IncidentState
from everstep.core.settings import ServiceSettings
from everstep.detector.forest import warm
from everstep.detector.gpus import GpuReadings
from everstep.service.case import Handler, JobCase, Ranker
from everstep.service.events import EventBus
from everstep.service.goodput import Goodput, JobMoment
from everstep.service.gpus import gpu_readings
from everstep.service.records import plain
from everstep.service.self_metrics import SelfMetrics
from everstep.service.watch import STEP, Bands, Findings, JobWatch
from everstep.service.window_store import WindowStore

RECENT_ANOMALIES = 1000
PROBE_TIMEOUT_S = 1.0
REFIT_EVERY_S = 10.0
SAVE_LEARNED_EVERY_S = 30.0
BANDS_EVERY_S = 2.0
GPUS_EVERY_S = 0.4
AWAY_S = 2.0  # a pause of the loop this long means that the machine, not the cluster, was away


class Prober(Protocol):
    """The part of a `ClusterEngine` that asks the agents how they are."""

    def snapshot(self, *, timeout_s: float) -> ClusterSnapshot: ...


class LearnedStore(Protocol):
    """The part of the store that the monitor writes."""

    def save(self, incident: Incident) -> None: ...

    def save_learned(self, job: str, at: float, state: Mapping[str, Any]) -> None: ...

    def learned(self, job: str) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the monitor works with."""

    settings: ServiceSettings
    store: LearnedStore
    windows: WindowStore
    controller: Handler
    prober: Prober
    rank_causes: Ranker
    bus: EventBus
    metrics: SelfMetrics
    goodput: Goodput
    clock: Clock
    told: Callable[[Incident], None] = lambda _: None


@dataclass(slots=True)
class _Job:
    name: str
    world_size: int
    watch: JobWatch
    case: JobCase
    probe: Future[ClusterSnapshot | None] | None = None
    handled: Future[Incident] | None = None
    refit: Future[None] | None = None
    refit_at: float = 0.0
    saved_at: float = 0.0
    banded_at: float = 0.0
    gpus_at: float = 0.0
    bands: Bands = field(default_factory=Bands)
    last_step: int = 0
    findings: Findings = field(default_factory=Findings)
    history: Mapping[str, Any] | None = None
    reported: deque[Anomaly] = field(default_factory=lambda: deque(maxlen=RECENT_ANOMALIES))


class Monitor:
    """`start` and `stop` own the thread; `tick` is one turn of the loop and can be called without it."""

    def __init__(self, parts: Parts, workers: Executor) -> None:
        self._parts = parts
        self._workers = workers
        self._log = structlog.get_logger()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="everstep-monitor", daemon=True)
        self._last_tick: float | None = None
        self.anomalies: deque[Anomaly] = deque(maxlen=RECENT_ANOMALIES)
        detector, settle_s = parts.settings.detector, parts.settings.recovery.settle_s
        self._jobs = [
            _Job(job.name, job.world_size, JobWatch(job.name, detector), JobCase(job.name, detector, settle_s=settle_s))
            for job in parts.settings.jobs
        ]
        for job in self._jobs:
            self._restore(job, parts.store.learned(job.name))

    def start(self) -> None:
        self._workers.submit(warm)
        self._thread.start()

    def stop(self, *, timeout_s: float) -> None:
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        now = self._parts.clock.now()
        for job in self._jobs:
            self._parts.store.save_learned(job.name, now, job.watch.state())

    def take_up(self, incident: Incident) -> bool:
        """Hand the controller a recovery that a former process began; False when the job is unknown or taken."""
        job = next((job for job in self._jobs if job.name == incident.job), None)
        if job is None or job.case.handling is not None:
            return False
        job.case.take_up(incident)
        job.handled = self._workers.submit(self._handle, incident)
        return True

    def note(self, job: str, anomaly: Anomaly) -> None:
        """List an anomaly that somebody else has found; from any thread."""
        self.anomalies.append(anomaly)
        self._parts.bus.publish("anomaly", job=job, anomaly=plain(anomaly))

    def report(self, job: str, anomaly: Anomaly) -> None:
        """Evidence from outside about a job that runs; from any thread. Dropped while the job is being recovered."""
        for one in self._jobs:
            if one.name == job:
                one.reported.append(anomaly)
        self.wake()

    def learn(self, job: str, state: Mapping[str, Any]) -> None:
        """What history says of a job; from any thread. Of no use where something has been learned already."""
        for one in self._jobs:
            if one.name == job:
                one.history = state
        self.wake()

    def needs_history(self, job: str) -> bool:
        """Whether nothing is known yet of what is normal for the job."""
        return any(one.name == job and not one.watch.deadline.learned for one in self._jobs)

    def began(self, job: str) -> float:
        """When the watch of the job's current attempt began; infinity before it has."""
        return next((one.watch.since for one in self._jobs if one.name == job), math.inf)

    def keep(self, incident: Incident) -> None:
        """Save an incident and tell it to all who listen; from any thread."""
        self._parts.store.save(incident)
        self._parts.bus.publish("incident", incident=plain(incident))
        self._parts.told(incident)

    def wake(self) -> None:
        """Something has arrived; from any thread."""
        self._wake.set()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def baselines(self) -> dict[str, dict[str, Any]]:
        """What is learned of each job, for the API."""
        return {
            job.name: {
                "learned": job.watch.learned,
                "steps": job.watch.slow_ranks.steps,
                "median_step_s": job.watch.deadline.median_step_s,
                "deadline_s": job.watch.deadline.seconds(),
            }
            for job in self._jobs
        }

    def running(self) -> tuple[Attempt, ...]:
        """The current attempts of all jobs that have not ended."""
        attempts = (self._parts.controller.current(job.name) for job in self._jobs if not job.findings.ended)
        return tuple(attempt for attempt in attempts if attempt is not None)

    def bands(self) -> dict[str, Bands]:
        """Learned bands and newest scores of each job that runs, a few seconds old; a standing stall scores 1."""
        return {
            job.name: job.bands
            if job.findings.stalled is None
            else replace(job.bands, scores={**job.bands.scores, STEP: min(1.0, job.findings.stalled.score)})
            for job in self._jobs
            if self._parts.controller.current(job.name) is not None and not job.findings.ended
        }

    def forest_fits(self) -> dict[str, float]:
        """When the forest of each job was last fitted, where it was."""
        return {job.name: job.refit_at for job in self._jobs if job.refit_at > 0.0}

    def job_state(self, name: str) -> str:
        """One word for the API: waiting, starting, running, stalled, broken, recovering or completed."""
        job = next((job for job in self._jobs if job.name == name), None)
        if job is None or self._parts.controller.current(name) is None:
            return "waiting"
        if job.findings.ended:
            return "completed"
        if job.case.handling is not None:
            return "recovering"
        if job.case.collecting is not None:
            return "broken"
        if job.findings.stalled is not None:
            return "stalled"
        return "running" if job.last_step > 0 else "starting"

    def tick(self) -> None:
        """One turn over all jobs."""
        started = time.perf_counter()
        now = self._parts.clock.now()
        if self._last_tick is not None and now - self._last_tick > max(
            AWAY_S, 4 * self._parts.settings.detector.tick_s
        ):
            for job in self._jobs:
                job.watch.rearm(now)
        self._last_tick = now
        for job in self._jobs:
            self._turn(job, now)
        self._parts.metrics.stage("baseline", seconds=time.perf_counter() - started, now=now)

    def _loop(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait(self._parts.settings.detector.tick_s)
            self._wake.clear()
            try:
                self.tick()
            except Exception:  # noqa: BLE001 - thread boundary: one bad turn must not end the watch
                self._parts.metrics.error("monitor")
                self._log.exception("monitor_turn_failed")

    def _restore(self, job: _Job, state: Mapping[str, Any]) -> None:
        """What is damaged is left aside: the job is learned anew."""
        try:
            job.watch.restore(state, job.world_size)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self._parts.metrics.error("store")
            self._log.error(
                "learned_unreadable", job=job.name, error=str(error), mend="none needed; it is learned anew"
            )
            job.watch = JobWatch(job.name, self._parts.settings.detector)

    def _turn(self, job: _Job, now: float) -> None:
        self._collect_handled(job, now)
        if job.history is not None:
            state, job.history = job.history, None
            if not job.watch.deadline.learned:
                self._restore(job, state)
        attempt = self._parts.controller.current(job.name)
        if attempt is None:
            moment = JobMoment(started=False)
            self._parts.goodput.account(job.name, moment, world_size=job.world_size, now=now)
            return
        if attempt.number != job.watch.attempt:
            self._begin(job, attempt, now)
        self._observe(job, attempt, now)
        self._decide(job, attempt, now)
        self._tend(job, now)

    def _begin(self, job: _Job, attempt: Attempt, now: float) -> None:
        self._parts.windows.set_world_size(job.name, attempt.world_size)
        job.watch.begin(attempt, now)
        job.last_step = 0
        if job.case.collecting is not None:  # somebody else moved the job on before there was a verdict
            self._finish(job, replace(job.case.diagnose([], now), state=IncidentState.DISMISSED, closed=now), now)
        self._parts.bus.publish("attempt", job=job.name, at=now, **plain({"attempt": attempt}))

    def _observe(self, job: _Job, attempt: Attempt, now: float) -> None:
        windows = self._parts.windows
        with windows.lock:
            view = windows.views.job(job.name).attempt(attempt.number)
            if job.probe is not None and job.probe.done():
                snapshot, job.probe = job.probe.result(), None
                if snapshot is not None:
                    job.watch.absorb(snapshot, view, now)
                    job.case.probe_told()
            job.findings = job.watch.observe(view, windows.last_push(), self._look_at_gpus(job, attempt, now), now)
            step, at = view.finished(attempt.world_size)
            stepped_at = view.frontier_at
            moment = JobMoment(
                started=True,
                ended=job.findings.ended,
                recovering=job.case.handling is not None and attempt.number == job.case.handling.attempt,
                broken=job.case.collecting is not None,
                late=job.findings.stalled is not None,
                slow=job.watch.slow,
                checkpointing=any(rank.train_state == "checkpoint" for rank in view.ranks.values()),
                step=view.frontier,
                highest_before=windows.views.job(job.name).highest_step,
            )
            loss, batch = view.losses.get(step), view.batches.get(step)
        self._parts.goodput.account(job.name, moment, world_size=attempt.world_size, now=now)
        if step > job.last_step:
            job.last_step = step
            self._parts.bus.publish(
                "step", job=job.name, attempt=attempt.number, step=step, at=at, loss=plain(loss), batch=batch
            )
        self._tell(job, attempt, job.findings.fresh)
        told = self._told_by_others(job)
        found = replace(job.findings, fresh=(*job.findings.fresh, *told)) if told else job.findings
        opened = job.case.take(attempt, found, stepped_at=stepped_at, now=now)
        if opened is not None:
            self.keep(opened)

    def _look_at_gpus(self, job: _Job, attempt: Attempt, now: float) -> GpuReadings | None:
        """Now and then: a large cluster has many counters. Under the store's lock."""
        if now - job.gpus_at < GPUS_EVERY_S:
            return None
        job.gpus_at = now
        return gpu_readings(self._parts.windows, frozenset(attempt.nodes))

    def _told_by_others(self, job: _Job) -> tuple[Anomaly, ...]:
        """What was reported since the last turn; of no use once the job ends or while the controller has it."""
        told = [job.reported.popleft() for _ in range(len(job.reported))]
        busy = job.case.handling is not None or job.findings.ending or job.findings.ended
        return () if busy else tuple(told)

    def _tell(self, job: _Job, attempt: Attempt, fresh: tuple[Anomaly, ...]) -> None:
        self.anomalies.extend(fresh)
        for anomaly in fresh:
            self._parts.bus.publish("anomaly", job=job.name, anomaly=plain(anomaly))
        handling = job.case.handling
        if fresh and handling is not None and attempt.number > handling.attempt:
            self._parts.controller.evidence(handling.id, fresh)

    def _decide(self, job: _Job, attempt: Attempt, now: float) -> None:
        due = job.case.verdict_due(now)
        if due is not None:
            started = time.perf_counter()
            causes = self._parts.rank_causes(attempt, due.anomalies, now)
            self._parts.metrics.stage("rca", seconds=time.perf_counter() - started, now=now)
            incident = job.case.diagnose(causes, self._parts.clock.now())
            self._parts.metrics.diagnosed(incident)
            self.keep(incident)
            job.handled = self._workers.submit(self._handle, incident)
        starting = job.last_step <= 0 and now - job.watch.since > 1.0 and not job.findings.ended
        if job.probe is None and job.case.probe_due(job.findings, starting=starting, now=now):
            job.probe = self._workers.submit(self._probe)

    def _tend(self, job: _Job, now: float) -> None:
        """Refit the forest and keep what was learned, now and then, away from the loop."""
        forest = job.watch.slow_ranks.forest
        if forest.due and now - job.refit_at >= REFIT_EVERY_S and (job.refit is None or job.refit.done()):
            job.refit_at = now
            job.refit = self._workers.submit(self._refit, job)
        if now - job.banded_at >= BANDS_EVERY_S:
            job.banded_at = now
            job.bands = job.watch.bands()
        if now - job.saved_at >= SAVE_LEARNED_EVERY_S:
            job.saved_at = now
            self._parts.store.save_learned(job.name, now, job.watch.state())

    def _collect_handled(self, job: _Job, now: float) -> None:
        if job.handled is not None and job.handled.done():
            incident, job.handled = job.handled.result(), None
            self._finish(job, incident, now)

    def _finish(self, job: _Job, incident: Incident, now: float) -> None:
        job.case.close(incident, now)
        self._parts.metrics.handled(incident)
        self.keep(incident)

    def _handle(self, incident: Incident) -> Incident:
        """On a worker thread: the whole recovery."""
        try:
            return self._parts.controller.handle(incident)
        except Exception as error:  # noqa: BLE001 - thread boundary: a failed recovery must reach a person
            self._parts.metrics.error("recovery")
            self._log.exception("recovery_failed", incident=incident.id)
            note = f"recovery failed: {error}"
            return replace(incident, state=IncidentState.ESCALATED, notes=(*incident.notes, note))
        finally:
            self.wake()

    def _probe(self) -> ClusterSnapshot | None:
        """On a worker thread: ask every agent."""
        try:
            return self._parts.prober.snapshot(timeout_s=PROBE_TIMEOUT_S)
        except EngineError as error:
            self._parts.metrics.error("probe")
            self._log.warning("probe_failed", error=str(error))
            return None
        finally:
            self.wake()

    def _refit(self, job: _Job) -> None:
        """On a worker thread."""
        started = time.perf_counter()
        try:
            job.watch.slow_ranks.forest.refit()
            self._parts.metrics.stage("forest", seconds=time.perf_counter() - started, now=self._parts.clock.now())
        except Exception:  # noqa: BLE001 - thread boundary: without the forest there is one vote less, no more
            self._parts.metrics.error("forest")
            self._log.exception("forest_refit_failed")
