"""What the service says of itself at `/metrics`: an own registry, rows taken from the metric table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from everstep.core.actions import ActionKind, Outcome
from everstep.core.events import Incident, IncidentState
from everstep.core.faults import FAULT_BY_ID
from everstep.core.metrics import METRIC_BY_NAME, MetricClass
from everstep.core.metrics.detection import VERDICTS

UNDIAGNOSED = "UNKNOWN"


class SelfMetrics:
    """Pass the registry to whatever renders it; every instance has its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._delay = self._histogram("everstep_fault_detection_delay_seconds")
        self._recovery = self._histogram("everstep_recovery_duration_seconds")
        for action in (*ActionKind, "none"):
            self._recovery.labels(str(action), "escalated")  # an alert waits for the first
        self._restarts = self._counter("everstep_train_restarts_total")
        self._verdicts = self._counter("everstep_detector_verdicts_total")
        for fault, outcome in product((*FAULT_BY_ID, UNDIAGNOSED), VERDICTS):
            self._verdicts.labels(fault, outcome)
        self._run = self._histogram("everstep_detector_run_duration_seconds")
        self._last_run = self._gauge("everstep_detector_last_run_timestamp_seconds")
        self._suppressed = self._counter("everstep_detector_suppressed_total")
        self._alerts = self._counter("everstep_alerts_total")
        self._posts = self._counter("everstep_alert_posts_total")
        self._errors = self._counter("everstep_service_errors_total")

    def stage(self, stage: str, *, seconds: float, now: float) -> None:
        """A stage of the detector ran to its end: ingest, baseline, forest or rca."""
        self._run.labels(stage).observe(seconds)
        self._last_run.labels(stage).set(now)

    def suppressed(self, reason: str) -> None:
        """A verdict was held back."""
        self._suppressed.labels(reason).inc()

    def alert_received(self, outcome: str) -> None:
        """One alert of a webhook delivery."""
        self._alerts.labels(outcome).inc()

    def alert_posted(self, outcome: str) -> None:
        """One verdict on its way to Alertmanager."""
        self._posts.labels(outcome).inc()

    def error(self, where: str) -> None:
        self._errors.labels(where).inc()

    def errors(self, where: str) -> float:
        """Failures counted so far at one place."""
        value = self.registry.get_sample_value("everstep_service_errors_total", {"where": where})
        return 0.0 if value is None else value

    def diagnosed(self, incident: Incident) -> None:
        """A verdict was reached: mean time to detect."""
        if incident.diagnosed is not None:
            delay_s = max(0.0, incident.diagnosed - incident.onset)
            self._delay.labels(_fault(incident), _fault_class(incident)).observe(delay_s)

    def handled(self, incident: Incident) -> None:
        """The controller is done with the incident: mean time to recover, restarts, verdicts."""
        fault, ended = _fault(incident), incident.recovered or incident.closed
        done = [planned for planned in incident.actions if planned.outcome is Outcome.SUCCEEDED]
        if incident.recovered is not None and done:
            self._restarts.labels(incident.job, fault).inc()
        if incident.diagnosed is not None and ended is not None:
            action = (done or list(incident.actions))[0].action.kind.value if incident.actions else "none"
            seconds = max(0.0, ended - incident.diagnosed)
            self._recovery.labels(action, _outcome(incident)).observe(seconds)
        self._verdicts.labels(fault, "unknown" if fault == UNDIAGNOSED else _verdict(incident)).inc()

    def watch(self, collect: Callable[[], Iterable[Metric]]) -> None:
        """Add numbers that are read at scrape time."""
        self.registry.register(_Reader(collect))

    def _histogram(self, name: str) -> Histogram:
        row = METRIC_BY_NAME[name]
        return Histogram(name, row.help, row.label_names, buckets=row.buckets, registry=self.registry)

    def _counter(self, name: str) -> Counter:
        """With closed labels every series begins at 0: a rate over a series that is born at 1 would not show the 1."""
        row = METRIC_BY_NAME[name]
        counter = Counter(name.removesuffix("_total"), row.help, row.label_names, registry=self.registry)
        for values in product(*(label.values for label in row.labels)):
            counter.labels(*values)
        return counter

    def _gauge(self, name: str) -> Gauge:
        row = METRIC_BY_NAME[name]
        return Gauge(name, row.help, row.label_names, registry=self.registry)


class _Reader:
    """The collector protocol of prometheus_client around a function."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return self._collect()

    def describe(self) -> Iterable[Metric]:
        """Nothing is read at registration."""
        return ()


def counter_family(name: str, values: Mapping[tuple[str, ...], float]) -> CounterMetricFamily:
    """A counter of the metric table from ready sums by label values."""
    row = METRIC_BY_NAME[name]
    family = CounterMetricFamily(name.removesuffix("_total"), row.help, labels=row.label_names)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def gauge_family(name: str, values: Mapping[tuple[str, ...], float]) -> GaugeMetricFamily:
    """A gauge of the metric table from values by label values."""
    row = METRIC_BY_NAME[name]
    family = GaugeMetricFamily(name, row.help, labels=row.label_names)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _fault(incident: Incident) -> str:
    return incident.causes[0].fault if incident.causes else UNDIAGNOSED


def _fault_class(incident: Incident) -> str:
    """The class of the metric in which the fault shows first."""
    fault = FAULT_BY_ID.get(_fault(incident))
    names = [symptom.metric for symptom in fault.symptoms] if fault is not None else []
    names += [anomaly.metric for anomaly in incident.anomalies]
    classes = [METRIC_BY_NAME[name].metric_class for name in names if name in METRIC_BY_NAME]
    return next((str(kind) for kind in classes if kind is not MetricClass.EVERSTEP), MetricClass.SYSTEM.value)


def _outcome(incident: Incident) -> str:
    if incident.recovered is not None:
        return "success"
    return "escalated" if incident.state is IncidentState.ESCALATED else "failed"


def _verdict(incident: Incident) -> str:
    return "false_positive" if incident.state is IncidentState.DISMISSED else "confirmed"
