"""GPUs through NVML. A node without the library is a node that expects no GPU, and says so."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable

import structlog

from everstep.collector.samples import Sample

LIBRARY = "libnvidia-ml.so.1"


def count_devices() -> int:
    """Devices that the driver shows; 0 without a driver. Never raises for a missing or broken driver."""
    try:
        ctypes.CDLL(LIBRARY)  # before the bindings are imported: most development nodes have none
    except OSError:
        return 0
    import pynvml

    try:
        pynvml.nvmlInit()
        try:
            return int(pynvml.nvmlDeviceGetCount())
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        structlog.get_logger().warning("nvml_unusable", error=str(error))
        return 0


class Gpus:
    """The highest count seen since the agent started is what is expected."""

    def __init__(self, count: Callable[[], int] = count_devices) -> None:
        self._expected = count()

    def collect(self) -> Iterable[Sample]:
        yield Sample(metric="everstep_gpus_expected", value=float(self._expected))
