"""One contract for every cluster engine: run over the simulator and over real HTTP against agents in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from everstep.core.engine import Attempt, ClusterEngine, RankPlacement, WorkerState
from everstep.core.errors import EngineError
from everstep.core.topology import Node, Topology
from everstep.recovery.engines.agents import AgentsEngine
from everstep.scheduler.placement import PlacementError
from everstep.simulator import SimCluster

TOKEN = "agent-token"
NAMES = tuple(f"node-{index}" for index in range(4))
JOB = "demo"


@dataclass
class FakeAgent:
    """What an agent keeps in memory; `mood` makes it answer wrongly."""

    name: str
    slots: int = 1
    cordoned: str = ""
    fence: int = 0
    mood: str = ""
    workers: dict[int, dict[str, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def app(self) -> Starlette:
        verbs = {
            "store/start": self.store_start,
            "workers/start": self.workers_start,
            "workers/stop": self.workers_stop,
            "workers/stacks": self.stacks,
            "cordon": self.cordon,
            "uncordon": self.uncordon,
        }
        posts = [Route(f"/v1/{verb}", self.guarded(act), methods=["POST"]) for verb, act in verbs.items()]
        gets = [
            Route("/v1/status", self.guarded(self.status)),
            Route("/v1/checkpoints", self.guarded(self.checkpoints)),
        ]
        return Starlette(routes=[*posts, *gets])

    def guarded(self, act: Callable[[dict[str, Any]], Any]) -> Callable[[Request], Any]:
        async def handler(request: Request) -> JSONResponse:
            self.asked.append(request.url.path)
            if request.headers.get("authorization") != f"Bearer {TOKEN}":
                return JSONResponse({"error": "wrong bearer token; use the right one"}, status_code=403)
            if self.mood == "broken":
                return JSONResponse({"error": "disk gone; mend it"}, status_code=500)
            if self.mood == "gibberish":
                return JSONResponse(["what", None], status_code=200)
            body = await request.json() if request.method == "POST" else dict(request.query_params)
            answer, status = act(body)
            return JSONResponse(answer, status_code=status)

        return handler

    def advance(self, attempt: int) -> None:
        self.fence = max(self.fence, attempt)

    def status(self, body: dict[str, Any]) -> Any:
        job = {"standby_ready": True, "workers": list(self.workers.values())}
        return {"node": self.name, "slots": self.slots, "cordoned": bool(self.cordoned), "jobs": {JOB: job}}, 200

    def store_start(self, body: dict[str, Any]) -> Any:
        if body["attempt"] < self.fence:
            return {"error": f"attempt {body['attempt']} is fenced; start a newer one"}, 409
        self.advance(body["attempt"])
        return {"host": "127.0.0.1", "port": 29500}, 200

    def workers_start(self, body: dict[str, Any]) -> Any:
        if self.cordoned or body["attempt"] < self.fence:
            return {"error": "cordoned or fenced; place the rank elsewhere"}, 409
        self.advance(body["attempt"])
        present = self.workers.get(body["rank"])
        if present is None or present["attempt"] != body["attempt"]:
            pid = 1000 * body["attempt"] + body["rank"]
            self.workers[body["rank"]] = {
                "rank": body["rank"],
                "attempt": body["attempt"],
                "pid": pid,
                "state": "running",
                "exit_code": None,
                "reason": "",
            }
        return {"pid": self.workers[body["rank"]]["pid"]}, 200

    def workers_stop(self, body: dict[str, Any]) -> Any:
        self.advance(body["attempt"])
        for worker in self.workers.values():
            if worker["attempt"] <= body["attempt"] and worker["state"] == "running":
                worker |= {"state": "killed", "exit_code": -9, "reason": "stopped_by_agent"}
        return {}, 200

    def stacks(self, body: dict[str, Any]) -> Any:
        return {"stacks": {str(rank): "train_step" for rank in self.workers}}, 200

    def checkpoints(self, body: dict[str, Any]) -> Any:
        ranks = [(int(self.name[-1]) + shift) % 3 for shift in (0, 2)] if self.name != "node-3" else []
        memory = [self.copy(25, "memory", rank) for rank in ranks]
        return {"copies": [*memory, self.copy(20, "disk", None)]}, 200

    def copy(self, step: int, tier: str, rank: int | None) -> dict[str, Any]:
        return {"step": step, "tier": tier, "attempt": 1, "holder": self.name, "rank": rank, "problem": ""}

    def cordon(self, body: dict[str, Any]) -> Any:
        self.cordoned = body["reason"]
        return {}, 200

    def uncordon(self, body: dict[str, Any]) -> Any:
        self.cordoned = ""
        return {}, 200


class Served:
    """An agent on a loopback port that can die."""

    def __init__(self, agent: FakeAgent) -> None:
        self.agent = agent
        config = uvicorn.Config(agent.app(), host="127.0.0.1", port=0, log_level="error", lifespan="off", ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 10
        while not self._server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        self.url = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"

    def die(self) -> None:
        self._server.force_exit = True
        self._server.should_exit = True
        self._thread.join(10)


@dataclass
class Fixture:
    """An engine with a way to kill its nodes."""

    engine: ClusterEngine
    kill: Callable[[str], None]
    agents: dict[str, FakeAgent] = field(default_factory=dict)


@pytest.fixture
def simulated() -> Fixture:
    cluster = SimCluster(Topology.of([Node(name=name, spare=name == "node-3") for name in NAMES]))
    real_start = cluster.start

    def start(*args: Any, **kwargs: Any) -> Any:
        outcomes = real_start(*args, **kwargs)
        cluster.advance(3.0)
        return outcomes

    cluster.start = start  # type: ignore[method-assign]
    return Fixture(engine=cluster, kill=cluster.kill_node)


@pytest.fixture
def served() -> Iterator[Fixture]:
    servers = {name: Served(FakeAgent(name)) for name in NAMES}
    topology = Topology.of(
        [Node(name=name, agent_url=server.url, spare=name == "node-3") for name, server in servers.items()]
    )
    engine = AgentsEngine(topology, TOKEN)
    yield Fixture(
        engine=engine,
        kill=lambda name: servers[name].die(),
        agents={name: server.agent for name, server in servers.items()},
    )
    engine.close()
    for server in servers.values():
        server.die()


def attempt(number: int = 1) -> Attempt:
    placements = tuple(RankPlacement(rank=rank, node=f"node-{rank}", local_rank=0) for rank in range(3))
    return Attempt(job=JOB, number=number, placements=placements)


def workers(engine: ClusterEngine) -> dict[int, tuple[int, int, WorkerState]]:
    snapshot = engine.snapshot(timeout_s=2)
    return {
        worker.rank: (worker.attempt, worker.pid, worker.state)
        for node in snapshot.nodes.values()
        for worker in node.workers
    }


def check_engine(fixture: Fixture) -> None:
    """What every engine must do; the fixture has four nodes of one slot, the last one a spare."""
    engine = fixture.engine
    check_start(engine)
    check_cordon(engine)
    check_placing(engine)
    check_stop(engine)
    check_fence(engine)
    check_dead_node(fixture)


def check_start(engine: ClusterEngine) -> None:
    before = engine.snapshot(timeout_s=2)
    assert set(before.nodes) == set(NAMES)
    assert all(node.reachable and not node.cordoned for node in before.nodes.values())
    assert engine.start(attempt(), key="rehearsal", timeout_s=5, dry_run=True).failed == {}
    assert workers(engine) == {}
    assert engine.start(attempt(), key="start-1", timeout_s=5).by_node == dict.fromkeys(NAMES[:3], "")
    first = workers(engine)
    assert {(number, state) for number, _, state in first.values()} == {(1, WorkerState.RUNNING)}
    assert set(first) == {0, 1, 2}
    assert engine.start(attempt(), key="start-1", timeout_s=5).failed == {}
    assert workers(engine) == first
    with pytest.raises(EngineError, match="place it first"):
        engine.start(replace(attempt(), placements=()), key="none", timeout_s=5)
    assert set(engine.dump_stacks(attempt(), timeout_s=5)) == {0, 1, 2}
    copies = engine.checkpoints(attempt(), timeout_s=5)
    assert {copy.tier for copy in copies} == {"memory", "disk"}
    assert {copy.rank for copy in copies if copy.tier == "memory"} == {0, 1, 2}
    assert {copy.holder for copy in copies} <= set(NAMES[:3])


def check_cordon(engine: ClusterEngine) -> None:
    assert engine.cordon("node-3", key="k0", reason="test", timeout_s=5, dry_run=True).failed == {}
    assert not engine.snapshot(timeout_s=2).nodes["node-3"].cordoned
    for _ in range(2):
        assert engine.cordon("node-3", key="k1", reason="test", timeout_s=5).failed == {}
    assert engine.snapshot(timeout_s=2).nodes["node-3"].cordoned
    with pytest.raises(PlacementError, match="no free node can take over"):
        engine.place(attempt(), exclude=("node-1",), timeout_s=5)
    assert engine.uncordon("node-3", key="k2", timeout_s=5).failed == {}
    assert not engine.snapshot(timeout_s=2).nodes["node-3"].cordoned


def check_placing(engine: ClusterEngine) -> None:
    moved = ["node-0", "node-3", "node-2"]
    assert [one.node for one in engine.place(attempt(), exclude=("node-1",), timeout_s=5)] == moved
    assert [one.node for one in engine.replace(attempt(), "node-1", timeout_s=5)] == moved
    assert [one.node for one in engine.migrate(attempt(), 1, "node-3", timeout_s=5)] == moved
    assert [one.node for one in engine.resize(attempt(), 2, timeout_s=5)] == ["node-0", "node-1"]
    assert [one.node for one in engine.place(attempt(), exclude=(), timeout_s=5)] == list(NAMES[:3])


def check_stop(engine: ClusterEngine) -> None:
    assert engine.stop(attempt(), key="rehearsal", timeout_s=5, dry_run=True).failed == {}
    assert {state for _, _, state in workers(engine).values()} == {WorkerState.RUNNING}
    for _ in range(2):
        assert engine.stop(attempt(), key="stop-1", timeout_s=5).failed == {}
    assert {state for _, _, state in workers(engine).values()} == {WorkerState.KILLED}


def check_fence(engine: ClusterEngine) -> None:
    assert engine.start(attempt(2), key="start-2", timeout_s=5).failed == {}
    assert engine.start(attempt(1), key="late", timeout_s=5).failed
    assert {number for number, _, _ in workers(engine).values()} == {2}


def check_dead_node(fixture: Fixture) -> None:
    engine = fixture.engine
    fixture.kill("node-1")
    status = engine.snapshot(timeout_s=2).nodes["node-1"]
    assert (status.reachable, status.detail) == (False, "refused")
    outcomes = engine.stop(attempt(2), key="stop-2", timeout_s=5)
    assert outcomes.failed == {"node-1": "refused"}
    assert "node-1" not in {copy.holder for copy in engine.checkpoints(attempt(2), timeout_s=5)}
    engine.cordon("node-1", key="k3", reason="dead", timeout_s=5)
    assert engine.snapshot(timeout_s=2).nodes["node-1"].cordoned
    assert [one.node for one in engine.place(attempt(2), exclude=(), timeout_s=5)] == ["node-0", "node-3", "node-2"]


def test_simulator(simulated: Fixture) -> None:
    check_engine(simulated)


@pytest.mark.integration
def test_agents(served: Fixture) -> None:
    check_engine(served)


@pytest.mark.integration
def test_a_repeated_key_does_not_even_ask(served: Fixture) -> None:
    served.engine.cordon("node-2", key="once", reason="x", timeout_s=5)
    asked = len(served.agents["node-2"].asked)
    served.engine.cordon("node-2", key="once", reason="x", timeout_s=5)
    assert len(served.agents["node-2"].asked) == asked


@pytest.mark.integration
def test_a_verb_that_failed_is_repeated_only_where_it_failed(served: Fixture) -> None:
    served.agents["node-1"].mood = "broken"
    outcomes = served.engine.start(attempt(), key="s", timeout_s=5)
    assert outcomes.failed == {"node-1": "disk gone; mend it"}
    served.agents["node-1"].mood = ""
    asked = served.agents["node-2"].asked.count("/v1/workers/start")
    assert served.engine.start(attempt(), key="s", timeout_s=5).failed == {}
    assert served.agents["node-2"].asked.count("/v1/workers/start") == asked
    assert set(workers(served.engine)) == {0, 1, 2}


@pytest.mark.integration
def test_a_store_that_does_not_open_starts_nobody(served: Fixture) -> None:
    served.agents["node-0"].mood = "broken"
    outcomes = served.engine.start(attempt(), key="s", timeout_s=5)
    assert outcomes.failed == {"node-0": "store: disk gone; mend it", "node-1": "no store", "node-2": "no store"}
    assert workers(served.engine) == {}


@pytest.mark.integration
def test_agents_that_talk_gibberish_are_not_believed(served: Fixture) -> None:
    served.agents["node-1"].mood = "gibberish"
    snapshot = served.engine.snapshot(timeout_s=2)
    assert (snapshot.nodes["node-1"].reachable, snapshot.nodes["node-1"].detail) == (False, "http-200")
    assert "node-1" not in {copy.holder for copy in served.engine.checkpoints(attempt(), timeout_s=5)}
    assert served.engine.dump_stacks(attempt(), timeout_s=5) == {}


@pytest.mark.integration
def test_a_wrong_token_is_told_apart_from_a_dead_node(served: Fixture) -> None:
    topology = served.engine.topology  # type: ignore[attr-defined]
    stranger = AgentsEngine(topology, "wrong")
    try:
        details = {node.detail for node in stranger.snapshot(timeout_s=2).nodes.values()}
        assert details == {"http-403"}
        failed = stranger.stop(attempt(), key="k", timeout_s=5).failed
        assert failed["node-0"] == "wrong bearer token; use the right one"
    finally:
        stranger.close()


@pytest.mark.integration
def test_a_node_that_was_cordoned_while_away_is_told_when_it_is_back(served: Fixture) -> None:
    agent = served.agents["node-1"]
    agent.mood = "broken"
    served.engine.cordon("node-1", key="k", reason="dead", timeout_s=5)
    assert agent.cordoned == ""
    agent.mood = ""
    assert served.engine.snapshot(timeout_s=2).nodes["node-1"].cordoned
    assert agent.cordoned == "dead"


@pytest.mark.integration
def test_verbs_may_come_from_many_threads(served: Fixture) -> None:
    problems: list[str] = []

    def ask() -> None:
        for _ in range(5):
            snapshot = served.engine.snapshot(timeout_s=5)
            problems.extend(node.detail for node in snapshot.nodes.values() if not node.reachable)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert problems == []
