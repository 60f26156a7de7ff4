from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from everstep.collector.cold_end import cold_exit_code
from everstep.collector.launch import cold_launch, warm_launch
from everstep.collector.orders import StartOrder
from everstep.collector.paths import NodePaths, clean_abandoned
from everstep.core.errors import ConfigError, EverstepError
from everstep.core.settings import JobCommand

ORDER = {
    "job": "demo",
    "attempt": 2,
    "rank": 1,
    "local_rank": 0,
    "local_world_size": 1,
    "world_size": 3,
    "node_rank": 1,
    "nnodes": 3,
    "master_addr": "127.0.0.1",
    "master_port": 4000,
    "resume": {"step": 40, "tier": "disk", "attempt": 1},
    "skip_batches": [57, 91],
}
COMMAND = JobCommand(name="demo", program=["-m", "train", "--steps", "5"], environment={"GLOO_SOCKET_IFNAME": "lo"})


def order(**changes: object) -> StartOrder:
    return TypeAdapter(StartOrder).validate_json(json.dumps({**ORDER, **changes}))


def test_a_warm_worker_gets_what_torchrun_would_set() -> None:
    start = warm_launch(order(), COMMAND, NodePaths(Path("/run/e"), Path("/log")), "node-1")
    expected = {
        "RANK": "1",
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "4000",
        "TORCHELASTIC_RUN_ID": "demo",
        "TORCHELASTIC_RESTART_COUNT": "2",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "EVERSTEP_JOB": "demo",
        "EVERSTEP_ATTEMPT": "2",
        "EVERSTEP_NODE": "node-1",
        "EVERSTEP_NODE_DIR": "/run/e",
        "EVERSTEP_RANK_RECORD": "/run/e/records/demo/rank-1.rec",
        "EVERSTEP_MEMORY_DIR": "/run/e/memory/demo",
        "EVERSTEP_SKIP_BATCHES": "57,91",
    }
    assert start.environment.items() >= expected.items()
    assert json.loads(start.environment["EVERSTEP_RESUME"]) == {"step": 40, "tier": "disk", "attempt": 1}
    assert start.argv == ("-m", "train", "--steps", "5")
    assert start.log == Path("/log/demo/attempt-2/rank-1.log")


def test_without_a_point_the_worker_chooses() -> None:
    start = warm_launch(order(resume=None, skip_batches=[]), COMMAND, NodePaths(Path("/r"), Path("/l")), "n")
    assert start.environment["EVERSTEP_RESUME"] == "auto"
    assert start.environment["EVERSTEP_SKIP_BATCHES"] == ""


def test_a_cold_start_is_torchrun_with_static_membership() -> None:
    start = cold_launch(order(cold=True), COMMAND, NodePaths(Path("/r"), Path("/l")), "n")
    assert start.executed
    for option in ("--nnodes=3", "--node-rank=1", "--nproc-per-node=1", "--master-port=4000", "--max-restarts=0"):
        assert option in start.argv
    assert "TORCHELASTIC_USE_AGENT_STORE" not in start.environment


@pytest.mark.parametrize(
    "change",
    [
        {"command": ["rm"]},
        {"rank": "1"},
        {"master_addr": "a b; c"},
        {"master_port": 0},
        {"resume": {"step": 1, "tier": "tape", "attempt": 0}},
        {"resume": {"step": 1, "tier": "disk", "attempt": 0, "more": 1}},
        {"skip_batches": [-1]},
        {"job": ""},
    ],
)
def test_orders_are_strict(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        order(**change)


def test_the_end_of_a_cold_worker(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    said = "worker_0 failed (exitcode: -11) local_rank: 0 (pid: 77) of binary: python"
    assert cold_exit_code(log, 77, "") == -9
    assert cold_exit_code(log, 77, said) == -11
    assert cold_exit_code(log, 78, said, 1) == 1
    log.with_suffix(".exit").write_text("76")
    assert cold_exit_code(log, 77, said, 1) == 76


def test_two_agents_cannot_share_a_run_dir(tmp_path: Path) -> None:
    first, second = (NodePaths(tmp_path / "run", tmp_path / "log") for _ in range(2))
    first.prepare()
    with pytest.raises(EverstepError, match="another agent .* uses agent.run_dir"):
        second.prepare()
    first.release()
    second.prepare()
    second.release()
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot write to agent\.run_dir .*; create it"):
        NodePaths(tmp_path / "file" / "run", tmp_path / "log").prepare()


def test_a_socket_path_that_is_too_long_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"choose a shorter agent\.run_dir"):
        NodePaths(tmp_path / ("x" * 120), tmp_path).socket("standby-demo")


def test_what_a_dead_agent_left_goes_but_a_living_ones_lock_stays(tmp_path: Path) -> None:
    run = tmp_path / "run"
    paths = NodePaths(run, tmp_path / "log")
    paths.prepare()
    for folder in (paths.records("demo"), paths.memory("demo"), paths.memory("other")):
        folder.mkdir(parents=True)
    paths.attempt_file("demo").write_text("3")
    clean_abandoned(run, "demo")
    assert sorted(path.name for path in run.rglob("*")) == ["agent.lock", "memory", "other", "records"]
    paths.memory("other").rmdir()
    paths.release()
    assert not run.exists()
