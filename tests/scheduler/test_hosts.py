"""Which nodes can take ranks."""

from __future__ import annotations

from everstep.core.engine import ClusterSnapshot, NodeStatus, WorkerState, WorkerStatus
from everstep.core.topology import Node, Topology
from everstep.scheduler.hosts import usable_hosts


def worker(job: str, state: WorkerState = WorkerState.RUNNING) -> WorkerStatus:
    return WorkerStatus(node="a", job=job, rank=0, attempt=1, pid=1, state=state)


def names(*statuses: NodeStatus, exclude: tuple[str, ...] = ()) -> list[str]:
    topology = Topology.of([Node(name="a", rack="r"), Node(name="b", spare=True)])
    snapshot = ClusterSnapshot(at=0.0, nodes={status.name: status for status in statuses})
    return [host.name for host in usable_hosts(snapshot, topology, job="demo", exclude=exclude)]


def test_only_answering_uncordoned_nodes_with_room() -> None:
    good = NodeStatus(name="a", reachable=True)
    assert names(good, NodeStatus(name="b", reachable=False)) == ["a"]
    assert names(good, NodeStatus(name="b", reachable=True, cordoned=True)) == ["a"]
    assert names(good, NodeStatus(name="b", reachable=True), exclude=("a",)) == ["b"]


def test_the_job_s_own_workers_hold_no_slot_and_those_of_others_do() -> None:
    assert names(NodeStatus(name="a", reachable=True, workers=(worker("demo"),))) == ["a"]
    assert names(NodeStatus(name="a", reachable=True, workers=(worker("other"),))) == []
    assert names(NodeStatus(name="a", reachable=True, workers=(worker("other", WorkerState.EXITED),))) == ["a"]


def test_rack_and_reserve_come_from_the_topology() -> None:
    topology = Topology.of([Node(name="b", rack="r7", leaf="l7", spare=True)])
    snapshot = ClusterSnapshot(at=0.0, nodes={"b": NodeStatus(name="b", reachable=True, slots=2)})
    host = usable_hosts(snapshot, topology, job="demo")[0]
    assert (host.rack, host.leaf, host.spare, host.free) == ("r7", "l7", True, 2)
