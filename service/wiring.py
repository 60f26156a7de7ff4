"""Builds the service from its settings: store, engine, controller, monitor, launcher, app; starts and stops them."""

from __future__ import annotations

import threading
from dataclasses import replace

import httpx
import structlog
from fastapi import FastAPI

from everstep.core.clock import Clock, SystemClock
from everstep.core.engine import Attempt, ClusterEngine
from everstep.core.events import Anomaly, Incident, IncidentState, RootCause
from everstep.core.settings import ServiceSettings, read_token
from everstep.core.topology import Topology
from everstep.rca import rank_causes
from everstep.rca.evidence import CauseEvidence
from everstep.recovery.controller import Controller
from everstep.recovery.engines.agents import AgentsEngine
from everstep.service.access import Access
from everstep.service.alert_desk import AlertDesk
from everstep.service.alert_post import AlertPost, sender
from everstep.service.app import Served, build_app
from everstep.service.events import EventBus
from everstep.service.fleet import Fleet
from everstep.service.goodput import Goodput
from everstep.service.history import History, range_query
from everstep.service.ingest import Ingest
from everstep.service.launcher import Launcher
from everstep.service.monitor import Monitor, Parts
from everstep.service.readings import Readings
from everstep.service.records import plain
from everstep.service.self_metrics import SelfMetrics
from everstep.service.storage import SqliteStore
from everstep.service.window_store import WindowStore
from everstep.service.workers import DaemonWorkers

STOP_TIMEOUT_S = 2.0
HISTORY_RETRIES_S = (1.0, 5.0, 30.0, 120.0, 600.0)
UNDER_WAY = frozenset({IncidentState.DIAGNOSED, IncidentState.ACTING, IncidentState.VERIFYING})


