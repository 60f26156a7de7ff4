from __future__ import annotations

import doctest
import os
from pathlib import Path

from everstep.collector import pseudo_files, slurm_queue
from everstep.collector.pseudo_files import label, names_in, read_int, read_text


def test_doctests() -> None:
    for module in (pseudo_files, slurm_queue):
        failed, tried = doctest.testmod(module)
        assert failed == 0
        assert tried > 0


def test_a_long_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "long").write_text("x" * 200_000)
    assert len(read_text(tmp_path / "long")) == 200_000


def test_what_cannot_be_read_is_empty(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "none", tmp_path / "pipe", "a\0b", tmp_path / ("n" * 300)):
        assert read_text(path) == ""
        assert read_int(path) is None
    assert names_in(tmp_path / "none") == []
    assert names_in("a\0b") == []


def test_names_that_are_not_unicode_stay_apart(tmp_path: Path) -> None:
    for name in (b"\xfe", b"\xff"):
        (tmp_path / os.fsdecode(name)).touch()
    assert [label(name) for name in names_in(tmp_path)] == ["\\xfe", "\\xff"]
