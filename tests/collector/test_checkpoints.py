from __future__ import annotations

from pathlib import Path

from everstep.collector.checkpoints import checkpoint_copies
from everstep.core import manifest
from everstep.core.manifest import Manifest, checksum


def copy_at(directory: Path, *, step: int, attempt: int, rank: int | None) -> None:
    directory.mkdir(parents=True)
    shard = directory / "shard.pt"
    shard.write_bytes(b"weights" * 100)
    manifest.commit(
        directory,
        Manifest(
            job="demo",
            step=step,
            attempt=attempt,
            world_size=2,
            rank=rank,
            position={},
            layout={},
            files={"shard.pt": checksum(shard)},
        ),
        durable=False,
    )


def test_memory_before_disk_newest_first_and_damage_is_named(tmp_path: Path) -> None:
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    copy_at(memory / "step-41" / "attempt-1" / "rank-0", step=41, attempt=1, rank=0)
    copy_at(memory / "step-42" / "attempt-1" / "rank-1", step=42, attempt=1, rank=1)
    copy_at(disk / "step-20-attempt-1", step=20, attempt=1, rank=None)
    copy_at(disk / "step-40-attempt-1", step=40, attempt=1, rank=None)
    (disk / "step-40-attempt-1" / "shard.pt").write_bytes(b"weighty" * 100)
    (disk / "step-60-attempt-1").mkdir()  # not committed: no manifest
    copies = checkpoint_copies("node-1", memory, disk)
    assert [(copy.tier, copy.step, copy.rank, bool(copy.problem)) for copy in copies] == [
        ("memory", 42, 1, False),
        ("memory", 41, 0, False),
        ("disk", 40, None, True),
        ("disk", 20, None, False),
    ]
    assert "shard.pt is damaged" in copies[2].problem
    assert {copy.holder for copy in copies} == {"node-1"}


def test_a_damaged_manifest_is_named_by_its_folder(tmp_path: Path) -> None:
    copy_at(tmp_path / "step-7" / "attempt-3" / "rank-2", step=7, attempt=3, rank=2)
    (tmp_path / "step-7" / "attempt-3" / "rank-2" / "manifest.json").write_text("{")
    (copy,) = checkpoint_copies("node-1", tmp_path, None)
    assert (copy.step, copy.attempt, copy.rank) == (7, 3, 2)
    assert "no usable manifest" in copy.problem


def test_nothing_there(tmp_path: Path) -> None:
    assert checkpoint_copies("node-1", tmp_path / "none", tmp_path / "none") == []
