"""Keeps a long-lived agent small: nothing for a terminal is loaded, heaps are shared, old objects are left alone."""

from __future__ import annotations

import ctypes
import gc
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TERMINAL_ONLY = ("rich", "pygments")
_M_ARENA_MAX = -8
_ARENAS = 2
_MADV_DONTNEED = 4
SMAPS = Path("/proc/self/smaps")
_MAPPING = re.compile(
    r"^(?P<start>[0-9a-f]+)-(?P<end>[0-9a-f]+) r-[x-]p \S+ \S+ \S+ +/[^\n]*\.so[^\n]*\n"
    r"(?:(?!Private_Dirty:)[A-Z][^\n]*\n)*Private_Dirty: +0 kB",
    re.MULTILINE,
)


@contextmanager
def without_terminals() -> Iterator[None]:
    """Imports inside do not find these packages, unless they are loaded already.

    structlog and httpx load them wherever they are installed (typer brings them) and do without them otherwise: seven
    megabytes that an agent never uses.
    """
    hidden = [name for name in TERMINAL_ONLY if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # how the import system is told that there is none
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def share_arenas() -> None:
    """Let all threads share two heaps of the C library (glibc); by itself nearly each thread begins one of its own."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)


def settle() -> None:
    """After the start: give back what it left over, and keep the collector away from what lives as long as we do."""
    gc.collect()
    libc = ctypes.CDLL(None)
    trim = getattr(libc, "malloc_trim", None)
    if trim is not None:
        trim(0)
    for start, size in idle_code(SMAPS.read_text() if SMAPS.exists() else ""):
        libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _MADV_DONTNEED)
    gc.freeze()


def idle_code(smaps: str) -> Iterator[tuple[int, int]]:
    """Address and length of each mapping of a file that this process has not written to and cannot.

    What is used of it again comes back from the page cache; what only the start needed stays out.

    >>> list(idle_code("1000-3000 r-xp 0 00:0 1 /lib/a.so\\nPrivate_Dirty:  0 kB\\n"
    ...                "4000-5000 r--p 0 00:0 1 /lib/a.so\\nPrivate_Dirty:  4 kB\\n"))
    [(4096, 8192)]
    """
    for found in _MAPPING.finditer(smaps):
        start, end = (int(found[name], 16) for name in ("start", "end"))
        yield start, end - start
