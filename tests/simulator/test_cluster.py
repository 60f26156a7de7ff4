"""Faults of the simulated cluster, as an engine sees them."""

from __future__ import annotations

import pytest

from everstep.core.engine import Attempt, RankPlacement, WorkerState
from everstep.core.errors import EngineError
from everstep.core.topology import Node, Topology
from everstep.simulator import SimCluster


@pytest.fixture
def cluster() -> SimCluster:
    cluster = SimCluster(Topology.of([Node(name=f"node-{index}", spare=index == 3) for index in range(4)]))
    placements = tuple(RankPlacement(rank=rank, node=f"node-{rank}", local_rank=0) for rank in range(3))
    cluster.start(Attempt(job="demo", number=1, placements=placements), key="one", timeout_s=1)
    cluster.advance(2.5)
    return cluster


def states(cluster: SimCluster) -> dict[int, tuple[WorkerState, str]]:
    snapshot = cluster.snapshot(timeout_s=1)
    return {worker.rank: (worker.state, worker.reason) for node in snapshot.nodes.values() for worker in node.workers}


def test_time_moves_only_when_told(cluster: SimCluster) -> None:
    assert cluster.progress("demo").step == 20  # type: ignore[union-attr]
    assert cluster.progress("demo").step == 20  # type: ignore[union-attr]
    assert cluster.progress("other") is None
    assert cluster.history("other") == {}


def test_a_killed_rank_takes_its_peers_along(cluster: SimCluster) -> None:
    cluster.kill_rank("demo", 1)
    assert states(cluster) == {
        0: (WorkerState.EXITED, "peer_lost"),
        1: (WorkerState.KILLED, "signal"),
        2: (WorkerState.EXITED, "peer_lost"),
    }


def test_a_stopped_rank_stops_the_steps_and_ends_nobody(cluster: SimCluster) -> None:
    cluster.stop_rank("demo", 1)
    cluster.advance(5.0)
    assert cluster.progress("demo").step == 20  # type: ignore[union-attr]
    assert states(cluster)[0] == (WorkerState.RUNNING, "")


def test_a_dead_node_is_refused_and_its_memory_is_gone(cluster: SimCluster) -> None:
    cluster.kill_node("node-1")
    status = cluster.snapshot(timeout_s=1).nodes["node-1"]
    assert (status.reachable, status.detail, status.workers) == (False, "refused", ())
    held = cluster.checkpoints(cluster.job("demo").attempt, timeout_s=1)
    assert "node-1" not in {copy.holder for copy in held}
    assert {copy.rank for copy in held if copy.step == 20 and copy.tier == "memory"} == {0, 1, 2}


def test_a_deaf_node_works_on(cluster: SimCluster) -> None:
    cluster.deafen("node-1")
    cluster.advance(1.0)
    assert cluster.snapshot(timeout_s=1).nodes["node-1"].detail == "timeout"
    assert cluster.progress("demo").step == 30  # type: ignore[union-attr]
    cluster.revive("node-1")
    assert cluster.snapshot(timeout_s=1).nodes["node-1"].reachable


def test_a_gang_starts_whole_or_not_at_all(cluster: SimCluster) -> None:
    attempt = cluster.job("demo").attempt
    cluster.refuse_starts("node-2", "no standby")
    placements = attempt.placements
    outcomes = cluster.start(Attempt(job="demo", number=2, placements=placements), key="two", timeout_s=1)
    assert outcomes.failed == {"node-2": "no standby"}
    assert cluster.job("demo").attempt.number == 1
    with pytest.raises(EngineError, match="has no ranks; place it first"):
        cluster.start(Attempt(job="demo", number=3, placements=()), key="three", timeout_s=1)
