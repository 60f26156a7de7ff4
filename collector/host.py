"""The host's own metrics from /proc and the cgroup: memory, pressure, network, disks. One small collector each.

Roots are constructor parameters, so that tests read prepared trees. A file that this kernel does not have yields
nothing: an absent series is told apart from a zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from everstep.collector.pseudo_files import PROC, SYS, read_int, read_text, whole_number
from everstep.collector.rdma import RdmaPorts
from everstep.collector.samples import Labels, Sample

CGROUP = SYS / "fs" / "cgroup"
SECTOR_BYTES = 512  # /proc/diskstats counts these, whatever the device uses
_PARTITION_OR_VIRTUAL = re.compile(
    r"^(loop|ram|zram|fd|sr)\d+$|^(sd|vd|xvd|hd)[a-z]+\d+$|^(nvme\d+n\d+|mmcblk\d+)p\d+$"
)
_MEMINFO = re.compile(r"^(MemTotal|MemAvailable):\s+([0-9]{1,20}) kB$", re.MULTILINE)
_STALLED = re.compile(r"^(some|full) .*total=([0-9]{1,20})$", re.MULTILINE)


def _both(metric: str, labels: Labels, factor: int = 1, **directions: str) -> Iterator[Sample]:
    """A sample a direction; what is no number yields none."""
    for direction, text in directions.items():
        count = whole_number(text)
        if count is not None and count >= 0:
            yield Sample(metric=metric, labels=(*labels, ("direction", direction)), value=float(count * factor))


class Memory:
    """Available and total bytes; the cgroup's limit counts where it is the lower one."""

    def __init__(self, proc: Path = PROC, cgroup: Path = CGROUP) -> None:
        self._meminfo = proc / "meminfo"
        self._cgroup = cgroup

    def collect(self) -> Iterable[Sample]:
        kibibytes = dict(_MEMINFO.findall(read_text(self._meminfo)))
        if len(kibibytes) < 2:
            return
        total, available = (int(kibibytes[key]) * 1024 for key in ("MemTotal", "MemAvailable"))
        limit = read_int(self._cgroup / "memory.max")
        if limit is not None and 0 <= limit < total:
            used = read_int(self._cgroup / "memory.current") or 0
            total, available = limit, min(available, max(limit - used, 0))
        yield Sample(metric="everstep_host_memory_total_bytes", value=float(total))
        yield Sample(metric="everstep_host_memory_available_bytes", value=float(available))


class Pressure:
    """Stalled seconds of the kernel's pressure stall information."""

    def __init__(self, proc: Path = PROC) -> None:
        self._root = proc / "pressure"

    def collect(self) -> Iterable[Sample]:
        for resource in ("cpu", "io", "memory"):
            for kind, total in _STALLED.findall(read_text(self._root / resource)):
                yield Sample(
                    metric="everstep_pressure_stalled_seconds_total",
                    labels=(("resource", resource), ("kind", kind)),
                    value=int(total) / 1e6,
                )


class Network:
    """Bytes of each network device, without RDMA ports (they count under their own names) and without loopback."""

    def __init__(self, proc: Path = PROC, sys: Path = SYS) -> None:
        self._path = proc / "net" / "dev"
        self._rdma = RdmaPorts(sys)

    def collect(self) -> Iterable[Sample]:
        left_out = {"lo", *self._rdma.netdevs()}
        for line in read_text(self._path).split("\n")[2:]:
            name, _, numbers = line.rpartition(":")
            device, fields = name.strip(" "), numbers.split()
            if device in left_out or len(fields) < 9:
                continue
            labels = (("device", device), ("port", ""))
            yield from _both("everstep_net_bytes_total", labels, receive=fields[0], transmit=fields[8])


class Disks:
    """Bytes read and written by each whole disk."""

    def __init__(self, proc: Path = PROC) -> None:
        self._path = proc / "diskstats"

    def collect(self) -> Iterable[Sample]:
        for line in read_text(self._path).split("\n"):
            fields = line.split()
            if len(fields) < 10 or _PARTITION_OR_VIRTUAL.match(fields[2]):
                continue
            yield from _both(
                "everstep_storage_transferred_bytes_total",
                (("target", fields[2]),),
                factor=SECTOR_BYTES,
                read=fields[5],
                write=fields[9],
            )


class Tasks:
    """Kills by the kernel's out-of-memory killer, and tasks in uninterruptible sleep."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc

    def collect(self) -> Iterable[Sample]:
        yield from self._one("vmstat", "oom_kill", "everstep_host_oom_kills_total")
        yield from self._one("stat", "procs_blocked", "everstep_host_blocked_tasks")

    def _one(self, file: str, key: str, metric: str) -> Iterator[Sample]:
        found = re.search(rf"^{key} ([0-9]{{1,20}})$", read_text(self._proc / file), re.MULTILINE)
        if found:
            yield Sample(metric=metric, value=float(found[1]))


class Host:
    """All of the above."""

    def __init__(self, proc: Path = PROC, cgroup: Path = CGROUP, sys: Path = SYS) -> None:
        self._parts = (Memory(proc, cgroup), Pressure(proc), Network(proc, sys), Disks(proc), Tasks(proc))

    def collect(self) -> Iterable[Sample]:
        for part in self._parts:
            yield from part.collect()
