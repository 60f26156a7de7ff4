"""Checkpoint commit marks: what is committed verifies, and every kind of damage is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from everstep.core.errors import ManifestError
from everstep.core.manifest import FORMAT, MANIFEST, FileSum, Manifest, checksum, commit, committed, read, verify

EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def _write(directory: Path, *, durable: bool = False, rank: int | None = 1) -> Manifest:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "shard-0.pt").write_bytes(b"weights")
    (directory / "shard-1.pt").write_bytes(b"")
    manifest = Manifest(
        job="demo",
        step=40,
        attempt=2,
        world_size=3,
        rank=rank,
        position={"batch": 40, "epoch": 0},
        layout={"dp": 3},
        files={name: checksum(directory / name) for name in ("shard-0.pt", "shard-1.pt")},
    )
    commit(directory, manifest, durable=durable)
    return manifest


def test_a_checksum_is_sha256_and_size(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    assert checksum(tmp_path / "empty") == FileSum(size=0, sha256=EMPTY_SHA256)


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("rank", [None, 1])
def test_what_is_committed_is_read_and_verified(tmp_path: Path, durable: bool, rank: int | None) -> None:
    manifest = _write(tmp_path, durable=durable, rank=rank)
    assert read(tmp_path) == verify(tmp_path) == manifest
    assert sorted(path.name for path in tmp_path.iterdir()) == [MANIFEST, "shard-0.pt", "shard-1.pt"]


def test_a_second_commit_replaces_the_first(tmp_path: Path) -> None:
    _write(tmp_path, rank=1)
    assert _write(tmp_path, rank=2) == verify(tmp_path)


def test_a_flipped_bit_is_named(tmp_path: Path) -> None:
    _write(tmp_path)
    (tmp_path / "shard-0.pt").write_bytes(b"weightt")
    with pytest.raises(ManifestError, match=r"shard-0\.pt is damaged \(checksum differs\); use another copy"):
        verify(tmp_path)


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    _write(tmp_path)
    (tmp_path / "shard-0.pt").write_bytes(b"weig")
    with pytest.raises(ManifestError, match=r"shard-0\.pt is damaged"):
        verify(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    _write(tmp_path)
    (tmp_path / "shard-1.pt").unlink()
    with pytest.raises(ManifestError, match=r"shard-1\.pt cannot be read \(No such file or directory\)"):
        verify(tmp_path)


def _damaged(**changes: Any) -> str:
    good: dict[str, Any] = {
        "job": "demo", "step": 40, "attempt": 2, "world_size": 3, "rank": None, "position": {}, "layout": {},
        "files": {"a": {"size": 0, "sha256": EMPTY_SHA256}}, "format": FORMAT,
    }  # fmt: skip
    return json.dumps({key: value for key, value in (good | changes).items() if value != "absent"})


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        "\x00\x01\x02",
        "[" * 100_000,
        _damaged(step="forty"),
        _damaged(job=7),
        _damaged(rank="first"),
        _damaged(step="absent"),
        _damaged(files="absent"),
        _damaged(files=[1]),
        _damaged(files={"a": {"size": 1}}),
        _damaged(files={"../../etc/passwd": {"size": 1, "sha256": ""}}),
        _damaged(files={"/etc/passwd": {"size": 1, "sha256": ""}}),
        _damaged(files={"a\0b": {"size": 1, "sha256": ""}}),
        _damaged(surprise=1),
    ],
)
def test_garbage_is_no_manifest_and_the_mend_is_an_older_checkpoint(tmp_path: Path, content: str) -> None:
    (tmp_path / MANIFEST).write_text(content)
    with pytest.raises(ManifestError, match=r"holds no usable manifest .*; use an older checkpoint") as caught:
        verify(tmp_path)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text_and_a_folder_in_its_place_are_no_manifest(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(ManifestError, match="no usable manifest"):
        read(tmp_path)
    (tmp_path / MANIFEST).unlink()
    (tmp_path / MANIFEST).mkdir()
    with pytest.raises(ManifestError, match="IsADirectoryError"):
        read(tmp_path)


def test_a_manifest_without_files_is_none(tmp_path: Path) -> None:
    commit(tmp_path, replace(_write(tmp_path), files={}), durable=False)
    with pytest.raises(ManifestError, match="use an older checkpoint"):
        verify(tmp_path)


def test_no_manifest_means_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "shard-0.pt").write_bytes(b"weights")
    with pytest.raises(ManifestError, match="FileNotFoundError"):
        read(tmp_path)


def test_a_newer_format_names_the_version_to_read_it_with(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(_damaged(format=FORMAT + 1))
    with pytest.raises(ManifestError, match=f"has format {FORMAT + 1}; read it with a version that writes {FORMAT}"):
        read(tmp_path)


def test_committed_finds_every_tier_and_leaves_out_what_is_hidden_or_unfinished(tmp_path: Path) -> None:
    disk = tmp_path / "step-40-attempt-2"
    memory = tmp_path / "step-41" / "attempt-2" / "rank-0"
    for directory in (disk, memory, tmp_path / ".step-42-attempt-2"):
        _write(directory)
    (tmp_path / "step-43-attempt-2").mkdir()
    assert set(committed(tmp_path)) == {disk, memory}
    assert list(committed(tmp_path / "nowhere")) == []
