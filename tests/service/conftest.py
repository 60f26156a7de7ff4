"""Fakes of the service's neighbours: node agents, a cluster engine, a controller, an executor without threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from everstep.core.clock import ManualClock
from everstep.core.engine import Attempt, ClusterSnapshot, NodeStatus, RankPlacement, WorkerStatus
from everstep.core.events import Anomaly, Entity, EntityKind, Incident, IncidentState, RootCause
from everstep.core.remote_write import decompress, encode_series, series
from everstep.core.settings import JobSettings, NodeEntry, ServiceSettings
from everstep.service.events import EventBus
from everstep.service.goodput import Goodput
from everstep.service.monitor import Monitor, Parts
from everstep.service.self_metrics import SelfMetrics
from everstep.service.storage import SqliteStore
from everstep.service.window_store import WindowStore

START = 1_000_000.0
NODES = ("node-0", "node-1", "node-2")


def attempt(number: int = 1, nodes: tuple[str, ...] = NODES) -> Attempt:
    placements = tuple(RankPlacement(rank=rank, node=node, local_rank=0) for rank, node in enumerate(nodes))
    return Attempt(job="demo", number=number, placements=placements)


class InlineExecutor(Executor):
    """Runs each call at once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class FakeController:
    """Resolves what it is given; `react` may start the next attempt first."""

    def __init__(self) -> None:
        self.attempts: dict[str, Attempt] = {}
        self.handled: list[Incident] = []
        self.told: list[tuple[str, tuple[Anomaly, ...]]] = []
        self.launched: list[str] = []
        self.adopted: list[Attempt] = []
        self.react: Callable[[Incident], Incident] = lambda incident: replace(incident, state=IncidentState.RESOLVED)

    def current(self, job: str) -> Attempt | None:
        return self.attempts.get(job)

    def handle(self, incident: Incident) -> Incident:
        self.handled.append(incident)
        return self.react(incident)

    def evidence(self, incident_id: str, anomalies: tuple[Anomaly, ...]) -> None:
        self.told.append((incident_id, anomalies))

    def launch(self, job: JobSettings) -> Attempt:
        self.launched.append(job.name)
        self.attempts[job.name] = attempt()
        return self.attempts[job.name]

    def adopt(self, found: Attempt) -> None:
        self.adopted.append(found)
        self.attempts[found.job] = found

    def approve(self, incident_id: str) -> bool:
        return incident_id == "waiting"

    def reject(self, incident_id: str) -> bool:
        return incident_id == "waiting"


