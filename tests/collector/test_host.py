from __future__ import annotations

from pathlib import Path

import pytest

from everstep.collector.host import Disks, Host, Memory, Network
from everstep.core.metrics import METRIC_BY_NAME

MEMINFO = "MemTotal:       16000000 kB\nMemFree:         1000 kB\nMemAvailable:    8000000 kB\n"
PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=250000\n"
NET = (
    "Inter-|   Receive                                                |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs\n"
    "    lo: 999 9 0 0 0 0 0 0 999 9 0 0 0 0 0 0\n"
    "  eth0:1234 5 0 0 0 0 0 0 5678 7 0 0 0 0 0 0\n"
)
DISKSTATS = (
    " 259 0 nvme0n1 100 0 2000 0 50 0 4000 0 0 0 0\n"
    " 259 1 nvme0n1p1 100 0 2000 0 50 0 4000 0 0 0 0\n"
    "   7 0 loop0 1 0 2 0 0 0 0 0 0 0 0\n"
    "   8 1 sda1 1 0 2 0 0 0 0 0 0 0 0\n"
)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    root = tmp_path / "proc"
    (root / "pressure").mkdir(parents=True)
    (root / "net").mkdir()
    (root / "meminfo").write_text(MEMINFO)
    for resource in ("cpu", "io", "memory"):
        (root / "pressure" / resource).write_text(PRESSURE)
    (root / "net" / "dev").write_text(NET)
    (root / "diskstats").write_text(DISKSTATS)
    (root / "vmstat").write_text("nr_free_pages 1\noom_kill 3\n")
    (root / "stat").write_text("cpu 1 2 3\nprocs_running 1\nprocs_blocked 2\n")
    return root


def test_a_whole_host(proc: Path, tmp_path: Path) -> None:
    values = {
        (one.metric, tuple(value for _, value in one.labels)): one.value for one in Host(proc, tmp_path).collect()
    }
    assert values[("everstep_host_memory_available_bytes", ())] == 8000000 * 1024
    assert values[("everstep_pressure_stalled_seconds_total", ("io", "full"))] == 0.25
    assert values[("everstep_pressure_stalled_seconds_total", ("cpu", "some"))] == 1.5
    assert values[("everstep_net_bytes_total", ("eth0", "", "transmit"))] == 5678
    assert values[("everstep_storage_transferred_bytes_total", ("nvme0n1", "write"))] == 4000 * 512
    assert values[("everstep_host_oom_kills_total", ())] == 3
    assert values[("everstep_host_blocked_tasks", ())] == 2


def test_labels_are_those_of_the_metric_table(proc: Path, tmp_path: Path) -> None:
    for one in Host(proc, tmp_path).collect():
        assert tuple(name for name, _ in one.labels) == METRIC_BY_NAME[one.metric].label_names


def test_a_lower_limit_of_the_cgroup_counts(proc: Path, tmp_path: Path) -> None:
    cgroup = tmp_path / "cgroup"
    cgroup.mkdir()
    (cgroup / "memory.max").write_text("4000000000\n")
    (cgroup / "memory.current").write_text("1000000000\n")
    values = {one.metric: one.value for one in Memory(proc, cgroup).collect()}
    assert values["everstep_host_memory_total_bytes"] == 4e9
    assert values["everstep_host_memory_available_bytes"] == 3e9
    (cgroup / "memory.max").write_text("max\n")
    values = {one.metric: one.value for one in Memory(proc, cgroup).collect()}
    assert values["everstep_host_memory_total_bytes"] == 16000000 * 1024


def test_partitions_loops_and_loopback_are_left_out(proc: Path) -> None:
    assert {dict(one.labels)["target"] for one in Disks(proc).collect()} == {"nvme0n1"}
    assert {dict(one.labels)["device"] for one in Network(proc).collect()} == {"eth0"}


def test_what_the_kernel_does_not_have_is_absent(tmp_path: Path) -> None:
    assert list(Host(tmp_path / "none", tmp_path).collect()) == []


@pytest.mark.parametrize("number", ["x", "-1", "nan", "9" * 5000, "\x00", "٣"])
def test_rubbish_in_one_line_leaves_the_others_alone(proc: Path, tmp_path: Path, number: str) -> None:
    (proc / "net" / "dev").write_text(NET + f" eth1: {number} 0 0 0 0 0 0 0 5 0\n eth2: 1\n:::\n")
    (proc / "diskstats").write_text(DISKSTATS + f" 8 0 sda 1 0 {number} 0 0 0 8 0 0\n 8 0\n")
    (proc / "meminfo").write_text(f"MemTotal: {number} kB\n")
    (proc / "vmstat").write_bytes(b"\xff\xfe\x00")
    (proc / "pressure" / "io").write_text(f"some avg10=0 total={number}\nfull total=1000000\n")
    found = {
        (one.metric, *(value for _, value in one.labels)): one.value for one in Host(proc, tmp_path, tmp_path).collect()
    }
    assert found[("everstep_net_bytes_total", "eth0", "", "receive")] == 1234
    assert ("everstep_net_bytes_total", "eth1", "", "receive") not in found
    assert found[("everstep_net_bytes_total", "eth1", "", "transmit")] == 5
    assert ("everstep_storage_transferred_bytes_total", "sda", "read") not in found
    assert found[("everstep_storage_transferred_bytes_total", "sda", "write")] == 8 * 512
    assert ("everstep_host_memory_total_bytes",) not in found
    assert found[("everstep_pressure_stalled_seconds_total", "io", "full")] == 1.0
    assert ("everstep_pressure_stalled_seconds_total", "io", "some") not in found
    assert found[("everstep_host_blocked_tasks",)] == 2


def test_a_device_of_any_name(proc: Path, tmp_path: Path) -> None:
    (proc / "net" / "dev").write_bytes(
        NET.encode() + "  网络\u2028é: 7 0 0 0 0 0 0 0 8 0\n".encode() + b" e\xff: 1 0 0 0 0 0 0 0 2\n"
    )
    found = {dict(one.labels)["device"]: one.value for one in Network(proc, tmp_path).collect()}
    assert found == {"eth0": 5678, "网络\u2028é": 8, "e\\xff": 2}
