"""Whose end nobody tells: a worker that dies a moment after its warm parent."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep.collector.ending import Ender
from everstep.collector.fence import Fence
from everstep.collector.node_state import NodeState
from everstep.collector.paths import NodePaths
from everstep.collector.process_state import read_process
from everstep.collector.records import RecordWatcher
from everstep.collector.standby import StandbyConfig
from everstep.collector.standby_link import Child, StandbyLink
from everstep.collector.watching import Watch
from everstep.collector.workers import Worker, WorkerTable
from everstep.core.clock import SystemClock
from everstep.core.settings import AgentSettings

LAUNCHER = "standby-demo"


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield child
    child.kill()
    child.wait(timeout=10)


@pytest.fixture
def worker(tmp_path: Path, process: subprocess.Popen[bytes]) -> Worker:
    reading = read_process(process.pid)
    assert reading is not None
    return Worker(
        job="demo",
        attempt=1,
        rank=0,
        local_rank=0,
        pid=process.pid,
        started_ticks=reading.started_ticks,
        log=tmp_path / "rank-0.log",
        launcher=LAUNCHER,
    )


@pytest.fixture
def watch(tmp_path: Path, worker: Worker) -> Watch:
    paths = NodePaths(tmp_path / "run", tmp_path / "log")
    fence = Fence(paths.attempt_file)
    table = WorkerTable("node-0", fence, SystemClock())
    table.add(worker)
    state = NodeState(
        settings=AgentSettings(),
        paths=paths,
        fence=fence,
        table=table,
        records=RecordWatcher(paths.run_dir / "records", table.accepts_record),
        wake=lambda: None,
    )
    return Watch(state, Ender(state))


def _link(tmp_path: Path, watch: Watch, name: str = LAUNCHER) -> StandbyLink:
    config = StandbyConfig(
        job="demo", preload=(), orphan_grace_s=1.0, socket=str(tmp_path / "s"), run_dir=str(tmp_path)
    )
    return StandbyLink(name, config, tmp_path / "standby.log", watch)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(timeout=10)


def test_a_worker_that_dies_after_its_parents_socket_has_ended(
    tmp_path: Path, watch: Watch, worker: Worker, process: subprocess.Popen[bytes]
) -> None:
    watch.parent_lost(_link(tmp_path, watch))
    watch.poll()
    assert worker.alive
    _end(process)
    watch.poll()
    assert worker.exit_code == -signal.SIGKILL


def test_the_status_of_a_worker_with_a_living_parent_is_the_parents_to_tell(
    tmp_path: Path, watch: Watch, worker: Worker, process: subprocess.Popen[bytes]
) -> None:
    watch.parent_lost(_link(tmp_path, watch, "standby-other"))
    _end(process)
    watch.poll()
    assert worker.alive


@pytest.mark.parametrize("status", [None, 3])
def test_a_parent_that_was_only_out_of_reach_tells_the_status(
    tmp_path: Path, watch: Watch, worker: Worker, process: subprocess.Popen[bytes], status: int | None
) -> None:
    watch.parent_lost(_link(tmp_path, watch))
    tag = {"kind": "worker", "job": "demo", "attempt": 1, "rank": 0, "local_rank": 0, "launcher": LAUNCHER}
    watch.adopted(Child(pid=worker.pid, tag={**tag, "log": str(worker.log)}, status=status))
    _end(process)
    watch.poll()
    assert worker.exit_code == status
