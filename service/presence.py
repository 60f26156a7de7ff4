"""Series that the topology and the running jobs promise, and how many of them are missing, by class of metric."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from everstep.core.engine import Attempt
from everstep.core.metrics import METRIC_BY_NAME, MetricClass
from everstep.core.topology import Topology
from everstep.service.window_store import WindowStore

PER_GPU = (
    "everstep_gpu_temperature_celsius",
    "everstep_gpu_power_watts",
    "everstep_gpu_memory_used_bytes",
    "everstep_gpu_utilization_ratio",
)
PER_RANK = ("everstep_train_steps_total", "everstep_train_step_compute_seconds")
PER_NODE = ("everstep_host_memory_available_bytes",)
MAIN_LABEL = {"sensor": "core", "engine": "sm"}
"""Of a metric that splits an entity, the value that every exporter has."""

SILENT_S = 60.0
"""A node that has pushed nothing for this long has no series, whatever was held of it last."""


def missing(
    topology: Topology, attempts: Iterable[Attempt], windows: WindowStore, *, now: float
) -> dict[MetricClass, int]:
    """Expected minus present. Classes that nothing is expected of are absent: nothing is known of them."""
    heard = {node for node, at in windows.last_push().items() if now - at <= SILENT_S}
    wanted: dict[MetricClass, int] = {}
    for name, expected in _expected(topology, attempts).items():
        present = _present(name, windows, heard, since=now - SILENT_S)
        gone = sum(max(0, count - present.get(entity, 0)) for entity, count in expected.items())
        kind = METRIC_BY_NAME[name].metric_class
        wanted[kind] = wanted.get(kind, 0) + gone
    return wanted


def _expected(topology: Topology, attempts: Iterable[Attempt]) -> dict[str, dict[str, int]]:
    """Series of each metric by node, or by `job/rank` for those of ranks; a rank may move."""
    gpus = {node.name: node.gpus for node in topology.nodes.values() if node.gpus}
    ranks = {f"{attempt.job}/{placement.rank}": 1 for attempt in attempts for placement in attempt.placements}
    nodes = dict.fromkeys(topology.nodes, 1)
    groups = ((PER_GPU, gpus), (PER_RANK, ranks), (PER_NODE, nodes))
    return {name: entities for names, entities in groups if entities for name in names}


def _present(name: str, windows: WindowStore, heard: Collection[str], *, since: float) -> Mapping[str, int]:
    """Living series by entity: of nodes that are heard, or of an exporter whose sample is fresh."""
    found: dict[str, int] = {}
    for key, (at, _) in windows.latest(name).items():
        labels = dict(key)
        if (labels.get("node") not in heard and at < since) or any(
            labels.get(one, main) != main for one, main in MAIN_LABEL.items()
        ):
            continue
        entity = f"{labels['train_job']}/{labels.get('rank')}" if "train_job" in labels else labels.get("node", "")
        found[entity] = found.get(entity, 0) + 1
    return found
