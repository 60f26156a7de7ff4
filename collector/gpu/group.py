"""All GPUs of the node as the agent sees them: a watch each, presence told by the agent itself, Xid counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from everstep.collector.gpu.device import GpuDevice
from everstep.collector.gpu.expected import ExpectedGpus
from everstep.collector.gpu.inventory import Inventory
from everstep.collector.gpu.kernel_log import KernelLog
from everstep.collector.gpu.nvml import NvmlSession
from everstep.collector.gpu.series import GpuSeries
from everstep.collector.gpu.xid import XidCounts
from everstep.collector.gpu.xid_events import XidEvents
from everstep.collector.samples import Sample
from everstep.collector.watched import WatchedSource, read_all_once
from everstep.core.clock import Clock
from everstep.core.settings import AgentSettings

LOOK_INTERVAL_S = 5.0
OPENING_DEADLINE_S = 30.0
"""Without the driver's persistence mode the first opening takes seconds for each GPU."""
EVENT_DEADLINE_S = 5.0
KERNEL_LOG_RETRY_S = 60.0
FORGOTTEN_S = 86_000.0
"""The table lets a last-sample time be a day old at most."""


class Gpus:
    """`sources` grows when GPUs appear. `collect` yields what must be said even when NVML hangs."""

    def __init__(
        self,
        settings: AgentSettings,
        clock: Clock,
        *,
        count_file: Path,
        on_duplicate: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`on_duplicate` is called on the inventory's thread each time that NVML shows one GPU twice."""
        self._settings = settings
        self._clock = clock
        self._session = NvmlSession(settings.nvml_library)
        self._expected = ExpectedGpus(settings.gpus_expected, count_file)
        self.xids = XidCounts()
        self._inventory = Inventory(
            self._session,
            self._expected,
            on_new=self._watch,
            on_duplicate=on_duplicate,
            profiles=settings.gpu_profiling,
        )
        self._watched: dict[str, tuple[GpuDevice, WatchedSource]] = {}
        self._running = False
        self._sources = self._fixed_sources()

    @property
    def sources(self) -> tuple[WatchedSource, ...]:
        return self._sources

    def start(self) -> None:
        """On a CPU node (`agent.gpus_expected: 0`) nothing is looked for."""
        self._running = True
        for source in self._sources:
            source.start()

    def read_once(self) -> None:
        """The inventory, then every GPU at once; each is waited for until its deadline."""
        read_all_once(self._sources[:1])
        read_all_once([source for _, source in self._watched.values()])

    def close(self) -> None:
        """After all sources have been stopped."""
        self._session.close()

    def collect(self) -> Iterable[Sample]:
        now = time.time()
        yield from self._expected.collect()
        for device, source in self._watched.values():
            is_up = source.is_up
            if is_up is None:
                continue
            series = GpuSeries(device.index, device.uuid)
            yield series.of("everstep_gpu_up").sample(float(is_up))
            read_at = source.read_at
            if read_at is not None and now - read_at < FORGOTTEN_S:
                yield series.of("everstep_gpu_last_sample_timestamp_seconds").sample(read_at)
        yield from self.xids.collect()

    def _fixed_sources(self) -> tuple[WatchedSource, ...]:
        if self._settings.gpus_expected == 0:
            return ()
        inventory = WatchedSource(
            "nvml",
            self._inventory,
            interval_s=LOOK_INTERVAL_S,
            deadline_s=OPENING_DEADLINE_S,
            clock=self._clock,
            retry_s=LOOK_INTERVAL_S,
        )
        return (inventory, self._kernel_log()) if self._expected.value else (inventory,)

    def _kernel_log(self) -> WatchedSource:
        return WatchedSource(
            "kernel_log",
            KernelLog(self._settings.kernel_log, self.xids),
            interval_s=0,
            deadline_s=EVENT_DEADLINE_S,
            clock=self._clock,
            retry_s=KERNEL_LOG_RETRY_S,
        )

    def _events(self) -> WatchedSource:
        return WatchedSource(
            "xid",
            XidEvents(self._session, lambda: self._inventory.devices, self.xids),
            interval_s=0,
            deadline_s=EVENT_DEADLINE_S,
            clock=self._clock,
        )

    def _watch(self, device: GpuDevice) -> None:
        """On the inventory's thread, for each GPU that is seen for the first time."""
        self.xids.meet(device)
        source = WatchedSource(
            "gpu",
            device,
            interval_s=self._settings.gpu_interval_s,
            deadline_s=self._settings.source_deadline_s,
            clock=self._clock,
            device=device.uuid,
        )
        new = [source]
        if not self._watched:
            new.append(self._events())
            if not any(one.name == "kernel_log" for one in self._sources):
                new.append(self._kernel_log())
        self._watched = {**self._watched, device.uuid: (device, source)}
        self._sources = (*self._sources, *new)
        if self._running:
            for one in new:
                one.start()
