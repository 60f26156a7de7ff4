from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch

from everstep.core import manifest
from everstep.core.errors import ManifestError
from everstep.core.manifest import Manifest
from everstep.trainer.checkpoint.fence import Fence, FencedError
from everstep.trainer.checkpoint.memory import MemoryRoot, MemoryTier
from everstep.trainer.checkpoint.resume import Place, held_shards


def _tier(root: MemoryRoot, attempt: int = 1) -> MemoryTier:
    return MemoryTier(root, rank=0, prunes=True, keep=2, fence=Fence(root.path, attempt), group=None)


def _manifest(step: int, attempt: int = 1) -> Manifest:
    return Manifest(
        job="demo", step=step, attempt=attempt, world_size=1, rank=0, position={}, layout={"dp": 1}, files={}
    )


def _place(root: MemoryRoot) -> Place:
    return Place(job="demo", rank=0, world_size=1, local_rank=0, attempt=2, memory=root, directory=root.path)


def _steps(root: MemoryRoot) -> list[tuple[int, int]]:
    return sorted((attempt, step) for attempt, step, _ in root.snapshots())


def test_the_newest_two_snapshots_are_kept_and_verify(tmp_path: Path) -> None:
    root = MemoryRoot(path=tmp_path)
    for step in (1, 2, 3):
        _tier(root).save(torch.full((10,), step, dtype=torch.uint8), _manifest(step))
    assert _steps(root) == [(1, 2), (1, 3)]
    folder = root.shard(step=3, attempt=1, rank=0)
    assert manifest.verify(folder).step == 3
    assert (folder / "shard.bin").read_bytes() == bytes([3]) * 10
    assert [(held.step, held.problem) for held in held_shards(_place(root)) if held.step == 3] == [(3, "")]


def test_what_an_older_attempt_wrote_beyond_the_resume_point_is_dropped(tmp_path: Path) -> None:
    root = MemoryRoot(path=tmp_path)
    for step, attempt in ((5, 1), (6, 1), (6, 2)):
        root.shard(step=step, attempt=attempt, rank=0).mkdir(parents=True)
    root.forget(before_attempt=2, beyond_step=5)
    assert _steps(root) == [(1, 5), (2, 6)]


def test_a_damaged_shard_is_reported_with_its_problem(tmp_path: Path) -> None:
    root = MemoryRoot(path=tmp_path)
    _tier(root).save(torch.zeros(10, dtype=torch.uint8), _manifest(4))
    (root.shard(step=4, attempt=1, rank=0) / "shard.bin").write_bytes(b"1" * 10)
    (held,) = held_shards(_place(root))
    assert "is damaged (checksum differs)" in held.problem
    with pytest.raises(ManifestError):
        manifest.verify(root.shard(step=4, attempt=1, rank=0))


def test_a_copy_that_stands_in_the_wrong_place_is_no_copy(tmp_path: Path) -> None:
    root = MemoryRoot(path=tmp_path)
    _tier(root).save(torch.zeros(10, dtype=torch.uint8), _manifest(4))
    root.shard(step=4, attempt=1, rank=0).rename(root.shard(step=4, attempt=1, rank=1))
    (held,) = held_shards(_place(root))
    assert "manifest of another copy" in held.problem


def test_a_fenced_attempt_commits_nothing(tmp_path: Path) -> None:
    root = MemoryRoot(path=tmp_path)
    Fence(tmp_path, 2).start()
    with pytest.raises(FencedError):
        _tier(root, attempt=1).save(torch.zeros(10, dtype=torch.uint8), _manifest(4))
    assert _steps(root) == []


def test_a_node_without_room_keeps_what_it_has_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = MemoryRoot(path=tmp_path)
    shard = torch.zeros(10, dtype=torch.uint8)
    for step in (1, 2):
        _tier(root).save(shard, _manifest(step))

    def full(path: Path, data: memoryview) -> None:
        path.write_bytes(bytes(data[:4]))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("everstep.trainer.checkpoint.memory.write_bytes", full)
        for step in (3, 4, 5):
            with pytest.raises(OSError, match="No space left"):
                _tier(root).save(shard, _manifest(step))
    assert _steps(root) == [(1, 1), (1, 2)]
    _tier(root).save(shard, _manifest(6))
    assert _steps(root) == [(1, 2), (1, 6)]
