"""Xid errors as the driver reports them: an NVML event set over all GPUs, waited for with a timeout."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterable
from typing import Any

import structlog

from everstep.collector.gpu.device import GpuDevice
from everstep.collector.gpu.nvml import GPU_GONE, NOT_OFFERED, TIMEOUT, NvmlSession, code_of
from everstep.collector.gpu.xid import XidCounts, XidSource
from everstep.collector.samples import Sample

WAIT_MS = 1000


class XidEvents:
    """A source without samples of its own: each `collect` waits for one event, or for a second."""

    def __init__(self, session: NvmlSession, devices: Callable[[], tuple[GpuDevice, ...]], counts: XidCounts) -> None:
        self._session = session
        self._devices = devices
        self._counts = counts
        self._set: Any = None
        self._uuids: dict[int, str] = {}  # by address of the handle
        self._registered: set[int] = set()
        self._generation = 0
        self._refused: set[str] = set()
        self._log = structlog.get_logger()

    def collect(self) -> Iterable[Sample]:
        with self._session.use() as nvml:
            self._watch_all(nvml)
            try:
                event = nvml.nvmlEventSetWait_v2(self._set, WAIT_MS)
            except nvml.NVMLError as error:
                if code_of(error) == TIMEOUT:
                    return ()
                self._drop_set(nvml)
                if code_of(error) in GPU_GONE:
                    return ()  # the next set is made of the others; the GPU's own source says that it is lost
                raise
        if event.eventType & nvml.nvmlEventTypeXidCriticalError:
            address = ctypes.cast(event.device, ctypes.c_void_p).value or 0
            self._counts.tell_of(self._uuids.get(address, ""), int(event.eventData), XidSource.EVENT)
        return ()

    def _watch_all(self, nvml: Any) -> None:
        """A new set after a new session; GPUs that appear later join the set."""
        if self._generation != self._session.generation:
            self._set = None
            self._uuids.clear()
            self._generation = self._session.generation
        if self._set is None:
            self._set = nvml.nvmlEventSetCreate()
            self._registered.clear()
        for device in self._devices():
            attachment = device.attachment
            if attachment is not None and attachment.address not in self._registered:
                self._uuids[attachment.address] = device.uuid
                self._register(nvml, device, attachment.handle, attachment.address)

    def _register(self, nvml: Any, device: GpuDevice, handle: Any, address: int) -> None:
        try:
            nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._set)
        except nvml.NVMLError as error:
            if code_of(error) not in GPU_GONE | NOT_OFFERED:
                raise
            if device.uuid not in self._refused:
                self._refused.add(device.uuid)
                self._log.warning(
                    "no_xid_events", gpu=device.uuid, error=str(error), mend="its Xids come from the kernel log alone"
                )
            return
        self._registered.add(address)

    def _drop_set(self, nvml: Any) -> None:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlEventSetFree(self._set)
        self._set = None
