"""The numbers of `/metrics` that are read at a scrape: samples refused, goodput, bands, presence, GPUs, causes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from prometheus_client.metrics_core import Metric

from everstep.core.clock import Clock
from everstep.core.engine import Attempt
from everstep.core.events import Incident
from everstep.core.settings import ServiceSettings
from everstep.core.topology import Topology
from everstep.detector.bands import Band, robust_band
from everstep.service.cause_graph import cause_graph, newest_with_causes
from everstep.service.fleet import Fleet, gpus_by_state
from everstep.service.goodput import Goodput
from everstep.service.monitor import Monitor
from everstep.service.presence import missing
from everstep.service.self_metrics import counter_family, gauge_family
from everstep.service.window_store import WindowStore

BANDED = {"everstep_train_loss": False, "everstep_train_gradient_norm": True}
"""Metrics of a whole job that are judged against their own recent past; True: by factor."""


class Readings:
    """`collect` runs on the thread of the scrape; it waits for the store's lock and for nothing else."""

    def __init__(
        self,
        settings: ServiceSettings,
        windows: WindowStore,
        monitor: Monitor,
        goodput: Goodput,
        fleet: Fleet,
        clock: Clock,
        incidents: Callable[[], Iterable[Incident]] = tuple,
    ) -> None:
        self._settings = settings
        self._topology: Topology = settings.topology()
        self._windows = windows
        self._monitor = monitor
        self._goodput = goodput
        self._fleet = fleet
        self._clock = clock
        self._incidents = incidents

    def collect(self) -> Iterator[Metric]:
        yield counter_family(
            "everstep_detector_samples_rejected_total",
            {key: float(count) for key, count in self._windows.rejected().items()},
        )
        yield counter_family(
            "everstep_gpu_seconds_total",
            {(job, kind): spent for job, kinds in self._goodput.seconds().items() for kind, spent in kinds.items()},
        )
        now = self._clock.now()
        fits = self._monitor.forest_fits()
        if fits:
            yield gauge_family("everstep_detector_model_age_seconds", {("forest",): now - min(fits.values())})
        yield from self._agents(now)
        yield from self._bands()
        attempts = self._monitor.running()
        gone = missing(self._topology, attempts, self._windows, now=now)
        yield gauge_family("everstep_detector_series_missing", {(str(kind),): float(n) for kind, n in gone.items()})
        yield from self._gpus(attempts)
        yield from self._causes(now)

    def _agents(self, now: float) -> Iterator[Metric]:
        heard, deadline_s = self._windows.last_push(), self._settings.detector.node_deadline_s
        yield gauge_family(
            "everstep_agent_up",
            {(node.name,): float(now - heard.get(node.name, 0.0) <= deadline_s) for node in self._settings.nodes},
        )

    def _bands(self) -> Iterator[Metric]:
        lower: dict[tuple[str, ...], float] = {}
        upper: dict[tuple[str, ...], float] = {}
        scores: dict[tuple[str, ...], float] = {}
        for job, bands in self._monitor.bands().items():
            for (metric, node), (low, high) in bands.edges.items():
                lower[metric, job, node], upper[metric, job, node] = low, high
            scores |= {(metric, job, ""): score for metric, score in bands.scores.items()}
            for metric, band in self._own_past(job):
                key = metric, job, ""
                lower[key], upper[key], scores[key] = band.lower, band.upper, band.score
        yield gauge_family("everstep_baseline_lower", lower)
        yield gauge_family("everstep_baseline_upper", upper)
        yield gauge_family("everstep_anomaly_score", scores)

    def _own_past(self, job: str) -> Iterator[tuple[str, Band]]:
        """Bands of the series that was heard last: rank 0 may have moved."""
        for metric, log in BANDED.items():
            found = self._windows.samples(metric, train_job=job)
            _, values = max(found, key=lambda one: one[0][-1] if len(one[0]) else -math.inf, default=((), None))
            band = robust_band(values, log=log) if values is not None else None
            if band is not None:
                yield metric, band

    def _causes(self, now: float) -> Iterator[Metric]:
        graph = cause_graph(newest_with_causes(self._incidents(), now=now))
        yield gauge_family("everstep_rca_node_score", graph.scores)
        yield gauge_family("everstep_rca_edge_weight", graph.weights)

    def _gpus(self, attempts: Iterable[Attempt]) -> Iterator[Metric]:
        if not any(node.gpus for node in self._topology.nodes.values()):
            return
        snapshot = self._fleet.newest()
        if snapshot is None:
            return
        up: dict[str, int] = {}
        for key, (_, value) in self._windows.latest("everstep_gpu_up").items():
            node = dict(key).get("node", "")
            up[node] = up.get(node, 0) + int(value == 1.0)
        placements = [placement for attempt in attempts for placement in attempt.placements]
        counts = gpus_by_state(self._topology, snapshot, placements, up)
        yield gauge_family("everstep_cluster_gpus", {(state,): float(count) for state, count in counts.items()})
