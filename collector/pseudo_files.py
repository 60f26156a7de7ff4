"""Files of procfs and sysfs: what is absent, refused by the driver or no number is told apart from a zero.

Plain system calls: hundreds of these files are read every second.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

PROC = Path("/proc")
SYS = Path("/sys")
_PART_BYTES = 1 << 16
_MOST_BYTES = 1 << 23  # nothing below /proc that is read here comes near; a wrong root must not eat the memory
_WHOLE = re.compile(r"-?[0-9]{1,20}", re.ASCII)


def read_text(path: str | Path) -> str:
    """The file, with escapes in place of what is not UTF-8; empty when it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return ""
    parts: list[bytes] = []
    left = _MOST_BYTES
    try:
        while left > 0 and (part := os.read(descriptor, min(_PART_BYTES, left))):
            parts.append(part)
            left -= len(part)
    except OSError:
        return ""  # half a file would be wrong numbers
    finally:
        os.close(descriptor)
    return b"".join(parts).decode(errors="backslashreplace")


def whole_number(text: str) -> int | None:
    """The integer that the text is, or nothing: drivers also answer `N/A (not supported)`.

    >>> whole_number("12\\n"), whole_number("-1"), whole_number("N/A (no PMA)"), whole_number("")
    (12, -1, None, None)
    """
    text = text.strip()
    return int(text) if _WHOLE.fullmatch(text) else None


def read_int(path: str | Path) -> int | None:
    return whole_number(read_text(path))


def names_in(path: str | Path) -> list[str]:
    """Entries of a folder in order; none when it cannot be listed."""
    try:
        return sorted(os.listdir(path))  # noqa: PTH208 - a path object for each of many entries would cost more
    except (OSError, ValueError):
        return []


def label(name: str) -> str:
    r"""A file's name as a label value: bytes that are not UTF-8 become escapes, so that two names stay two.

    >>> label("mlx5_0"), label(b"eth\xff".decode(errors="surrogateescape"))
    ('mlx5_0', 'eth\\xff')
    """
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")
