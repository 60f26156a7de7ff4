"""How a worker under torchrun ended: torchrun is its parent, so the status has to be pieced together."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from everstep.collector.worker_entry import exit_file

_TORCHRUN_SAYS = re.compile(r"exitcode: (-?\d+)\) local_rank: \d+ \(pid: (\d+)\)")


def cold_exit_code(log: Path, pid: int, torchrun_log: str, torchrun_status: int | None = None) -> int:
    """The worker's own note, else what torchrun logged about that pid, else what torchrun itself ended with.

    A worker that left no note did not reach its end: without any other word it died of a SIGKILL.
    """
    try:
        return int(exit_file(log).read_text())
    except (OSError, ValueError):
        pass
    for code, logged_pid in _TORCHRUN_SAYS.findall(torchrun_log):
        if int(logged_pid) == pid:
            return int(code)
    return torchrun_status if torchrun_status is not None else -signal.SIGKILL
