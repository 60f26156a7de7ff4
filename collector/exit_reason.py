"""Why a worker ended: from its status and the last lines of its log.

The text patterns are messages of gloo, NCCL, torch's stores, CUDA and the kernel as they stand in real logs; the tests
hold samples. A process that died of a signal has no last words worth reading, except after an abort of its own.
"""

from __future__ import annotations

import os
import re
import signal
from enum import StrEnum
from pathlib import Path

from everstep.core.exits import WorkerExit, exit_reason
from everstep.core.metrics import METRIC_BY_NAME

TAIL_BYTES = 16 * 1024


class ExitReason(StrEnum):
    SUCCESS = "success"
    SIGNAL = "signal"
    STOPPED_BY_AGENT = "stopped_by_agent"
    PEER_LOST = "peer_lost"
    OUT_OF_MEMORY = "out_of_memory"
    DISK_FULL = "disk_full"
    CHECKPOINT = "checkpoint"
    FENCED = "fenced"
    NONFINITE = "nonfinite"
    EXCEPTION = "exception"


REASONS = METRIC_BY_NAME["everstep_worker_exit_reason"].labels[-1].values

_SAID_BY_STATUS = frozenset(WorkerExit) - {WorkerExit.EXCEPTION, WorkerExit.USAGE}
"""Statuses that leave nothing to read from the log; any program may end with the others for any reason."""

_OUT_OF_MEMORY = re.compile(
    r"^\s*MemoryError\b|OutOfMemoryError|CUDA out of memory|can't allocate memory|Cannot allocate memory"
    r"|CUDNN_STATUS_ALLOC_FAILED|std::bad_alloc",
    re.MULTILINE,
)
_DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_PEER_LOST = re.compile(
    r"Connection closed by peer|Connection reset by peer|Broken pipe|Socket Timeout"
    r"|Timed out (waiting|after)|remote process exited|ncclRemoteError|NCCL communicator was aborted"
    r"|Watchdog caught collective operation timeout|Failed to recv, got 0 bytes"
    r"|socket has already been closed|connection was closed by remote peer|connectFullMesh failed"
    r"|wait timeout after|Application timeout caused pair closure|DistStoreError|DistNetworkError",
    re.IGNORECASE,
)
_RANK_PREFIX = re.compile(r"^\[rank\d+\]:[ ]?", re.MULTILINE)  # torch's excepthook sets it before every line
_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


def classify(exit_code: int, tail: str, *, stopped_by_agent: bool = False) -> ExitReason:
    """`exit_code` is negative for a signal; `stopped_by_agent` says that this agent sent the ending signal.

    >>> classify(1, "RuntimeError: [/gloo/tcp/pair.cc:538] Connection closed by peer [127.0.0.1]:4242").value
    'peer_lost'
    >>> classify(-9, "").value, classify(75, "").value
    ('signal', 'checkpoint')
    """
    if stopped_by_agent:
        return ExitReason.STOPPED_BY_AGENT
    if exit_code in _SAID_BY_STATUS:
        return ExitReason(exit_reason(exit_code))
    words = _last_words(tail)
    if exit_code < 0 and exit_code != -signal.SIGABRT:
        return ExitReason.SIGNAL
    for pattern, reason in (
        (_OUT_OF_MEMORY, ExitReason.OUT_OF_MEMORY),
        (_DISK_FULL, ExitReason.DISK_FULL),
        (_PEER_LOST, ExitReason.PEER_LOST),
    ):
        if pattern.search(words):
            return reason
    return ExitReason.SIGNAL if exit_code < 0 else ExitReason.EXCEPTION


def _last_words(tail: str) -> str:
    """The last traceback with the exceptions that caused it; all of the text when there is none.

    A message that a program has survived earlier says nothing about its end.
    """
    parts = _RANK_PREFIX.sub("", tail).split(_TRACEBACK)
    first = len(parts) - 1
    while first > 1 and parts[first - 1].rstrip().endswith(_CHAINED):
        first -= 1
    return _TRACEBACK.join(parts[first:])


def read_tail(log: Path) -> str:
    """The last 16 KiB of a log; empty when there is none."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            return file.read(TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""
