from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from agent_node import AgentNode, Receiver, eventually, exists

pytestmark = pytest.mark.integration


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.stop()


@pytest.fixture
def node_with(receiver: Receiver) -> Iterator[Callable[..., AgentNode]]:
    nodes: list[AgentNode] = []

    def build(**changes: Any) -> AgentNode:
        nodes.append(AgentNode(receiver, **changes))
        return nodes[-1]

    yield build
    for node in nodes:
        node.remove()


def test_a_killed_worker_is_pushed_with_its_reason(node_with: Callable[..., AgentNode], receiver: Receiver) -> None:
    node = node_with(settings={"push_interval_s": 60}, arguments=("--steps", "5")).start()
    pid = node.run_worker()
    log = (node.folder / "log" / "demo" / "attempt-1" / "rank-0.log").read_text()
    assert log == "argv ['--steps', '5'] name __main__\n"
    eventually(lambda: receiver.values("everstep_worker_state", state="running", rank="0"), "first push")
    os.kill(pid, signal.SIGKILL)
    # The interval is a minute: only a push at once can bring this.
    eventually(lambda: receiver.values("everstep_worker_exit_code", rank="0") == [-9.0], "the end in a push")
    assert receiver.values("everstep_worker_exit_reason", reason="signal") == [1.0]
    assert receiver.values("everstep_worker_state", state="killed")[-1] == 1.0
    steps = receiver.values("everstep_train_steps_total", rank="0", node="node-1", cluster="default")
    assert steps == [float(number) for number in range(1, len(steps) + 1)]
    assert {"state": "killed", "exit_code": -9, "reason": "signal"}.items() <= node.worker().items()
    assert not exists(pid)


def test_a_lost_peer_is_read_from_the_log(node_with: Callable[..., AgentNode], receiver: Receiver) -> None:
    node = node_with(arguments=("--fail-at-3",)).start()
    assert node.start_worker().status_code == 200
    eventually(lambda: receiver.values("everstep_worker_exit_reason", reason="peer_lost"), "an end")
    assert receiver.values("everstep_worker_exit_reason", reason="peer_lost")[-1] == 1.0
    assert node.worker()["state"] == "exited"
    eventually(lambda: receiver.is_ended("everstep_train_steps_total", rank="0"), "series of a dead rank end")
    assert receiver.values("everstep_train_steps_total", rank="0") == [1.0, 2.0, 3.0]


def test_a_stopped_worker_is_seen_dumped_and_continued(node_with: Callable[..., AgentNode], receiver: Receiver) -> None:
    node = node_with(settings={"push_interval_s": 60}).start()
    pid = node.run_worker()
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: receiver.values("everstep_worker_state", state="stopped")[-1:] == [1.0], "stopped in a push")
    assert node.worker()["state"] == "stopped"
    stacks = node.post("workers/stacks", {"job": "demo"}).json()["stacks"]
    assert list(stacks) == ["0"]
    assert "program.py" in stacks["0"] or "py-spy" in stacks["0"]
    order = {"job": "demo", "attempt": 1, "rank": 0, "signal": "CONT"}
    assert node.post("workers/signal", order).status_code == 200
    eventually(lambda: node.worker()["state"] == "running", "running again")
    os.kill(pid, signal.SIGSTOP)
    assert node.post("workers/stop", {"job": "demo", "attempt": 1, "grace_s": 0}).status_code == 200
    assert not exists(pid)
    assert node.worker()["reason"] == "stopped_by_agent"


def test_a_polite_worker_ends_in_the_grace_time(node_with: Callable[..., AgentNode]) -> None:
    node = node_with(arguments=("--polite",)).start()
    pid = node.run_worker()
    assert node.post("workers/stop", {"job": "demo", "attempt": 1, "grace_s": 20}).status_code == 200
    assert not exists(pid)
    assert {"exit_code": 0, "reason": "stopped_by_agent"}.items() <= node.worker().items()


