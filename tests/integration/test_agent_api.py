from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from agent_node import AgentNode, Receiver, eventually

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def node() -> Iterator[AgentNode]:
    receiver = Receiver()
    node = AgentNode(receiver).start()
    yield node
    node.remove()
    receiver.stop()


def test_health_and_metrics_need_no_token(node: AgentNode) -> None:
    with httpx.Client(base_url=node.client.base_url) as stranger:
        assert stranger.get("/healthz").json() == {"ok": True, "node": "node-1"}
        assert "everstep_host_memory_available_bytes" in stranger.get("/metrics").text


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, 401), ({"Authorization": "Basic agent-token"}, 401), ({"Authorization": "Bearer wrong"}, 403)],
)
def test_verbs_need_the_token(node: AgentNode, headers: dict[str, str], status: int) -> None:
    with httpx.Client(base_url=node.client.base_url, headers=headers) as stranger:
        for response in (stranger.get("/v1/status"), stranger.post("/v1/cordon", content='{"reason": "x"}')):
            assert response.status_code == status
            assert "; " in response.json()["error"]
    assert node.status()["cordoned"] is False


def test_bad_orders(node: AgentNode) -> None:
    unknown = node.start_worker(job="other")
    assert (unknown.status_code, unknown.json()["error"]) == (
        404,
        "unknown job other; add it to agent.jobs; known here: demo",
    )
    assert node.start_worker(command=["rm", "-rf", "/"]).status_code == 422
    assert node.start_worker(attempt="1").status_code == 422
    assert node.client.post("/v1/workers/stop", content="not json").status_code == 422
    assert node.client.post("/v1/workers/stop", content=b"x" * 70_000).status_code == 413
    absent = {"job": "demo", "attempt": 1, "rank": 0, "signal": "TERM"}
    assert node.post("workers/signal", absent).status_code == 404
    assert node.post("workers/signal", {**absent, "signal": "SEGV"}).status_code == 422
    assert node.client.get("/v1/nothing").status_code == 404
    assert node.client.get("/v1/cordon").status_code == 405
    assert node.client.get("/v1/checkpoints", params={"job": "demo"}).json() == {"copies": []}
    assert node.status()["jobs"]["demo"]["workers"] == []


def test_a_cordoned_node_starts_nothing(node: AgentNode) -> None:
    assert node.post("cordon", {"reason": "F18"}).status_code == 200
    assert node.status()["cordoned"] is True
    refused = node.start_worker()
    assert refused.status_code == 409
    assert "F18" in refused.json()["error"]
    assert node.post("uncordon", {}).status_code == 200
    assert node.status()["cordoned"] is False


def test_no_more_workers_than_slots(node: AgentNode) -> None:
    for rank in (0, 1):
        node.run_worker(rank)
    full = node.start_worker(2)
    assert full.status_code == 409
    assert "all 2 slots of node node-1 are taken" in full.json()["error"]
    assert node.post("workers/stop", {"job": "demo", "attempt": 1}).status_code == 200


def test_a_second_agent_on_the_same_run_dir_is_told_so(node: AgentNode) -> None:
    second = run_agent(node.config)
    assert second.returncode != 0
    assert "another agent" in second.stderr
    assert len(second.stderr.strip().splitlines()) == 1
    assert node.client.get("/healthz").status_code == 200


def test_once_prints_one_exposition(node: AgentNode) -> None:
    once = run_agent(node.config, "--once")
    assert once.returncode == 0
    assert "# TYPE everstep_host_memory_available_bytes gauge" in once.stdout
    assert once.stdout.endswith("# EOF\n")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("agent: {listen: {token_file: /nowhere/token}}", "cannot read token file /nowhere/token; check the path"),
        ("agent: {run_dir: /proc/everstep}", "cannot write to agent.run_dir /proc/everstep"),
        ("agent: {jobs: [{name: a/b, program: [x]}]}", "agent.jobs.0.name"),
        ("agent: {listne: {}}", "known keys here"),
    ],
)
def test_a_bad_configuration_is_one_line(tmp_path: Path, text: str, problem: str) -> None:
    config = tmp_path / "agent.yaml"
    extra = f", log_dir: {tmp_path}/log" + ("" if "run_dir" in text else f", run_dir: {tmp_path}/run")
    config.write_text(text.removesuffix("}") + extra + "}")
    failed = run_agent(config)
    assert failed.returncode != 0
    assert problem in failed.stderr
    assert len(failed.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_a_port_in_use_is_one_line(node: AgentNode, tmp_path: Path) -> None:
    port = node.client.base_url.port
    config = tmp_path / "agent.yaml"
    config.write_text(f"agent: {{listen: {{port: {port}}}, run_dir: {tmp_path}/run, log_dir: {tmp_path}/log}}")
    failed = run_agent(config)
    assert failed.returncode != 0
    assert f"cannot listen on 127.0.0.1:{port} (Address already in use)" in failed.stderr
    assert len(failed.stderr.strip().splitlines()) == 1


def test_a_service_that_goes_and_comes_loses_nothing() -> None:
    receiver = Receiver()
    node = AgentNode(receiver, settings={"push_interval_s": 0.2}).start()
    try:
        node.run_worker()
        receiver.stop()
        eventually(lambda: any("service_unavailable" in line for line in node.lines), "the loss is told")
        before = len(receiver.values("everstep_train_steps_total"))
        receiver.start()
        eventually(lambda: any("service_back" in line for line in node.lines), "the return is told")
        eventually(lambda: len(receiver.values("everstep_train_steps_total")) > before + 5, "steps go on")
        steps = receiver.values("everstep_train_steps_total", rank="0")
        assert steps == [float(number) for number in range(1, len(steps) + 1)]
        assert sum("service_unavailable" in line for line in node.lines) == 1
    finally:
        node.remove()
        receiver.stop()


def run_agent(config: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "everstep.cli.main", "agent", "--config", str(config), *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
