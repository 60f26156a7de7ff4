"""Hosts for placement from what an engine sees and what the topology says."""

from __future__ import annotations

from collections.abc import Collection

from everstep.core.engine import ClusterSnapshot, NodeStatus, WorkerState
from everstep.core.topology import Topology
from everstep.scheduler.placement import Host

_ALIVE = frozenset({WorkerState.STARTING, WorkerState.RUNNING, WorkerState.STOPPED})


def usable_hosts(
    snapshot: ClusterSnapshot, topology: Topology, *, job: str, exclude: Collection[str] = ()
) -> list[Host]:
    """Reachable, uncordoned nodes with slots that no other job holds, in the topology's order."""
    hosts = []
    for name, status in snapshot.nodes.items():
        node = topology.nodes.get(name)
        free = status.slots - _held_by_others(status, job)
        if name in exclude or not status.reachable or status.cordoned or free < 1:
            continue
        rack, leaf, spare = (node.rack, node.leaf, node.spare) if node is not None else ("", "", False)
        hosts.append(Host(name=name, rack=rack, leaf=leaf, free=free, spare=spare))
    return hosts


def _held_by_others(status: NodeStatus, job: str) -> int:
    return sum(worker.job != job and worker.state in _ALIVE for worker in status.workers)
