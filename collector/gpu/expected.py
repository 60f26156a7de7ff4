"""How many GPUs this node should have: what the settings say, else the most that were ever seen, over restarts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import structlog

from everstep.collector.samples import Sample

MOST = 64


class ExpectedGpus:
    """`file` is written when more GPUs are seen than ever before, and only if its folder exists."""

    def __init__(self, setting: int | None, file: Path) -> None:
        self._setting = setting
        self._file = file
        self._highest = _number_in(file)

    @property
    def value(self) -> int:
        return self._highest if self._setting is None else self._setting

    def seen(self, num_gpus: int) -> None:
        """Called with every count of the devices."""
        if num_gpus <= self._highest:
            return
        self._highest = num_gpus
        if not self._file.parent.is_dir():
            return
        try:
            self._file.write_text(f"{num_gpus}\n")
        except OSError as error:
            structlog.get_logger().warning(
                "gpu_count_not_kept", file=str(self._file), error=error.strerror, mend="set agent.gpus_expected"
            )

    def collect(self) -> Iterable[Sample]:
        yield Sample(metric="everstep_gpus_expected", value=float(self.value))


def _number_in(file: Path) -> int:
    try:
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return 0
    return int(text) if text.isascii() and text.isdigit() and int(text[:9]) <= MOST else 0
