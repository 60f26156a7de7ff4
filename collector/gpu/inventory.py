"""Which GPUs there are: opens the session, looks now and then, gives each GPU its handle and a watch of its own.

A GPU is known by its UUID: one that NVML shows twice is read once. One that NVML stops showing stays known, as lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import structlog

from everstep.collector.gpu.device import GpuDevice
from everstep.collector.gpu.expected import ExpectedGpus
from everstep.collector.gpu.nvml import GPU_GONE, NOT_OFFERED, NvmlAbsentError, NvmlSession, code_of
from everstep.collector.gpu.plan import Attachment
from everstep.collector.samples import Sample


class Inventory:
    """A source without samples of its own; `on_new` and `on_duplicate` are called on its thread."""

    def __init__(
        self,
        session: NvmlSession,
        expected: ExpectedGpus,
        *,
        on_new: Callable[[GpuDevice], None],
        on_duplicate: Callable[[str], None],
        profiles: bool = False,
    ) -> None:
        self._session = session
        self._expected = expected
        self._on_new = on_new
        self._on_duplicate = on_duplicate
        self._profiles = profiles
        self._devices: dict[str, GpuDevice] = {}
        self._absence_told = False

    @property
    def devices(self) -> tuple[GpuDevice, ...]:
        """Every GPU that was ever seen."""
        return tuple(self._devices.values())

    def collect(self) -> Iterable[Sample]:
        """Raises `NvmlError`, and `NvmlAbsentError` where GPUs are expected."""
        try:
            self._session.open()
        except NvmlAbsentError as error:
            if self._expected.value > 0:
                raise
            self._tell_absence(error)
            return ()
        with self._session.use() as nvml:
            shown = self._shown(nvml)
            self._expected.seen(len(shown))
            new = [device for uuid, one in shown.items() for device in self._meet(nvml, uuid, one)]
        self._devices = {**self._devices, **{device.uuid: device for device in new}}
        for device in new:
            self._on_new(device)
        for uuid, device in self._devices.items():
            if uuid not in shown:
                device.attach(None)
        return ()

    def _shown(self, nvml: Any) -> dict[str, Attachment]:
        """What NVML shows now, by UUID."""
        shown: dict[str, Attachment] = {}
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                uuid = str(nvml.nvmlDeviceGetUUID(handle))
            except nvml.NVMLError as error:
                if code_of(error) not in GPU_GONE | NOT_OFFERED:
                    raise
                continue  # lost: it is missing from what is shown
            if uuid in shown:
                self._on_duplicate(uuid)
            else:
                shown[uuid] = Attachment(handle=handle, index=index, generation=self._session.generation)
        return shown

    def _meet(self, nvml: Any, uuid: str, attachment: Attachment) -> Iterable[GpuDevice]:
        """Attach what is known; yields what is new."""
        device = self._devices.get(uuid)
        if device is None:
            bus_id = str(nvml.nvmlDeviceGetPciInfo(attachment.handle).busId).lower()
            device = GpuDevice(self._session, uuid=uuid, pci_bus_id=bus_id, profiles=self._profiles)
            device.attach(attachment)
            yield device
        elif device.attachment is None or not _is_same(device.attachment, attachment):
            device.attach(attachment)

    def _tell_absence(self, error: NvmlAbsentError) -> None:
        if not self._absence_told:
            self._absence_told = True
            structlog.get_logger().info("no_gpus", problem=error.problem, mend=error.mend)


def _is_same(one: Attachment, other: Attachment) -> bool:
    return (one.generation, one.index, one.address) == (other.generation, other.index, other.address)
