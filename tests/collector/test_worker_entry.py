"""The exit note of a worker under torchrun, whichever way the program leaves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys
from pathlib import Path
from everstep.collector import worker_entry
worker_entry._note_exit(Path(sys.argv[1]))
{program}
"""


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("os._exit(78)", 78),
        ("worker_entry.finish(worker_entry.exit_status(lambda: sys.exit(3)))", 3),
        ("os.fork() or os._exit(5)\nos.wait()\nos._exit(0)", 0),
    ],
)
def test_the_status_is_noted_by_the_worker_alone(tmp_path: Path, program: str, status: int) -> None:
    note = tmp_path / "rank-0.exit"
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(program=program), str(note)], timeout=30, check=False)
    assert done.returncode == status
    assert note.read_text() == str(status)
