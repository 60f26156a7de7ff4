"""Xid errors as the driver prints them: `NVRM: Xid (PCI:0000:3b:00): 79, ...` in the kernel's log."""

from __future__ import annotations

import contextlib
import os
import re
import select
import time
from collections.abc import Iterable
from pathlib import Path

import structlog

from everstep.collector.gpu.xid import XidCounts, XidSource, bus_address
from everstep.collector.samples import Sample
from everstep.core.errors import EverstepError

WAIT_S = 1.0
RECORD_BYTES = 8192  # the kernel refuses a smaller buffer than its record
RECORDS_A_READING = 1000
_XID = re.compile(
    r"NVRM: Xid \(PCI:(?P<address>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.\d)?\): (?P<xid>\d+)"
)


class KernelLog:
    """A source without samples of its own: each `collect` waits for lines, or for a second. Begins at the log's end."""

    def __init__(self, path: Path, counts: XidCounts) -> None:
        self._path = path
        self._counts = counts
        self._file: int | None = None
        self._poll = select.poll()

    def collect(self) -> Iterable[Sample]:
        """Raises `EverstepError` when the log cannot be read."""
        if self._file is None:
            self._file = self._open()
            self._poll.register(self._file, select.POLLIN)
        self._poll.poll(WAIT_S * 1000)
        for _ in range(RECORDS_A_READING):
            record = self._read(self._file)
            if record is None:
                break
            self._take(record)
        return ()

    def _open(self) -> int:
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise EverstepError(
                f"cannot read the kernel log {self._path} ({error.strerror})",
                mend="run the agent as root or with CAP_SYSLOG, give its container /dev/kmsg, or set agent.kernel_log;"
                " until then Xids come from NVML alone",
            ) from None
        with contextlib.suppress(OSError):  # a pipe has no end to seek
            os.lseek(file, 0, os.SEEK_END)  # what happened before the agent is not news
        return file

    def _read(self, file: int) -> bytes | None:
        """One record; None when there is none yet."""
        try:
            record = os.read(file, RECORD_BYTES)
        except BlockingIOError:
            return None
        except BrokenPipeError:
            structlog.get_logger().warning("kernel_log_overrun", mend="none: the kernel overwrote lines not yet read")
            return b""
        if not record:
            time.sleep(WAIT_S)  # the end of a plain file, which is always ready
            return None
        return record

    def _take(self, record: bytes) -> None:
        for found in _XID.finditer(record.decode(errors="replace")):
            self._counts.tell_of_address(bus_address(found["address"]), int(found["xid"]), XidSource.LOG)
