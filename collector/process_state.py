"""What the kernel says about a process, and signals that cannot reach a stranger who got the same pid."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

PROC = Path("/proc")
_STATE_FIELD, _START_FIELD = 0, 19  # proc(5): state is field 3, starttime field 22; counted after the command name


class ProcessState(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"
    TRACED = "traced"
    BLOCKED = "blocked"
    ENDED = "ended"


_BY_LETTER = {
    "T": ProcessState.STOPPED,
    "t": ProcessState.TRACED,
    "D": ProcessState.BLOCKED,
    "Z": ProcessState.ENDED,
    "X": ProcessState.ENDED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReading:
    """`started_ticks` is the start time in clock ticks since boot: with the pid it names one process for ever."""

    state: ProcessState
    started_ticks: int


def read_process(pid: int, *, proc: Path = PROC) -> ProcessReading | None:
    """None when there is no such process."""
    try:
        with open(f"{proc}/{pid}/stat", "rb") as file:  # noqa: PTH123 - polled ten times a second; Path costs more
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    letter = fields[_STATE_FIELD].decode()
    return ProcessReading(state=_BY_LETTER.get(letter, ProcessState.RUNNING), started_ticks=int(fields[_START_FIELD]))


def same_process(pid: int, started_ticks: int) -> bool:
    """Whether the pid still belongs to that process and it has not ended."""
    reading = read_process(pid)
    return reading is not None and reading.started_ticks == started_ticks and reading.state is not ProcessState.ENDED


def send_signal(pid: int, started_ticks: int, number: signal.Signals) -> bool:
    """Signal exactly that process; False when it is gone. Raises `PermissionError` for someone else's process."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not same_process(pid, started_ticks):
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def kill_group(group: int) -> bool:
    """SIGKILL a worker's whole session group; False when nobody is left in it."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
