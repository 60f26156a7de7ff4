from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import pytest

from everstep.trainer.data.shard import Shard
from everstep.trainer.data.spill import SpillFolder

ROOM = 3 * 1020 + 100


def _shard(number: int, version: str = "1") -> Shard:
    return Shard(name=f"shard-{number}", size=1000, version=version)


def _content(number: int) -> bytes:
    return bytes([number]) * 1000


def _filled(folder: Path, count: int) -> SpillFolder:
    spill = SpillFolder(folder, max_bytes=ROOM)
    for number in range(count):
        assert spill.put(_shard(number), _content(number))
    return spill


def _files(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_what_was_put_comes_back(tmp_path: Path) -> None:
    spill = _filled(tmp_path, 2)
    assert spill.get(_shard(1)) == _content(1)
    assert spill.get(_shard(7)) is None


def test_the_bound_holds_on_disk_and_the_least_recently_used_leaves(tmp_path: Path) -> None:
    spill = _filled(tmp_path, 3)
    spill.get(_shard(0))
    spill.put(_shard(3), _content(3))
    assert [spill.holds(_shard(number)) for number in range(4)] == [True, False, True, True]
    assert _files(tmp_path) == spill.num_bytes <= ROOM


def test_a_shard_larger_than_the_bound_pushes_nothing_out(tmp_path: Path) -> None:
    spill = _filled(tmp_path, 3)
    assert not spill.put(Shard(name="large", size=ROOM), bytes(ROOM))
    assert all(spill.holds(_shard(number)) for number in range(3))


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone", "empty"])
def test_a_damaged_file_is_a_miss_and_is_deleted(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    spill = _filled(tmp_path, 1)
    (path,) = tmp_path.iterdir()
    raw = bytearray(path.read_bytes())
    raw[500] ^= 1
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes({"flipped": bytes(raw), "cut": bytes(raw[:300]), "empty": b""}[damage])
    assert spill.get(_shard(0)) is None
    assert not spill.holds(_shard(0))
    assert (list(tmp_path.iterdir()), spill.num_bytes, spill.num_damaged) == ([], 0, 1)
    assert "spilled shard shard-0 is not usable" in caplog.text


def test_the_next_process_finds_what_the_last_one_left(tmp_path: Path) -> None:
    _filled(tmp_path, 3)
    (tmp_path / "torn.shard.part").write_bytes(b"half")
    again = SpillFolder(tmp_path, max_bytes=2 * 1020 + 50)
    assert again.num_bytes == _files(tmp_path) == 2 * 1020
    assert again.get(_shard(2)) == _content(2)
    assert again.get(_shard(2, version="2")) is None


def test_a_full_disk_is_said_once_and_what_is_there_stays_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spill = _filled(tmp_path, 1)
    real = Path.open

    def full(path: Path, mode: str = "r", *more: Any) -> Any:
        if "w" in mode:
            real(path, "wb").close()
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, mode, *more)

    monkeypatch.setattr(Path, "open", full)
    with caplog.at_level(logging.WARNING):
        assert [spill.put(_shard(number), _content(number)) for number in (1, 2)] == [False, False]
    assert caplog.text.count("No space left on device") == 1
    assert "goes on in memory alone" in caplog.text
    assert spill.get(_shard(0)) == _content(0)
    assert [path.suffix for path in tmp_path.iterdir()] == [".shard"]


def test_a_folder_that_cannot_be_made_is_a_full_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    spill = SpillFolder(tmp_path / "file" / "spill", max_bytes=ROOM)
    assert not spill.put(_shard(0), _content(0))
    assert caplog.text.count("cannot spill shards") == 1
