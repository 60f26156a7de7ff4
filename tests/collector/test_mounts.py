from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out

from fake_sysfs import values, write_tree

from everstep.collector.mounts import FreeSpace, LustreMounts, NfsMounts, StorageFolder
from everstep.core.errors import EverstepError

MOVED = "everstep_storage_transferred_bytes_total"
FREE = "everstep_filesystem_available_ratio"
MOUNTSTATS = """device rootfs mounted on / with fstype rootfs
device filer:/export/a mounted on /mnt/check\\040points with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,rsize=1048576
\tage:\t7968
\tbytes:\t10 20 30 40 5000000000 6000000000 70 80
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 832 0 1 0 11 6428 6428 0 12154 0 24 26 5726
device tmpfs mounted on /dev/shm with fstype tmpfs
device filer:/export/a mounted on /again with fstype nfs4 statvers=1.1
\tbytes:\t10 20 30 40 5000000000 6000000000 70 80
device filer:/export/b mounted on /b with fstype nfs statvers=1.1
\tbytes:\tone two
device filer:/export/c mounted on /c with fstype nfs statvers=1.1
\tbytes:\t0 0 0 0 1 2 0 0
"""
LLITE = """snapshot_time             1700000000.123 secs.nsecs
read_bytes                12 samples [bytes] 4096 1048576 8388608 7730941132800
write_bytes               3 samples [bytes] 1 100 250
open                      5 samples [regs]
"""


def test_nfs_bytes_are_those_that_crossed_the_network(tmp_path: Path) -> None:
    write_tree(tmp_path, {"self/mountstats": MOUNTSTATS})
    assert values(NfsMounts(tmp_path).collect()) == {
        (MOVED, "/mnt/check points", "read"): 5e9,
        (MOVED, "/mnt/check points", "write"): 6e9,
        (MOVED, "/c", "read"): 1,
        (MOVED, "/c", "write"): 2,
    }


@pytest.mark.parametrize("content", [b"", b"\x00\xff" * 500, b"device\n\tbytes:\t1\n", b"\tbytes:\t1 1 1 1 1 1 1 1\n"])
def test_rubbish_yields_nothing(tmp_path: Path, content: bytes) -> None:
    write_tree(tmp_path, {"self/mountstats": content, "fs/lustre/llite/s-ffff888812345678/stats": content})
    assert list(NfsMounts(tmp_path).collect()) == []
    assert list(LustreMounts(tmp_path, tmp_path).collect()) == []


@pytest.mark.parametrize("root", ["fs/lustre", "kernel/debug/lustre"])
def test_lustre_clients_of_old_and_new_releases(tmp_path: Path, root: str) -> None:
    write_tree(tmp_path, {f"{root}/llite/scratch-ffff888812345678/stats": LLITE})
    assert values(LustreMounts(tmp_path, tmp_path).collect()) == {
        (MOVED, "scratch", "read"): 8388608,
        (MOVED, "scratch", "write"): 250,
    }


def test_free_space_is_a_share(tmp_path: Path) -> None:
    found = values(FreeSpace(StorageFolder(target="local", path=tmp_path)).collect())
    assert 0 < found[(FREE, "local", "bytes")] <= 1
    assert all(0 <= value <= 1 for value in found.values())


def test_a_folder_that_a_job_has_yet_to_make_is_awaited(tmp_path: Path) -> None:
    assert list(FreeSpace(StorageFolder(target="t", path=tmp_path / "none", required=False)).collect()) == []
    with pytest.raises(EverstepError, match=r"none: No such file or directory; .*agent.probes.storage"):
        list(FreeSpace(StorageFolder(target="t", path=tmp_path / "none")).collect())
