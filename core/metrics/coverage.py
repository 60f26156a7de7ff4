"""Which of the 27 a cluster really has: series that a Prometheus holds in, a judgement of each metric with a mend out.

Pure. Who asks the Prometheus is the command line; what counts as a source is the metric table and the table of other
exporters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from everstep.core.metrics import CORE_METRICS, Metric, MetricKind, Source
from everstep.core.metrics.foreign import FOREIGN, HINTS, Foreign

EXPORTERS = (
    ("DCGM_", "dcgm-exporter"),
    ("node_", "node_exporter"),
    ("accelerator_nvidia_", "gpud"),
    ("slurm_", "a Slurm exporter"),
    ("nccl_", "NCCL's inspector"),
)
"""Prefix of a series and who exports it."""

_AGENT = "run `everstep agent` on every node and scrape it"
HOW: dict[Source, str] = {
    Source.NVML: "run `everstep agent` on every GPU node (NVML comes with the NVIDIA driver) and scrape it",
    Source.SYSFS: _AGENT,
    Source.PROCFS: _AGENT,
    Source.CALLBACK: "call EverstepCallback in the training loop and run `everstep agent` on the job's nodes",
}
"""How to get a metric from us, by where it comes from."""

HOW_ONE: dict[str, str] = {
    "everstep_net_latency_seconds": "set agent.probes.echo and list other agents in agent.probes.peers",
    "everstep_storage_latency_seconds": "name a job's checkpoint_dir or list folders in agent.probes.storage",
    "everstep_queue_wait_seconds": "set agent.probes.slurm on one agent of the cluster",
    "everstep_cluster_gpus": "state `gpus` of each node in service.nodes, run `everstep serve` and scrape it",
}
"""The same for metrics that need more than a running process."""

_FLAGS = {
    "node_infiniband_": "run node_exporter with --collector.infiniband",
    "node_pressure_": "run node_exporter with --collector.pressure on a kernel with PSI (boot with psi=1)",
}


class Presence(StrEnum):
    NATIVE = "native"
    MAPPED = "mapped"
    PARTIAL = "partial"
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """Series of one name in one scrape job; `job` is empty for recorded or pushed series, ages are in seconds."""

    name: str
    job: str
    num_series: int
    newest_age_s: float

    @property
    def exporter(self) -> str:
        return exporter_of(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """What there is of one metric. `note` says what a partial source lacks, `mends` how to get the metric."""

    metric: Metric
    presence: Presence
    sightings: tuple[Sighting, ...] = ()
    note: str = ""
    mends: tuple[str, ...] = ()

    @property
    def there(self) -> bool:
        return self.presence in {Presence.NATIVE, Presence.MAPPED}


def exporter_of(name: str) -> str:
    """Who exports a series of this name.

    >>> exporter_of("DCGM_FI_DEV_GPU_TEMP"), exporter_of("everstep_train_loss")
    ('dcgm-exporter', 'everstep')
    """
    return next((exporter for prefix, exporter in EXPORTERS if name.startswith(prefix)), "everstep")


def series_of(metric: Metric) -> str:
    """The series whose presence proves the metric."""
    return f"{metric.name}_count" if metric.kind is MetricKind.HISTOGRAM else metric.name


def asked_for() -> tuple[str, ...]:
    """Names of all series that `coverage` looks at."""
    ours = {metric.name for metric in CORE_METRICS}
    names = [series_of(metric) for metric in CORE_METRICS]
    names += [name for row in FOREIGN if row.ours in ours for name in _needed(row)]
    names += [hint.theirs for hint in HINTS if hint.ours in ours]
    return tuple(dict.fromkeys(names))


def coverage(sightings: Iterable[Sighting]) -> tuple[Covered, ...]:
    """One judgement for each of the 27, in their order."""
    by_name: dict[str, list[Sighting]] = {}
    for sighting in sightings:
        by_name.setdefault(sighting.name, []).append(sighting)
    return tuple(_covered(metric, by_name) for metric in CORE_METRICS)


def _covered(metric: Metric, seen: dict[str, list[Sighting]]) -> Covered:
    native = seen.get(series_of(metric), [])
    if native:
        return Covered(metric=metric, presence=Presence.NATIVE, sightings=tuple(native))
    rows = [row for row in FOREIGN if row.ours == metric.name]
    whole = _through((row for row in rows if not row.partial), seen)
    if whole:
        return Covered(metric=metric, presence=Presence.MAPPED, sightings=whole)
    mends = _mends(metric, rows, seen)
    lossy = [(row.theirs, row.partial) for row in rows if row.partial]
    lossy += [(hint.theirs, hint.why) for hint in HINTS if hint.ours == metric.name]
    found = [(name, why) for name, why in lossy if name in seen]
    if not found:
        return Covered(metric=metric, presence=Presence.MISSING, mends=mends)
    return Covered(
        metric=metric,
        presence=Presence.PARTIAL,
        sightings=tuple(sighting for name, _ in found for sighting in seen[name]),
        note="; ".join(dict.fromkeys(why for _, why in found)),
        mends=mends,
    )


def _through(rows: Iterable[Foreign], seen: dict[str, list[Sighting]]) -> tuple[Sighting, ...]:
    """Series of the rows that are whole: a sum or quotient needs both of its parts."""
    names = [name for row in rows if all(name in seen for name in _needed(row)) for name in _needed(row)]
    return tuple(sighting for name in dict.fromkeys(names) for sighting in seen[name])


def _needed(row: Foreign) -> tuple[str, ...]:
    return tuple(name for name in (row.theirs, row.plus, row.divided_by) if name)


def _mends(metric: Metric, rows: Iterable[Foreign], seen: Collection[str]) -> tuple[str, ...]:
    """Ours first, then each exporter that could give it; one that runs already is told what it leaves out."""
    running = {exporter_of(name) for name in seen}
    theirs = (_their_mend(row, running) for row in rows if not row.partial)
    return tuple(dict.fromkeys((HOW_ONE.get(metric.name) or HOW[metric.source], *theirs)))


def _their_mend(row: Foreign, running: Collection[str]) -> str:
    exporter = exporter_of(row.theirs)
    if row.off:
        start = "" if exporter in running else f"install {exporter} and "
        return f"{start}enable {row.theirs} in the counters file of {exporter}: it is commented out by default"
    flag = next((text for prefix, text in _FLAGS.items() if row.theirs.startswith(prefix)), "")
    if flag:
        return flag
    return f"{exporter} runs, but without {row.theirs}" if exporter in running else f"install {exporter}"
