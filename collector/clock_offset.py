"""The clock's offset as the kernel's discipline (NTP, PTP) knows it: adjtimex(2), which needs no rights to read."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable

from everstep.collector.samples import Sample
from everstep.core.errors import EverstepError

STA_UNSYNC = 0x0040
STA_NANO = 0x2000
_ROOM_BYTES = 512  # the structure has 208


class Timex(ctypes.Structure):
    """The head of `struct timex` (adjtimex(2)); the offset is in nanoseconds with STA_NANO, else in microseconds."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("room", ctypes.c_char * _ROOM_BYTES),
    )


def read_timex() -> Timex:
    """Raises `EverstepError` where the kernel refuses (some sandboxes do)."""
    state = Timex()
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(state)) < 0:
        raise EverstepError(
            f"adjtimex: {os.strerror(ctypes.get_errno())}", mend="let the container use adjtimex(2) for reading"
        )
    return state


class ClockOffset:
    """Nothing while no discipline keeps the clock: an offset of 0 would be a claim."""

    def __init__(self, read: Callable[[], Timex] = read_timex) -> None:
        self._read = read

    def collect(self) -> Iterable[Sample]:
        state = self._read()
        if state.status & STA_UNSYNC:
            return
        unit = 1e-9 if state.status & STA_NANO else 1e-6
        yield Sample(metric="everstep_node_clock_offset_seconds", value=state.offset * unit)
