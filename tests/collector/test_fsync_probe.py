from __future__ import annotations

import errno
import os
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out

from fake_sysfs import values

from everstep.collector import fsync_probe
from everstep.collector.fsync_probe import FsyncProbe
from everstep.collector.mounts import StorageFolder
from everstep.collector.storage_latency import METRIC, OPERATIONS, StorageLatency
from everstep.core.errors import EverstepError

TMPFS = Path("/dev/shm")  # noqa: S108 - one of the two kinds of file system that are tried


@pytest.fixture
def latency() -> StorageLatency:
    return StorageLatency("t", 10.0)


def _probe(folder: Path, latency: StorageLatency, node: str = "node-0", required: bool = True) -> FsyncProbe:
    return FsyncProbe(StorageFolder(target="t", path=folder, required=required), node, latency)


def _counts(latency: StorageLatency) -> dict[str, float]:
    found = values(latency.collect())
    return {one: found[(f"{METRIC}_count", "t", one)] for one in OPERATIONS}


@pytest.mark.parametrize("folder", ["disk", "memory"])
def test_a_probe_measures_all_three_and_leaves_nothing(folder: str, tmp_path: Path, latency: StorageLatency) -> None:
    if folder == "memory" and not os.access(TMPFS, os.W_OK):
        pytest.skip(f"no writable {TMPFS}: the probe on tmpfs is not tested")
    place = tmp_path if folder == "disk" else TMPFS
    probe = _probe(place, latency, node=f"test-{os.getpid()}")
    list(probe.collect())
    list(probe.collect())
    assert _counts(latency) == {"read": 2, "write": 2, "fsync": 2}
    assert list(place.glob(f".everstep-probe.test-{os.getpid()}*")) == []


def test_what_a_killed_agent_left_is_removed_and_what_others_use_is_not(
    tmp_path: Path, latency: StorageLatency
) -> None:
    (tmp_path / ".everstep-probe.node-0").write_text("left")
    (tmp_path / ".everstep-probe.node-0-b").write_text("of another node")
    list(_probe(tmp_path, latency).collect())
    assert [path.name for path in tmp_path.iterdir()] == [".everstep-probe.node-0-b"]


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path, latency: StorageLatency) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / ".everstep-probe.node-0").symlink_to(precious)
    list(_probe(tmp_path, latency).collect())
    assert precious.read_text() == "kept"
    assert _counts(latency)["fsync"] == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_full_or_read_only_disk_is_one_line_and_leaves_nothing(
    code: int, tmp_path: Path, latency: StorageLatency, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    probe = _probe(tmp_path, latency)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        with pytest.raises(EverstepError) as caught:
            list(probe.collect())
    assert str(caught.value).startswith(f"{tmp_path}: {os.strerror(code)}; ")
    assert _counts(latency) == {"read": 0, "write": 0, "fsync": 0}
    assert list(tmp_path.iterdir()) == []
    list(probe.collect())
    assert _counts(latency) == {"read": 1, "write": 1, "fsync": 1}


def test_storage_that_reads_back_something_else(
    tmp_path: Path, latency: StorageLatency, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsync_probe, "_read_past_the_cache", lambda _: b"\0" * 4096)
    with pytest.raises(EverstepError, match="does not read back what was written"):
        list(_probe(tmp_path, latency).collect())


def test_without_direct_reads_the_cache_is_told_to_forget(
    tmp_path: Path, latency: StorageLatency, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten = []
    real_open, real_advise = os.open, os.posix_fadvise

    def no_direct(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real_open(path, flags, mode)

    def advise(descriptor: int, start: int, length: int, advice: int) -> None:
        forgotten.append(advice)
        real_advise(descriptor, start, length, advice)

    monkeypatch.setattr(os, "open", no_direct)
    monkeypatch.setattr(os, "posix_fadvise", advise)
    list(_probe(tmp_path, latency).collect())
    assert forgotten == [os.POSIX_FADV_DONTNEED]
    assert _counts(latency)["read"] == 1


@pytest.mark.parametrize(("call", "operation"), [("fsync", "fsync"), ("open", "write"), ("unlink", "write")])
def test_a_hang_shows_while_it_lasts(
    call: str, operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, released = threading.Event(), threading.Event()
    real = getattr(os, call)

    def hang(*given: object) -> object:
        reached.set()
        released.wait(30)
        return real(*given)

    monkeypatch.setattr(os, call, hang)
    latency = StorageLatency("t", 0.0)
    thread = threading.Thread(target=lambda: list(_probe(tmp_path, latency).collect()))
    thread.start()
    assert reached.wait(30)
    found = values(latency.collect())
    released.set()
    thread.join(30)
    assert found[(f"{METRIC}_bucket", "t", operation, "30.0")] == 0
    assert found[(f"{METRIC}_bucket", "t", operation, "+Inf")] == 1


def test_a_folder_that_a_job_has_yet_to_make_is_awaited(tmp_path: Path, latency: StorageLatency) -> None:
    folder = tmp_path / "run"
    probe = _probe(folder, latency, required=False)
    list(probe.collect())
    assert _counts(latency)["fsync"] == 0
    folder.mkdir()
    list(probe.collect())
    assert _counts(latency)["fsync"] == 1
    with pytest.raises(EverstepError, match="No such file or directory"):
        list(_probe(tmp_path / "none", latency).collect())
