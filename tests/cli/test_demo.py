"""`everstep demo` before anything runs: names, folders, ports, one-line errors; and the files it reads and damages."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from everstep.cli.demo_run import cluster, evidence, layout
from everstep.cli.demo_run.faults import _damage
from everstep.cli.demo_run.follow import marks
from everstep.cli.demo_run.janitor import MARK, marked
from everstep.cli.demo_run.scenario import NODES, DemoFault, chosen
from everstep.cli.demo_run.wire import Peer
from everstep.cli.main import main
from everstep.core import manifest
from everstep.core.errors import EverstepError, ManifestError
from everstep.core.events import Entity, EntityKind, Incident, IncidentState, RootCause
from everstep.core.manifest import Manifest
from everstep.core.settings import load


def test_every_fault_name_and_all_are_accepted() -> None:
    assert chosen("nan_loss") == (DemoFault.NAN_LOSS,)
    assert chosen("all") == tuple(DemoFault)


def test_an_unknown_fault_is_one_line_that_lists_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--fault", "meteor"]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert "unknown fault 'meteor'" in lines[0]
    assert all(fault.value in lines[0] for fault in DemoFault)


def test_an_output_that_is_a_file_is_one_line_that_names_the_mend(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / "taken"
    taken.write_text("")
    assert main(["demo", "--json", "--output", str(taken)]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines[-1].endswith("choose another folder with --output")


def test_too_little_shared_memory_is_told_with_the_mend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "SHM_NEEDED_BYTES", 1 << 60)
    with pytest.raises(EverstepError, match="remount it larger"):
        layout.prepare(tmp_path, "0" * 32)


def test_too_little_disk_is_told_with_the_mend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "OUTPUT_NEEDED_BYTES", 1 << 60)
    with pytest.raises(EverstepError, match="choose another folder with --output"):
        layout.prepare(tmp_path, "0" * 32)


@pytest.mark.integration
def test_a_disk_that_fills_up_while_the_run_is_made_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set(layout.SHM.glob(f"everstep-demo-{os.getpid()}-*"))

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "service.yaml")

    monkeypatch.setattr(cluster, "write_service_config", full)
    assert main(["demo", "--json", "--output", str(tmp_path)]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines[-1].startswith("everstep: cannot write service.yaml (No space left on device); free space")
    assert list(tmp_path.iterdir()) == []
    assert set(layout.SHM.glob(f"everstep-demo-{os.getpid()}-*")) == before


def test_scratch_is_told_to_the_janitor_before_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Path] = []
    monkeypatch.setattr(cluster.Janitor, "remove_later", lambda _, folder: told.append(folder))
    monkeypatch.setattr(layout, "OUTPUT_NEEDED_BYTES", 1 << 60)
    with (
        pytest.raises(EverstepError),
        cluster.running_cluster(tmp_path / "out", lambda _: [], cold=False, keep=False),
    ):
        pass
    assert [folder.parent for folder in told] == [layout.SHM, tmp_path / "out"]


def test_a_warm_parent_that_cannot_import_ends_the_wait_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Peer("node-0", "http://127.0.0.1:1", "token")
    problem = "preload module everstep.trainer.preload failed with ImportError: libcudart.so.12"
    status = {"jobs": {"demo": {"standby_ready": False, "standby_problem": problem, "workers": []}}}
    monkeypatch.setattr(agent, "get", lambda _: status)
    with pytest.raises(EverstepError, match=r"node-0 did not start: .* libcudart.*; run `everstep doctor`"):
        cluster._standby_ready(agent)
    agent.close()


def test_ports_in_use_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(layout, "PORTS", range(port, port + 200))
        assert port not in layout.free_ports(2)


def test_written_configurations_load_and_agree(tmp_path: Path) -> None:
    made = layout.prepare(tmp_path, "1" * 32)
    try:
        layout.write_service_config(made, cold=False)
        job = {"name": "demo", "program": ["-m", "everstep.trainer.worker"]}
        for node in NODES:
            layout.write_agent_config(made, node, [job])
        service = load(made.config("service")).service
        agent = load(made.config("node-1")).agent
        assert [entry.name for entry in service.nodes if entry.spare] == ["node-3"]
        assert service.nodes[1].agent_url == f"http://127.0.0.1:{agent.listen.port}"
        assert agent.service_url == f"http://127.0.0.1:{service.listen.port}"
        assert made.memory.stat().st_mode & 0o777 == 0o700
        assert made.agent_token.stat().st_mode & 0o777 == 0o600
        assert yaml.safe_load(made.config("service").read_text())["service"]["jobs"][0]["world_size"] == 3
    finally:
        made.memory.rmdir()


def test_a_half_written_last_line_is_left_out(tmp_path: Path) -> None:
    line = {"step": 1, "attempt": 1, "batch": 0, "loss": 5.5, "sample_hash": 7, "end": 12.0}
    (tmp_path / evidence.STEPS).write_text(json.dumps(line) + "\n" + '{"step": 2, "att')
    (found,) = evidence.read_steps(tmp_path)
    assert (found.step, found.loss, found.sample_hash) == (1, 5.5, "7")
    assert evidence.read_resumes(tmp_path) == ()


def _copy(folder: Path, step: int, rank: int | None, world: int = 2) -> Path:
    folder.mkdir(parents=True)
    (folder / "shard.bin").write_bytes(bytes(range(200)))
    sums = {"shard.bin": manifest.checksum(folder / "shard.bin")}
    found = Manifest(job="demo", step=step, attempt=1, world_size=world, rank=rank, position={}, layout={}, files=sums)
    manifest.commit(folder, found, durable=False)
    return folder


def test_a_memory_step_counts_once_every_rank_has_a_copy(tmp_path: Path) -> None:
    made = layout.Layout(demo_id="x", root=tmp_path / "root", memory=tmp_path / "shm", service_port=1, agent_ports={})
    own = _copy(made.run_dir("node-0") / "memory/demo/step-7/attempt-1/rank-0", 7, 0)
    assert evidence.committed(made) == []
    buddy = _copy(made.run_dir("node-2") / "memory/demo/step-7/attempt-1/rank-1", 7, 1)
    disk = _copy(made.job_dir("demo") / "checkpoints/step-5-attempt-1", 5, None)
    found = evidence.committed(made)
    assert [(one.step, one.tier) for one in found] == [(5, "disk"), (7, "memory")]
    assert set(found[1].copies) == {own, buddy}
    assert found[0].copies == (disk,)


def test_damage_is_noticed_by_the_checksum(tmp_path: Path) -> None:
    copy = _copy(tmp_path / "copy", 3, None)
    manifest.verify(copy)
    _damage(copy)
    with pytest.raises(ManifestError, match="damaged"):
        manifest.verify(copy)


def test_marks_come_in_the_order_of_time() -> None:
    rank = Entity(kind=EntityKind.RANK, name="demo/1")
    incident = Incident(
        id="i",
        job="demo",
        attempt=1,
        opened=10.5,
        onset=10.0,
        state=IncidentState.RESOLVED,
        causes=(RootCause(entity=rank, fault="F25", confidence=0.8),),
        diagnosed=10.8,
        recovered=13.0,
        closed=14.0,
    )
    seen = marks(incident)
    assert [label for _, label, _ in seen] == ["found", "culprit", "first good step", "resolved"]
    assert "rank demo/1, collective hang (F25), confidence 0.80" in seen[1][2]


@pytest.mark.integration
def test_the_janitor_ends_marked_processes_and_folders_when_its_pipe_closes(tmp_path: Path) -> None:
    mark = f"test-{os.getpid()}-{time.time_ns()}"
    folder = tmp_path / "scratch"
    folder.mkdir()
    sleeper = [sys.executable, "-c", "import time; time.sleep(300)"]
    with (
        subprocess.Popen(sleeper, env={**os.environ, MARK: mark}, start_new_session=True) as marked_child,
        subprocess.Popen(sleeper, env=os.environ, start_new_session=True) as bystander,
    ):
        try:
            janitor = [sys.executable, "-m", "everstep.cli.demo_run.janitor", mark]
            done = subprocess.run(janitor, input=f"{folder}\n".encode(), timeout=30, check=False)
            assert done.returncode == 0
            assert marked_child.wait(timeout=5) == -9
            assert bystander.poll() is None
            assert not folder.exists()
            assert marked({MARK: mark}) == []
        finally:
            bystander.kill()
            marked_child.kill()
