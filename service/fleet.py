"""Where the cluster's GPUs are: in jobs, idle, fragmented, isolated or lost; the states sum to the topology's total."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from typing import Protocol

import structlog

from everstep.core.clock import Clock
from everstep.core.engine import ClusterSnapshot, RankPlacement
from everstep.core.errors import EngineError
from everstep.core.topology import Node, Topology

STATES = ("allocated", "idle", "fragmented", "isolated", "lost")
REFRESH_S = 15.0
TIMEOUT_S = 2.0


class Prober(Protocol):
    """The part of a `ClusterEngine` that asks the agents how they are."""

    def snapshot(self, *, timeout_s: float) -> ClusterSnapshot: ...


class Fleet:
    """A snapshot of the agents for whoever scrapes us: asked for on a worker when the last is old, never waited for."""

    def __init__(self, prober: Prober, workers: Executor, clock: Clock, *, on_failure: Callable[[], None]) -> None:
        self._prober = prober
        self._workers = workers
        self._clock = clock
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._asked_at = float("-inf")
        self._newest: ClusterSnapshot | None = None

    def newest(self) -> ClusterSnapshot | None:
        """The last answer; None before there is one."""
        with self._lock:
            due = self._clock.now() - self._asked_at >= REFRESH_S
            if due:
                self._asked_at = self._clock.now()
        if due:
            self._workers.submit(self._ask)
        return self._newest

    def _ask(self) -> None:
        """On a worker thread."""
        try:
            self._newest = self._prober.snapshot(timeout_s=TIMEOUT_S)
        except EngineError as error:
            self._on_failure()
            structlog.get_logger().warning("fleet_probe_failed", error=str(error))


def gpus_by_state(
    topology: Topology, snapshot: ClusterSnapshot, placements: Iterable[RankPlacement], up: Mapping[str, int]
) -> dict[str, int]:
    """`placements` are those of all running jobs, `up` the GPUs that answer on nodes that report them.

    A node that does not answer loses all its GPUs; what is free beside a job on one node is fragmented. Empty when the
    topology names no GPUs.
    """
    used = Counter(placement.node for placement in placements)
    counts: Counter[str] = Counter()
    for node in topology.nodes.values():
        counts.update(_of_node(node, snapshot, used[node.name], up.get(node.name, node.gpus)))
    return {state: counts[state] for state in STATES} if counts.total() else {}


def _of_node(node: Node, snapshot: ClusterSnapshot, used_slots: int, up: int) -> dict[str, int]:
    status = snapshot.nodes.get(node.name)
    if status is None or not status.reachable:
        return {"lost": node.gpus}
    left = min(node.gpus, max(0, up))
    lost = {"lost": node.gpus - left}
    if status.cordoned:
        return {**lost, "isolated": left}
    allocated = min(left, round(used_slots * node.gpus / node.slots))
    return {**lost, "allocated": allocated, "fragmented" if used_slots else "idle": left - allocated}
