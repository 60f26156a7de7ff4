"""The demo's last witness: a child that outlives it and removes what it left, in whatever way it died.

Holds the read end of a pipe as standard input. End of file means that the demo is gone (returned, interrupted, crashed,
killed -9): every process whose environment carries the demo's mark is killed, then the registered folders are removed.
Killing goes by the mark and not by process group, because agents, warm parents and workers lead sessions of their own.
Standard library only, so that it is up before anything else.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

MARK = "EVERSTEP_DEMO_ID"
NODE_MARK = "EVERSTEP_DEMO_NODE"
KILL_DEADLINE_S = 10.0
ROUND_S = 0.05


def marked(variables: dict[str, str]) -> list[int]:
    """Living processes, without this one, whose start environment holds all these variables."""
    wanted = [f"{name}={value}".encode() for name, value in variables.items()]
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = Path(entry.path, "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # gone, or another user's
        if all(pair in environment for pair in wanted):
            found.append(int(entry.name))
    return found


def kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def end_all(variables: dict[str, str], *, timeout_s: float) -> list[int]:
    """Kill until no marked process is left; returns those still there at the deadline (zombies count as gone)."""
    deadline = time.monotonic() + timeout_s
    while True:
        left = marked(variables)
        if not left or time.monotonic() > deadline:
            return left
        kill(left)
        time.sleep(ROUND_S)


def main() -> int:
    mark = sys.argv[1]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    folders = [Path(line.rstrip("\n")) for line in sys.stdin]
    left = end_all({MARK: mark}, timeout_s=KILL_DEADLINE_S)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
