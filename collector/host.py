"""The host's own metrics from /proc and the cgroup: memory, pressure, network, disks. One small collector each.

Roots are constructor parameters, so that tests read prepared trees. A file that this kernel does not have yields
nothing: an absent series is told apart from a zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from everstep.collector.samples import Sample

PROC = Path("/proc")
CGROUP = Path("/sys/fs/cgroup")
SECTOR_BYTES = 512  # /proc/diskstats counts these, whatever the device uses
_PARTITION_OR_VIRTUAL = re.compile(
    r"^(loop|ram|zram|fd|sr)\d+$|^(sd|vd|xvd|hd)[a-z]+\d+$|^(nvme\d+n\d+|mmcblk\d+)p\d+$"
)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _bytes_in(path: Path) -> int | None:
    text = _read(path).strip()
    return int(text) if text.isdecimal() else None


class Memory:
    """Available and total bytes; the cgroup's limit counts where it is the lower one."""

    def __init__(self, proc: Path = PROC, cgroup: Path = CGROUP) -> None:
        self._meminfo = proc / "meminfo"
        self._cgroup = cgroup

    def collect(self) -> Iterable[Sample]:
        kibibytes = dict(re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB$", _read(self._meminfo), re.MULTILINE))
        if len(kibibytes) < 2:
            return
        total, available = (int(kibibytes[key]) * 1024 for key in ("MemTotal", "MemAvailable"))
        limit = _bytes_in(self._cgroup / "memory.max")
        if limit is not None and limit < total:
            used = _bytes_in(self._cgroup / "memory.current") or 0
            total, available = limit, min(available, max(limit - used, 0))
        yield Sample(metric="everstep_host_memory_total_bytes", value=float(total))
        yield Sample(metric="everstep_host_memory_available_bytes", value=float(available))


class Pressure:
    """Stalled seconds of the kernel's pressure stall information."""

    def __init__(self, proc: Path = PROC) -> None:
        self._root = proc / "pressure"

    def collect(self) -> Iterable[Sample]:
        for resource in ("cpu", "io", "memory"):
            for kind, total in re.findall(r"^(some|full) .*total=(\d+)$", _read(self._root / resource), re.MULTILINE):
                yield Sample(
                    metric="everstep_pressure_stalled_seconds_total",
                    labels=(("resource", resource), ("kind", kind)),
                    value=int(total) / 1e6,
                )


class Network:
    """Bytes of each network device, without RDMA ports (they count under their own names) and without loopback."""

    def __init__(self, proc: Path = PROC) -> None:
        self._path = proc / "net" / "dev"

    def collect(self) -> Iterable[Sample]:
        for line in _read(self._path).splitlines()[2:]:
            device, _, numbers = line.partition(":")
            fields = numbers.split()
            if device.strip() == "lo" or len(fields) < 9:
                continue
            for direction, at in (("receive", 0), ("transmit", 8)):
                yield Sample(
                    metric="everstep_net_bytes_total",
                    labels=(("device", device.strip()), ("port", ""), ("direction", direction)),
                    value=float(fields[at]),
                )


class Disks:
    """Bytes read and written by each whole disk."""

    def __init__(self, proc: Path = PROC) -> None:
        self._path = proc / "diskstats"

    def collect(self) -> Iterable[Sample]:
        for line in _read(self._path).splitlines():
            fields = line.split()
            if len(fields) < 10 or _PARTITION_OR_VIRTUAL.match(fields[2]):
                continue
            for direction, at in (("read", 5), ("write", 9)):
                yield Sample(
                    metric="everstep_storage_transferred_bytes_total",
                    labels=(("target", fields[2]), ("direction", direction)),
                    value=float(fields[at]) * SECTOR_BYTES,
                )


class Tasks:
    """Kills by the kernel's out-of-memory killer, and tasks in uninterruptible sleep."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc

    def collect(self) -> Iterable[Sample]:
        yield from self._one("vmstat", "oom_kill", "everstep_host_oom_kills_total")
        yield from self._one("stat", "procs_blocked", "everstep_host_blocked_tasks")

    def _one(self, file: str, key: str, metric: str) -> Iterator[Sample]:
        found = re.search(rf"^{key} (\d+)$", _read(self._proc / file), re.MULTILINE)
        if found:
            yield Sample(metric=metric, value=float(found[1]))


class Host:
    """All of the above."""

    def __init__(self, proc: Path = PROC, cgroup: Path = CGROUP) -> None:
        self._parts = (Memory(proc, cgroup), Pressure(proc), Network(proc), Disks(proc), Tasks(proc))

    def collect(self) -> Iterable[Sample]:
        for part in self._parts:
            yield from part.collect()
