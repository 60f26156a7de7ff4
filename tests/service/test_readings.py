"""What a scrape reads: bands once they are learned, series that are missing, GPUs by state."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry

from everstep.core.metrics import MetricClass
from everstep.core.remote_write import decompress, encode_series, series
from everstep.core.settings import NodeEntry
from everstep.service.fleet import Fleet
from everstep.service.presence import SILENT_S, missing
from everstep.service.readings import Readings
from everstep.service.self_metrics import SelfMetrics

World = Any


def registry(world: World) -> CollectorRegistry:
    fleet = Fleet(world.engine, world.monitor._workers, world.clock, on_failure=lambda: None)
    metrics = SelfMetrics()
    readings = Readings(
        world.settings, world.windows, world.monitor, world.goodput, fleet, world.clock, world.store.incidents
    )
    metrics.watch(readings.collect)
    return metrics.registry


def test_bands_appear_when_they_are_learned(world: World) -> None:
    found = registry(world)
    compute = {"metric": "everstep_train_step_compute_seconds", "train_job": "demo", "node": "node-1"}
    assert found.get_sample_value("everstep_baseline_upper", compute) is None
    world.launch()
    world.run(12)
    lower = found.get_sample_value("everstep_baseline_lower", compute)
    upper = found.get_sample_value("everstep_baseline_upper", compute)
    assert lower is not None
    assert upper is not None
    assert 0.05 < lower < 0.1 < upper < 0.25
    step = {"metric": "everstep_train_step_duration_seconds", "train_job": "demo", "node": ""}
    edge = found.get_sample_value("everstep_baseline_upper", step)
    assert edge is not None
    assert 0.2 < edge < 0.3
    score = found.get_sample_value("everstep_anomaly_score", {**compute, "node": ""})
    assert score is not None
    assert score < 1


def test_the_loss_has_a_band_of_its_own_past(world: World) -> None:
    found = registry(world)
    loss = {"metric": "everstep_train_loss", "train_job": "demo", "node": ""}
    assert found.get_sample_value("everstep_baseline_upper", loss) is None
    world.launch()
    world.run(12)
    lower = found.get_sample_value("everstep_baseline_lower", loss)
    upper = found.get_sample_value("everstep_baseline_upper", loss)
    score = found.get_sample_value("everstep_anomaly_score", loss)
    assert lower is not None
    assert upper is not None
    assert score is not None
    assert lower < 3.0 - 0.001 * world.step < upper
    assert score < 1.0


def test_causes_are_shown_while_the_incident_is_fresh(world: World) -> None:
    world.launch()
    world.run(10)
    world.agents[1].state, world.agents[1].exit_code, world.agents[1].reason = "killed", -9, "signal"
    world.push(1)
    world.monitor.tick()
    world.monitor.tick()
    found = [sample for family in registry(world).collect() for sample in family.samples]
    scores = {sample.labels["id"]: sample for sample in found if sample.name == "everstep_rca_node_score"}
    assert scores["job/demo"].value == 0.5
    assert scores["job/demo"].labels["title"].startswith("job demo: UNKNOWN")
    edges = [sample.labels for sample in found if sample.name == "everstep_rca_edge_weight"]
    assert [(edge["source"], edge["target"]) for edge in edges] == [("job/demo", "rank/demo/1")]
    world.clock.advance(3600.0)
    assert registry(world).get_sample_value("everstep_rca_node_score", scores["job/demo"].labels) is None


def test_a_stall_scores_one(world: World) -> None:
    world.launch()
    world.run(10)
    world.stepping = False
    world.run(4)
    step = {"metric": "everstep_train_step_duration_seconds", "train_job": "demo", "node": ""}
    assert registry(world).get_sample_value("everstep_anomaly_score", step) == 1.0


def test_series_of_a_silent_node_are_missing(world: World) -> None:
    world.launch()
    world.run(3)
    topology, running = world.settings.topology(), world.monitor.running()
    now = world.clock.now()
    assert missing(topology, running, world.windows, now=now)[MetricClass.TRAINING] == 0
    assert missing(topology, running, world.windows, now=now)[MetricClass.SYSTEM] == 4
    assert missing(topology, running, world.windows, now=now + 2 * SILENT_S)[MetricClass.TRAINING] == 6


def test_gpus_are_counted_where_the_topology_has_them(world: World) -> None:
    assert registry(world).get_sample_value("everstep_cluster_gpus", {"state": "idle"}) is None
    nodes = [NodeEntry(name=node.name, gpus=4) for node in world.settings.nodes]
    world.settings = world.settings.model_copy(update={"nodes": nodes})
    world.launch()
    up = [
        series(
            "everstep_gpu_up", {"node": "node-0", "gpu": str(gpu), "uuid": f"u{gpu}"}, [(world.clock.now(), gpu < 3)]
        )
        for gpu in range(4)
    ]
    world.windows.apply(decompress(encode_series(up), max_bytes=10**6), arrived=world.clock.now())
    found = registry(world)
    found.get_sample_value("everstep_cluster_gpus", {"state": "lost"})  # the first scrape asks the agents
    counts = {
        state: found.get_sample_value("everstep_cluster_gpus", {"state": state})
        for state in ("allocated", "idle", "fragmented", "isolated", "lost")
    }
    assert counts == {"allocated": 11, "idle": 4, "fragmented": 0, "isolated": 0, "lost": 1}
    gone = missing(world.settings.topology(), (), world.windows, now=world.clock.now())
    assert gone[MetricClass.HARDWARE] == 4 * 4 * 4
