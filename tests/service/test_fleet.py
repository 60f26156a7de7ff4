from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from everstep.core.clock import ManualClock
from everstep.core.engine import ClusterSnapshot, NodeStatus, RankPlacement
from everstep.core.errors import EngineError
from everstep.core.topology import Node, Topology
from everstep.service.fleet import REFRESH_S, Fleet, gpus_by_state

NAMES = ("n0", "n1", "n2", "n3")


def topology(gpus: int = 8, slots: int = 2) -> Topology:
    return Topology.of([Node(name=name, gpus=gpus, slots=slots) for name in NAMES])


def snapshot(**changed: NodeStatus) -> ClusterSnapshot:
    nodes = {name: NodeStatus(name=name, reachable=True) for name in NAMES}
    return ClusterSnapshot(at=1.0, nodes={**nodes, **changed})


def rank(number: int, node: str) -> RankPlacement:
    return RankPlacement(rank=number, node=node, local_rank=0)


def test_each_gpu_is_in_exactly_one_state() -> None:
    seen = snapshot(n2=NodeStatus(name="n2", reachable=True, cordoned=True), n3=NodeStatus(name="n3", reachable=False))
    counts = gpus_by_state(topology(), seen, [rank(0, "n0"), rank(1, "n0"), rank(2, "n1")], {"n1": 7})
    assert counts == {"allocated": 12, "idle": 0, "fragmented": 3, "isolated": 8, "lost": 9}
    assert sum(counts.values()) == 32


def test_a_cluster_without_gpus_says_nothing() -> None:
    assert gpus_by_state(topology(gpus=0), snapshot(), [rank(0, "n0")], {}) == {}


def test_a_free_node_is_idle() -> None:
    assert gpus_by_state(topology(), snapshot(), [], {})["idle"] == 32


class Agents:
    """Answers what it holds; without an answer it fails."""

    answer: ClusterSnapshot | None = None
    asked = 0

    def snapshot(self, *, timeout_s: float) -> ClusterSnapshot:
        self.asked += 1
        if self.answer is None:
            raise EngineError("nobody answers", mend="look at the agents")
        return self.answer


class Inline(Executor):
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def test_agents_are_asked_now_and_then_and_a_failure_keeps_the_last_answer() -> None:
    agents, clock, failures = Agents(), ManualClock(1000.0), []
    fleet = Fleet(agents, Inline(), clock, on_failure=lambda: failures.append(1))
    assert fleet.newest() is None
    assert failures == [1]
    agents.answer = snapshot()
    assert fleet.newest() is None
    clock.advance(REFRESH_S)
    assert fleet.newest() == agents.answer
    clock.advance(REFRESH_S)
    held, agents.answer = agents.answer, None
    assert fleet.newest() == held
    assert agents.asked == 3
