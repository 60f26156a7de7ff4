"""A simulated world with a controller in it, moved by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from everstep.core.clock import ManualClock
from everstep.core.engine import Attempt
from everstep.core.events import Anomaly, Direction, Entity, EntityKind, Incident
from everstep.core.settings import JobSettings, RecoverySettings
from everstep.core.topology import Node, Topology
from everstep.recovery import observe
from everstep.recovery.controller import Controller, Seams
from everstep.recovery.store import MemoryStore
from everstep.simulator import SimCluster, SimTraining

JOB = "demo"


@dataclass
class World:
    """The cluster, the store, the controller and everything that it told."""

    cluster: SimCluster
    store: MemoryStore
    settings: RecoverySettings
    told: list[Incident] = field(default_factory=list)
    controller: Controller = field(init=False)

    def __post_init__(self) -> None:
        self.controller = self.new_controller()

    def new_controller(self, *, pause: Callable[[float], None] | None = None, engine: Any = None) -> Controller:
        """As after a restart of the service: the same store, nothing remembered."""
        return Controller(
            engine or self.cluster,
            self.store,
            self.cluster,
            self.settings,
            self.cluster.clock,
            self.told.append,
            seams=Seams(topology=self.cluster.topology, pause=pause or self.cluster.advance),
        )

    @property
    def now(self) -> float:
        return self.cluster.clock.now()

    @property
    def attempt(self) -> Attempt:
        attempt = self.controller.current(JOB)
        assert attempt is not None
        return attempt

    @property
    def nodes(self) -> list[str]:
        return [one.node for one in self.attempt.placements]

    def audited(self, kind: str) -> list[dict[str, Any]]:
        return [detail for _, what, detail in self.store.audit_trail() if what == kind]

    def anomaly(self, kind: EntityKind, name: str, detector: str, **evidence: Any) -> Anomaly:
        return Anomaly(
            entity=Entity(kind=kind, name=name),
            metric="everstep_worker_state",
            onset_earliest=self.now,
            onset_latest=self.now,
            score=2.0,
            direction=Direction.CHANGE,
            detector=detector,
            observed=1.0,
            expected=0.0,
            evidence=evidence,
        )

    def seen(self) -> tuple[Anomaly, ...]:
        """What the agents would report of the current attempt."""
        return observe.troubles(self.cluster.snapshot(timeout_s=1), self.attempt)

    def stopped(self, rank: int) -> Anomaly:
        node = self.nodes[rank]
        return self.anomaly(
            EntityKind.RANK, f"{JOB}/{rank}", "process", state="stopped", reason="", exit_code=None, node=node
        )

    def nonfinite(self, batch: int) -> Anomaly:
        return self.anomaly(
            EntityKind.RANK, f"{JOB}/1", "nonfinite", batch=batch, input_nonfinite=True, step=batch + 1, ranks=[0, 1, 2]
        )

    def slow(self, rank: int) -> Anomaly:
        return self.anomaly(EntityKind.RANK, f"{JOB}/{rank}", "peers", ratio=1.5, steps=9, node=self.nodes[rank])

    def incident(self, *anomalies: Anomaly) -> Incident:
        return Incident(
            id=f"incident-{self.now:.2f}",
            job=JOB,
            attempt=self.attempt.number,
            opened=self.now,
            onset=self.now,
            anomalies=anomalies or self.seen(),
        )

    def heal(self, *anomalies: Anomaly) -> Incident:
        """Let the controller handle what is to be seen now."""
        return self.controller.handle(self.incident(*anomalies))


@pytest.fixture
def make_world() -> Callable[..., World]:
    def make(*, spares: int = 1, training: SimTraining | None = None, **settings: Any) -> World:
        nodes = [Node(name=f"node-{index}", spare=index >= 3) for index in range(3 + spares)]
        cluster = SimCluster(Topology.of(nodes), clock=ManualClock(1000.0), training=training)
        world = World(cluster=cluster, store=MemoryStore(), settings=RecoverySettings(**settings))
        world.controller.launch(JobSettings(name=JOB, world_size=3))
        cluster.advance(3.3)
        return world

    return make


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """Three ranks on three nodes, one spare, 28 steps done; newest states: memory 25, disk 20."""
    return make_world()
