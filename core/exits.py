"""Exit codes by which a training worker says why it ended; the agent turns them into `everstep_worker_exit_reason`.

The worker's last line on standard error says the same in words: `everstep worker: exit <code> reason=<reason>: <why>`.
Standard library only.
"""

from __future__ import annotations

from enum import IntEnum


class WorkerExit(IntEnum):
    """Codes above those that the interpreter and the shell use themselves (sysexits range)."""

    SUCCESS = 0
    EXCEPTION = 1
    USAGE = 2
    OUT_OF_MEMORY = 73
    DISK_FULL = 74
    CHECKPOINT = 75
    FENCED = 76
    NONFINITE = 77
    PEER_LOST = 78


_REASONS = {
    WorkerExit.USAGE: "exception",
}


def exit_reason(code: int) -> str:
    """The reason for a process's exit status; negative codes are signals.

    >>> exit_reason(78), exit_reason(-9), exit_reason(1), exit_reason(42)
    ('peer_lost', 'signal', 'exception', 'exception')
    """
    if code < 0:
        return "signal"
    try:
        known = WorkerExit(code)
    except ValueError:
        return "exception"
    return _REASONS.get(known, known.name.lower())
