"""Fans through hwmon. A fan whose maximum the driver does not tell yields nothing.

The duty cycle (`pwm`) is no substitute: it is what was ordered, and stays high while the fan stands still.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from everstep.collector.pseudo_files import SYS, label, names_in, read_int, read_text
from everstep.collector.samples import Sample

_INPUT = re.compile(r"(fan[0-9]+)_input", re.ASCII)


class Fans:
    """Named `<chip>/<fan>`, with the chip's folder in between where two chips share a name."""

    def __init__(self, sys: Path = SYS) -> None:
        self._root = f"{sys}/class/hwmon"

    def collect(self) -> Iterable[Sample]:
        seen: set[str] = set()
        for chip in names_in(self._root):
            name = read_text(f"{self._root}/{chip}/name").strip() or label(chip)
            for fan, ratio in self._ratios(chip):
                short = f"{name}/{fan}"
                named = short if short not in seen else f"{name}/{label(chip)}/{fan}"
                seen.add(named)
                yield Sample(metric="everstep_host_fan_speed_ratio", labels=(("fan", named),), value=ratio)

    def _ratios(self, chip: str) -> Iterator[tuple[str, float]]:
        for file in names_in(f"{self._root}/{chip}"):
            found = _INPUT.fullmatch(file)
            if not found:
                continue
            speed = read_int(f"{self._root}/{chip}/{file}")
            highest = read_int(f"{self._root}/{chip}/{found[1]}_max")
            if speed is not None and highest is not None and highest > 0:
                yield found[1], speed / highest