class Service:
    """Everything but the socket. `start` begins to watch, `stop` ends within seconds; used by server and tests."""

    def __init__(
        self, settings: ServiceSettings, *, engine: ClusterEngine | None = None, clock: Clock | None = None
    ) -> None:
        """Raises `ConfigError` on unusable tokens, nodes or data directory."""
        self.settings = settings
        self._log = structlog.get_logger()
        self._stopping = threading.Event()
        self._clock = clock or SystemClock()
        token = read_token(settings.listen.token_file)
        topology = settings.topology()
        self.engine = engine or AgentsEngine(topology, read_token(settings.agent_token_file), settings.agent_ca_file)
        self.metrics = SelfMetrics()
        self.bus = EventBus()
        self.goodput = Goodput()
        self.store = SqliteStore(settings.data_dir, on_failure=lambda: self.metrics.error("store"))
        self.windows = WindowStore(
            window_s=settings.window_s, max_series=settings.max_series, current_attempt=self._current_attempt
        )
        self.controller = Controller(
            self.engine, self.store, self.windows.views, settings.recovery, self._clock, self._changed
        )
        self._post = self._alert_post()
        self._workers = workers = DaemonWorkers()
        self.monitor = Monitor(self._parts(topology), workers)
        self.launcher = Launcher(settings.jobs, topology, self.engine, self.controller, self.store, self.metrics)
        fleet = Fleet(self.engine, workers, self._clock, on_failure=lambda: self.metrics.error("fleet"))
        readings = Readings(
            settings, self.windows, self.monitor, self.goodput, fleet, self._clock, self.store.incidents
        )
        self.metrics.watch(readings.collect)
        self.app = self._app(topology, Access(token))

    def start(self) -> None:
        """Take up what a former process left open, then watch and launch."""
        if self._post is not None:
            self._post.start()
        self._take_up()
        if self.settings.prometheus_url:
            for job in self.settings.jobs:
                if self.monitor.needs_history(job.name):
                    self._workers.submit(self._fetch_history, job.name)
        self.monitor.start()
        self.launcher.start()

    def stop(self) -> None:
        """Stop deciding; workers train on. A recovery that is under way is taken up by the next start."""
        self._stopping.set()
        self.bus.close()
        self.launcher.stop(timeout_s=STOP_TIMEOUT_S)
        self.monitor.stop(timeout_s=STOP_TIMEOUT_S)
        if self._post is not None:
            self._post.stop(timeout_s=STOP_TIMEOUT_S)
        self.store.close()

    def _fetch_history(self, job: str) -> None:
        """On a worker thread: tried again from where it stood, a few times."""
        history = History(
            job, range_query(self.settings.prometheus_url), self.settings.data_dir / f"history-{job}.json"
        )
        for wait_s in HISTORY_RETRIES_S:
            try:
                self.monitor.learn(job, history.fetch(now=self._clock.now()))
            except (httpx.HTTPError, OSError, ValueError, KeyError, TypeError) as error:
                self.metrics.error("history")
                self._log.warning("history_not_read", job=job, error=str(error))
            else:
                return
            if self._stopping.wait(wait_s):
                return

    def problem(self) -> str:
        """Why the service is not ready; empty when it is."""
        return "" if self.monitor.alive else "the monitor thread is not running"

    def _current_attempt(self, job: str) -> int:
        attempt = self.controller.current(job)
        return attempt.number if attempt is not None else 0

    def _parts(self, topology: Topology) -> Parts:
        def ranked(attempt: Attempt, anomalies: tuple[Anomaly, ...], now: float) -> list[RootCause]:
            with self.windows.lock:
                stepped_at = self.windows.views.job(attempt.job).attempt(attempt.number).frontier_at
            evidence = CauseEvidence(
                job=attempt.job,
                attempt=attempt.number,
                anomalies=anomalies,
                placements=attempt.placements,
                last_step_at=stepped_at or None,
                resume_step=attempt.resume.step if attempt.resume is not None else None,
            )
            return rank_causes(evidence, topology, now=now)

        return Parts(
            settings=self.settings,
            store=self.store,
            windows=self.windows,
            controller=self.controller,
            prober=self.engine,
            rank_causes=ranked,
            bus=self.bus,
            metrics=self.metrics,
            goodput=self.goodput,
            clock=self._clock,
            told=self._told,
        )

    def _app(self, topology: Topology, access: Access) -> FastAPI:
        ingest = Ingest(
            self.windows,
            access,
            self.metrics,
            self._clock,
            max_body_bytes=self.settings.max_body_bytes,
            max_decoded_bytes=self.settings.max_decoded_bytes,
            on_push=self.monitor.wake,
        )
        return build_app(
            Served(
                topology=topology,
                windows=self.windows,
                monitor=self.monitor,
                incidents=self.store,
                controller=self.controller,
                ingest=ingest,
                alerts=AlertDesk(self.store, self.monitor, self._clock),
                access=access,
                bus=self.bus,
                goodput=self.goodput,
                metrics=self.metrics,
                problem=self.problem,
                cluster=self.settings.cluster,
            )
        )

    def _changed(self, incident: Incident) -> None:
        """The controller moved an incident on."""
        self.bus.publish("incident", incident=plain(incident))
        self._told(incident)
        self.monitor.wake()

    def _told(self, incident: Incident) -> None:
        if self._post is not None:
            self._post.put(incident)

    def _alert_post(self) -> AlertPost | None:
        """Who tells Alertmanager; nobody where none is configured."""
        settings = self.settings
        if not settings.alertmanager_url:
            return None
        scheme = "https" if settings.listen.tls_certificate is not None else "http"
        here = settings.public_url or f"{scheme}://{settings.listen.host}:{settings.listen.port}"
        send = sender(settings.alertmanager_url)
        return AlertPost(send, self._clock, public_url=here, on_outcome=self.metrics.alert_posted)

    def _take_up(self) -> None:
        """Recoveries that were cut off go on; what had no verdict is detected anew."""
        now = self._clock.now()
        for incident in self.store.incidents():
            if incident.state is IncidentState.OPEN:
                self.store.save(cut_off(incident, now))
            elif incident.state in UNDER_WAY:
                self._resume(incident, now)

    def _resume(self, incident: Incident, now: float) -> None:
        attempt = self.store.last_attempt(incident.job)
        if attempt is not None:
            self.controller.adopt(attempt)
        if attempt is not None and self.monitor.take_up(incident):
            self._log.info("recovery_taken_up", incident=incident.id)
        else:
            self.store.save(replace(cut_off(incident, now), state=IncidentState.ESCALATED))


def cut_off(incident: Incident, now: float) -> Incident:
    """An incident that a former process left without a verdict."""
    note = f"the service stopped while this was {incident.state.value}"
    return replace(incident, state=IncidentState.DISMISSED, closed=now, notes=(*incident.notes, note))
