"""The real node_exporter as referee: the same files, the same values, by the mapping table of core."""

from __future__ import annotations

import math
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

sys.path.insert(0, str(Path(__file__).parents[1] / "collector"))  # --import-mode=importlib leaves it out
from fake_sysfs import COUNTERS, rdma_device, write_tree

from everstep.collector.clock_offset import ClockOffset
from everstep.collector.host import Host
from everstep.collector.infiniband import InfiniBand
from everstep.collector.mounts import NfsMounts
from everstep.collector.samples import Sample
from everstep.core.metrics.foreign import NODE_EXPORTER

pytestmark = pytest.mark.integration

BINARY = "prometheus-node-exporter"
START_TIMEOUT_S = 20.0
Key = tuple[str, frozenset[tuple[str, str]]]
MOUNTSTATS = """device filer:/export/a mounted on /mnt/a with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,acregmin=3,hard,proto=tcp,timeo=600,clientaddr=192.0.2.5
\tage:\t7968
\tcaps:\tcaps=0x3ffdf,wtmult=512,dtsize=32768,bsize=0,namlen=255
\tnfsv4:\tbm0=0xfdffafff,bm1=0xf9be3e,bm2=0x0,acl=0x0,pnfs=not configured
\tsec:\tflavor=1,pseudoflavor=1
\tevents:\t52 226 0 0 1 13 398 0 0 331 0 47 0 0 77 0 0 77 0 0 0 0 0 0 0 0 0
\tbytes:\t10 20 30 40 5000000000 6000000000 70 80
\tRPC iostats version: 1.0  p/v: 100003/4 (nfs)
\txprt:\ttcp 832 0 1 0 11 6428 6428 0 12154 0 24 26 5726
\tper-op statistics
\t        NULL: 0 0 0 0 0 0 0 0
"""

MOUNTINFO = "41 26 0:38 / /mnt/a rw,relatime shared:1 - nfs4 filer:/export/a rw,vers=4.2,addr=192.0.2.1\n"
SINCE_A_LATER_RELEASE = {"out_of_sequence", "ack_timeout"}
"""Kinds that node_exporter 1.5 of Debian 12 does not read; they are compared where the installed release does."""


@contextmanager
def _node_exporter(*options: str, log: Path) -> Iterator[str]:
    """Its exposition. Skips loudly where the binary is missing."""
    path = shutil.which(BINARY)
    if path is None:
        pytest.skip(f"NODE METRICS NOT COMPARED: {BINARY} is missing; apt-get install {BINARY}")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    command = [path, "--collector.disable-defaults", f"--web.listen-address={address}", *options]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield _metrics(f"http://{address}/metrics", log)
    finally:
        process.kill()
        process.wait(timeout=10)


def _metrics(url: str, log: Path) -> str:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            return httpx.get(url, timeout=5).raise_for_status().text
        except httpx.HTTPError:
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.05)


def _mapped(exposition: str) -> dict[Key, float]:
    """Their series as ours: the rows of the mapping table that need no second series."""
    found: dict[Key, float] = {}
    for family in text_string_to_metric_families(exposition):
        for theirs in family.samples:
            for row in NODE_EXPORTER:
                if row.theirs == theirs.name and not row.divided_by and not row.plus:
                    renamed = dict(row.renamed)
                    labels = {renamed.get(name, name): value for name, value in theirs.labels.items()}
                    found[row.ours, frozenset((labels | dict(row.labels)).items())] = theirs.value * row.factor
    return found


def _ours(samples: Iterable[Sample]) -> dict[Key, float]:
    return {(one.metric, frozenset((name, value) for name, value in one.labels if value)): one.value for one in samples}


@pytest.mark.parametrize(
    "devices",
    [
        (rdma_device("mlx5_0"), rdma_device("mlx5_1", rate="100 Gb/sec (4X EDR)")),
        (rdma_device("mlx5_0", state="1: DOWN", rate="2.5 Gb/sec (1X SDR)"),),
        (rdma_device("mlx4_0", counters={**COUNTERS, "port_xmit_data": str(2**60)}, hw_counters={}),),
        (rdma_device("mlx5_0", counters={**COUNTERS, "symbol_error": "N/A (no PMA)"}),),
    ],
    ids=["two ports", "down", "a full counter", "not supported"],
)
def test_the_same_tree_gives_the_same_values(devices: Sequence[dict[str, str | bytes]], tmp_path: Path) -> None:
    root = tmp_path / "sys"
    for device in devices:
        write_tree(root, device)
    with _node_exporter("--collector.infiniband", f"--path.sysfs={root}", log=tmp_path / "log") as exposition:
        theirs = _mapped(exposition)
    assert len(theirs) >= 7
    told = {dict(labels).get("kind", "") for _, labels in theirs}
    ours = _ours(InfiniBand(root).collect())
    assert {
        key: value for key, value in ours.items() if dict(key[1]).get("kind", "") not in SINCE_A_LATER_RELEASE - told
    } == theirs


def test_nfs_bytes(tmp_path: Path) -> None:
    write_tree(tmp_path, {"123/mountstats": MOUNTSTATS, "123/mountinfo": MOUNTINFO})
    (tmp_path / "self").symlink_to("123")
    with _node_exporter("--collector.mountstats", f"--path.procfs={tmp_path}", log=tmp_path / "log") as exposition:
        theirs = {
            one.name: one.value
            for family in text_string_to_metric_families(exposition)
            for one in family.samples
            if one.name.startswith("node_mountstats_nfs_total_")
        }
    assert {dict(one.labels)["direction"]: one.value for one in NfsMounts(tmp_path).collect()} == {
        "read": theirs["node_mountstats_nfs_total_read_bytes_total"],
        "write": theirs["node_mountstats_nfs_total_write_bytes_total"],
    }


def test_this_host_between_two_readings_of_ours(tmp_path: Path) -> None:
    """Counters only rise and the memory's size stands still, so the referee's value lies between ours."""
    collectors = ("netdev", "meminfo", "vmstat", "pressure", "diskstats")
    options = [f"--collector.{name}" for name in collectors]
    host = Host(cgroup=tmp_path)  # node_exporter looks at the whole machine, whatever the control group
    before = _ours(host.collect())
    with _node_exporter(*options, log=tmp_path / "log") as exposition:
        theirs = _mapped(exposition)
    after = _ours(host.collect())
    counted = {key for key in before if key[0].endswith("_total") or key[0] == "everstep_host_memory_total_bytes"}
    compared = {key for key in counted if key in theirs}
    assert {key[0] for key in compared} >= {
        "everstep_host_memory_total_bytes",
        "everstep_net_bytes_total",
        "everstep_storage_transferred_bytes_total",
    }
    for key in compared:
        assert before[key] <= theirs[key] + 1e-6, key
        assert theirs[key] <= after[key] + 1e-6, key


def test_the_clock_of_this_host(tmp_path: Path) -> None:
    ours = list(ClockOffset().collect())
    with _node_exporter("--collector.timex", log=tmp_path / "log") as exposition:
        status = {
            one.name: one.value for family in text_string_to_metric_families(exposition) for one in family.samples
        }
    if not ours:
        assert int(status["node_timex_status"]) & 0x40  # STA_UNSYNC
        return
    assert math.isclose(ours[0].value, status["node_timex_offset_seconds"], abs_tol=0.01)