class FakeEngine:
    """Every node answers unless `down` says how it does not."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.down: dict[str, str] = {}
        self.workers: dict[str, tuple[WorkerStatus, ...]] = {}
        self.standby_ready = True
        self.snapshots = 0

    def snapshot(self, *, timeout_s: float) -> ClusterSnapshot:
        self.snapshots += 1
        nodes = {
            name: NodeStatus(
                name=name,
                reachable=name not in self.down,
                standby_ready=self.standby_ready,
                workers=self.workers.get(name, ()),
                detail=self.down.get(name, ""),
            )
            for name in (*NODES, "node-3")
        }
        return ClusterSnapshot(at=self._clock.now(), nodes=nodes)


def ranked(found: Attempt, anomalies: tuple[Anomaly, ...], now: float) -> list[RootCause]:
    return [RootCause(entity=Entity(kind=EntityKind.JOB, name=found.job), fault="UNKNOWN", confidence=0.5)]


@dataclass
class Agent:
    """What one node agent would push for its one rank."""

    rank: int
    node: str
    attempt: int = 1
    state: str = "running"
    exit_code: int | None = None
    reason: str = ""
    nonfinite: tuple[int, int, bool] = (0, -1, False)
    steps: list[tuple[int, float, float, float]] = field(default_factory=list)
    alive: bool = True

    def body(self, now: float) -> bytes:
        return encode_series(self._series(now))

    def _series(self, now: float) -> Iterable[Any]:
        target = {"cluster": "default", "node": self.node, "rack": "rack-0"}
        mine = {**target, "train_job": "demo", "rank": str(self.rank)}
        for state in ("running", "stopped", "blocked", "exited", "killed"):
            samples = [(now, float(state == self.state))]
            yield series("everstep_worker_state", {**mine, "state": state}, samples)
        yield series("everstep_train_attempt", mine, [(now, float(self.attempt))])
        if self.exit_code is not None:
            yield series("everstep_worker_exit_code", mine, [(now, float(self.exit_code))])
            yield series("everstep_worker_exit_reason", {**mine, "reason": self.reason}, [(now, 1.0)])
        count, batch, bad_input = self.nonfinite
        yield series("everstep_train_nonfinite_steps_total", mine, [(now, float(count))])
        yield series("everstep_train_nonfinite_batch", mine, [(now, float(batch))])
        yield series("everstep_train_nonfinite_input", mine, [(now, float(bad_input))])
        ends = [(end, float(step)) for step, end, _, _ in self.steps]
        computes = [(end, compute) for _, end, compute, _ in self.steps]
        yield series("everstep_train_step_compute_seconds", mine, computes)
        yield series("everstep_train_steps_total", mine, ends)
        if self.rank == 0:
            job = {**target, "train_job": "demo"}
            yield series("everstep_train_loss", job, [(end, loss) for _, end, _, loss in self.steps])
            yield series("everstep_train_batch_index", mine, [(end, step - 1.0) for step, end, _, _ in self.steps])
        self.steps.clear()


class World:
    """Three agents, a clock and a monitor without threads; a step takes 0.2 s, agents push once a second."""

    STEP_S = 0.2

    def __init__(self, tmp_path: Path) -> None:
        self.clock = ManualClock(START)
        self.settings = ServiceSettings(
            data_dir=tmp_path / "data",
            nodes=[NodeEntry(name=name) for name in NODES] + [NodeEntry(name="node-3", spare=True)],
            jobs=[JobSettings(name="demo", world_size=3)],
        )
        self.controller = FakeController()
        self.engine = FakeEngine(self.clock)
        self.metrics = SelfMetrics()
        self.bus = EventBus()
        self.goodput = Goodput()
        self.store = SqliteStore(self.settings.data_dir, on_failure=lambda: self.metrics.error("store"))
        self.windows = WindowStore(window_s=600, max_series=10_000, current_attempt=self._current)
        self.monitor = self.make_monitor()
        self.agents = [Agent(rank, node) for rank, node in enumerate(NODES)]
        self.rng = np.random.default_rng(3)
        self.slow: dict[int, float] = {}
        self.clocks: dict[int, float] = {}  # by rank: seconds that its node's clock is ahead
        self.step = 0
        self.slot = 0
        self.stepping = True

    def make_monitor(self) -> Monitor:
        parts = Parts(
            settings=self.settings,
            store=self.store,
            windows=self.windows,
            controller=self.controller,
            prober=self.engine,
            rank_causes=ranked,
            bus=self.bus,
            metrics=self.metrics,
            goodput=self.goodput,
            clock=self.clock,
        )
        return Monitor(parts, InlineExecutor())

    def _current(self, job: str) -> int:
        found = self.controller.current(job)
        return found.number if found is not None else 0

    def launch(self, number: int = 1, nodes: tuple[str, ...] = NODES, *, at_step: int = 0) -> None:
        """The controller starts an attempt; agents begin to speak for it."""
        self.controller.attempts["demo"] = attempt(number, nodes)
        self.agents = [Agent(rank, node, attempt=number) for rank, node in enumerate(nodes)]
        self.step = at_step
        self.stepping = True

    def push(self, rank: int) -> None:
        """A push a moment later than now, as after a change of state."""
        self.clock.advance(0.01)
        now = self.clock.now()
        ahead = self.clocks.get(rank, 0.0)
        agent = self.agents[rank]
        agent.steps = [(step, end + ahead, compute, loss) for step, end, compute, loss in agent.steps]
        raw = decompress(agent.body(now + ahead), max_bytes=10**7)
        self.windows.apply(raw, arrived=now)

    def one_step(self) -> None:
        self.step += 1
        now = self.clock.now()
        for agent in self.agents:
            compute = 0.1 * float(np.exp(self.rng.normal(0, 0.08))) * self.slow.get(agent.rank, 1.0)
            if self.rng.random() < 0.03:
                compute *= 1 + float(self.rng.pareto(1.5))
            agent.steps.append((self.step, now, compute, 3.0 - 0.001 * self.step))

    def run(self, seconds: float) -> None:
        """Let time pass in slices of 0.1 s: steps end, agents push each second in turn, the monitor turns."""
        for _ in range(round(seconds / 0.1)):
            self.slot += 1
            self.clock.advance(max(0.0, START + self.slot / 10 - self.clock.now()))
            slot = self.slot
            if self.stepping and slot % 2 == 0:
                self.one_step()
            for agent in self.agents:
                if agent.alive and slot % 10 == 3 * agent.rank:
                    self.push(agent.rank)
            self.monitor.tick()

    @property
    def anomalies(self) -> list[Anomaly]:
        return list(self.monitor.anomalies)


@pytest.fixture
def world(tmp_path: Path) -> Iterable[World]:
    made = World(tmp_path)
    yield made
    made.store.close()
