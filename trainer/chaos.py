"""Faults injected into a running trainer through files, read only when the configuration says `chaos: true`.

`<data directory or output_dir>/poison.json`  {"batches": {"57": {"rank": 1}}}  corrupts that rank's slice of batch 57:
its token weights become NaN. `<node dir>/chaos/slow.json`  {"factor": 1.5}  makes the ranks of that node compute so
many times longer. Both are looked at once a step by one `stat`.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

_LOGGER = logging.getLogger("everstep.trainer.chaos")


class WatchedFile:
    """A small JSON file that may appear, change or vanish; parsed again only when its mtime or size moves."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._data: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        """Its mapping, empty when it is absent or not JSON (which is logged)."""
        try:
            stat = self._path.stat()
        except OSError:
            self._seen, self._data = None, {}
            return self._data
        seen = (stat.st_mtime_ns, stat.st_size)
        if seen != self._seen:
            self._seen = seen
            self._data = self._parse()
        return self._data

    def _parse(self) -> dict[str, Any]:
        try:
            data = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            _LOGGER.warning("%s is not readable JSON and injects nothing", self._path)
            return {}
        return data if isinstance(data, dict) else {}


class Poison:
    """Which slices of which batches are corrupted."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._files = [WatchedFile(folder / "poison.json") for folder in folders]

    def marks(self, batch: int, rank: int) -> bool:
        for file in self._files:
            entry = file.read().get("batches", {}).get(str(batch))
            if isinstance(entry, dict) and entry.get("rank") in {None, rank}:
                return True
        return False


class Slowness:
    """Real extra work: matrix products until the thread has used the wanted CPU time."""

    def __init__(self, node_dir: Path | None) -> None:
        self._file = WatchedFile(node_dir / "chaos" / "slow.json") if node_dir else None
        self._work = torch.ones(64, 64) / 64

    def factor(self) -> float:
        """At least 1; what the file says now."""
        if self._file is None:
            return 1.0
        factor = self._file.read().get("factor", 1.0)
        return max(1.0, float(factor)) if isinstance(factor, int | float) and math.isfinite(factor) else 1.0

    def burn(self, seconds: float, *, clock: Callable[[], float] = time.thread_time) -> None:
        """Compute for `seconds` of this thread's CPU time."""
        until = clock() + seconds
        while clock() < until:
            self._work @ self._work
