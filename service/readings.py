"""The numbers of `/metrics` that are read when somebody scrapes: samples refused, goodput, bands, presence, GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import Metric

from everstep.core.clock import Clock
from everstep.core.engine import Attempt
from everstep.core.settings import ServiceSettings
from everstep.core.topology import Topology
from everstep.service.fleet import Fleet, gpus_by_state
from everstep.service.goodput import Goodput
from everstep.service.monitor import Monitor
from everstep.service.presence import missing
from everstep.service.self_metrics import counter_family, gauge_family
from everstep.service.window_store import WindowStore


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
    ) -> None:
        self._settings = settings
        self._topology: Topology = settings.topology()
        self._windows = windows
        self._monitor = monitor
        self._goodput = goodput
        self._fleet = fleet
        self._clock = clock

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

    def _agents(self, now: float) -> Iterator[Metric]:
        heard, deadline_s = self._windows.last_push(), self._settings.detector.node_deadline_s
        yield gauge_family(
            "everstep_agent_up",
            {(node.name,): float(now - heard.get(node.name, 0.0) <= deadline_s) for node in self._settings.nodes},
        )

    def _bands(self) -> Iterator[Metric]:
        jobs = self._monitor.bands()
        edges = [
            ((metric, job, node), lower, upper)
            for job, bands in jobs.items()
            for (metric, node), (lower, upper) in bands.edges.items()
        ]
        yield gauge_family("everstep_baseline_lower", {key: lower for key, lower, _ in edges})
        yield gauge_family("everstep_baseline_upper", {key: upper for key, _, upper in edges})
        yield gauge_family(
            "everstep_anomaly_score",
            {(metric, job, ""): score for job, bands in jobs.items() for metric, score in bands.scores.items()},
        )

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
