"""Xid errors counted by GPU and code, each event once, though the driver tells of it twice: by event and in its log.

Nothing acts on the level of a last-code gauge. Codes with an automatic action start at 0, so that `increase()` sees
the first event.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from everstep.collector.gpu.device import GpuDevice
from everstep.collector.gpu.series import GpuSeries, Series
from everstep.collector.samples import Sample
from everstep.core.faults import AUTOMATIC_XIDS

METRIC = "everstep_gpu_xid_errors_total"
LOWEST, HIGHEST = 1, 999
SAME_EVENT_S = 1.0
"""The driver prints one event in several lines; two of one code within this time are one."""
OTHER_SOURCE_S = 5.0
"""How much later the other source may tell of the same event."""

BusAddress = tuple[int, int, int]
"""PCI domain, bus and device."""


class XidSource(Enum):
    EVENT = auto()
    LOG = auto()


@dataclass(slots=True)
class _Counted:
    series: Series
    count: int = 0
    last_at: float = float("-inf")
    told_by: set[XidSource] = field(default_factory=set)


@dataclass(slots=True)
class _Gpu:
    """`device` is None for GPUs that NVML has never shown."""

    device: GpuDevice | None
    series: GpuSeries
    codes: dict[int, _Counted] = field(default_factory=dict)

    @classmethod
    def of(cls, device: GpuDevice) -> _Gpu:
        return cls(device, GpuSeries(device.index, device.uuid))

    def follow(self) -> None:
        """Name the series after the index that the GPU has now."""
        if self.device is not None and self.device.index != self.series.index:
            self.series = GpuSeries(self.device.index, self.device.uuid)
            for xid, counted in self.codes.items():
                counted.series = self.series.of(METRIC, (("xid", str(xid)),))


class XidCounts:
    """Written by the threads of both sources, read by the agent's; `on_event` is called on the thread of the source."""

    def __init__(
        self, on_event: Callable[[], None] = lambda: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.on_event = on_event
        self._clock = clock
        self._lock = threading.Lock()
        self._gpus: dict[str, _Gpu] = {}
        self._by_address: dict[BusAddress, str] = {}

    def meet(self, device: GpuDevice) -> None:
        """Begin at zero for a GPU."""
        with self._lock:
            self._by_address[bus_address(device.pci_bus_id)] = device.uuid
            gpu = self._gpus.setdefault(device.uuid, _Gpu.of(device))
            for xid in AUTOMATIC_XIDS:
                self._of(gpu, xid)

    def tell_of(self, uuid: str, xid: int, source: XidSource) -> bool:
        """Count an event of a known GPU; False when it is one that was counted already or no code at all."""
        if not LOWEST <= xid <= HIGHEST:
            return False
        with self._lock:
            if uuid not in self._gpus:
                self._gpus[uuid] = _Gpu(None, GpuSeries(None, uuid))
            is_new = self._count(self._of(self._gpus[uuid], xid), source)
        if is_new:
            self.on_event()
        return is_new

    def tell_of_address(self, address: BusAddress, xid: int, source: XidSource) -> bool:
        """As `tell_of`; a GPU that NVML has never shown counts under an empty uuid."""
        return self.tell_of(self._by_address.get(address, ""), xid, source)

    def collect(self) -> Iterable[Sample]:
        with self._lock:
            for gpu in self._gpus.values():
                gpu.follow()
            return [
                counted.series.sample(float(counted.count))
                for gpu in self._gpus.values()
                for counted in gpu.codes.values()
            ]

    def _of(self, gpu: _Gpu, xid: int) -> _Counted:
        counted = gpu.codes.get(xid)
        if counted is None:
            counted = gpu.codes[xid] = _Counted(gpu.series.of(METRIC, (("xid", str(xid)),)))
        return counted

    def _count(self, counted: _Counted, source: XidSource) -> bool:
        now = self._clock()
        window_s = SAME_EVENT_S if source in counted.told_by else OTHER_SOURCE_S
        if now - counted.last_at < window_s:
            counted.told_by.add(source)
            return False
        counted.count += 1
        counted.last_at = now
        counted.told_by = {source}
        return True


def bus_address(text: str) -> BusAddress:
    """Of NVML's `00000000:3B:00.0` and of the kernel log's `0000:3b:00` alike.

    >>> bus_address("00000000:3B:00.0") == bus_address("0000:3b:00")
    True
    """
    domain, bus, device = text.partition(".")[0].split(":")
    return int(domain, 16), int(bus, 16), int(device, 16)