def test_a_nonfinite_step_is_pushed_at_once(node_with: Callable[..., AgentNode], receiver: Receiver) -> None:
    node = node_with(settings={"push_interval_s": 60}, arguments=("--nan-at-5",)).start()
    node.run_worker()
    eventually(lambda: 1.0 in receiver.values("everstep_train_nonfinite_steps_total", rank="0"), "nonfinite in a push")


def test_a_newer_attempt_ends_the_older_and_the_older_is_refused(node_with: Callable[..., AgentNode]) -> None:
    node = node_with().start()
    old = node.run_worker(attempt=1)
    new = node.run_worker(attempt=2)
    assert not exists(old)
    assert exists(new)
    assert node.start_worker(attempt=2).json() == {"pid": new}
    for response in (
        node.start_worker(attempt=1),
        node.post("store/start", {"job": "demo", "attempt": 1}),
        node.post("workers/stop", {"job": "demo", "attempt": 1}),
    ):
        assert response.status_code == 409
        assert "older than attempt 2" in response.json()["error"]
    os.kill(new, signal.SIGKILL)
    eventually(lambda: node.worker()["state"] == "killed", "the end")
    again = node.start_worker(attempt=2)
    assert again.status_code == 409
    assert "start a new attempt" in again.json()["error"]


def test_a_restarted_agent_adopts_the_workers(node_with: Callable[..., AgentNode], receiver: Receiver) -> None:
    node = node_with().start()
    pids = [node.run_worker(rank, attempt=3) for rank in (0, 1)]
    node.kill()
    os.kill(pids[1], signal.SIGKILL)
    del receiver.samples[:]
    node.start()
    eventually(lambda: node.worker(0).get("state") == "running", "adopted")
    assert node.worker(0)["pid"] == pids[0]
    assert {"state": "killed", "exit_code": -9, "attempt": 3}.items() <= node.worker(1).items()
    assert node.start_worker(0, attempt=2).status_code == 409
    eventually(lambda: receiver.values("everstep_train_steps_total", rank="0"), "steps go on")
    os.kill(pids[0], signal.SIGKILL)
    eventually(lambda: node.worker(0)["exit_code"] == -9, "the end of an adopted worker")
    assert node.stop() == 0
    assert not node.run_dir.exists()


def test_without_an_agent_the_workers_end_after_the_grace_time(node_with: Callable[..., AgentNode]) -> None:
    node = node_with(settings={"orphan_grace_s": 0.5}).start()
    pid = node.run_worker()
    node.kill()
    eventually(lambda: not exists(pid), "the orphan ends")
    eventually(lambda: not node.run_dir.exists(), "shared memory is cleaned")
    assert not exists(pid)


def test_a_dead_warm_parent_takes_its_workers_along_and_comes_back(node_with: Callable[..., AgentNode]) -> None:
    node = node_with().start()
    pid = node.run_worker()
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(parent, signal.SIGKILL)
    eventually(lambda: node.worker()["exit_code"] == -9, "the end is seen")
    assert not exists(pid)
    restarted = node.start_worker(attempt=2)  # waits for the new parent: the node is fine
    assert restarted.status_code == 200, restarted.text


def test_sigterm_ends_everything_and_leaves_nothing(node_with: Callable[..., AgentNode]) -> None:
    node = node_with().start()
    pid = node.run_worker()
    assert node.stop() == 0
    assert not exists(pid)
    assert not node.run_dir.exists()


def test_a_missing_preload_is_one_clear_line(node_with: Callable[..., AgentNode]) -> None:
    node = node_with(job={"preload": ["no_such_module_anywhere"]}).start(ready=False)
    eventually(lambda: any("standby_unavailable" in line for line in node.lines), "the line")
    (line,) = [line for line in node.lines if "standby_unavailable" in line]
    assert "no_such_module_anywhere" in line
    assert "take it out of the job's preload list" in line
    assert "no_such_module_anywhere" in node.status()["jobs"]["demo"]["standby_problem"]
    refused = node.start_worker()
    assert refused.status_code == 503
    assert "no_such_module_anywhere" in refused.json()["error"]
