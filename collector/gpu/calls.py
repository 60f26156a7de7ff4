"""What NVML tells of a GPU by a function of its own rather than by a field: one small callable each."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from everstep.collector.gpu.series import GpuSeries
from everstep.collector.samples import Sample

Call = Callable[[Any, Any], list[Sample]]
"""Takes the bindings and the handle; raises `NVMLError`."""

THROTTLED = "everstep_gpu_throttled_seconds_total"
LONGEST_GAP_S = 5.0
REASON_BITS: dict[str, int] = {
    "power": 0x04,
    "sync_boost": 0x10,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "power_brake": 0x80,
}
"""Of `nvmlDeviceGetCurrentClocksEventReasons`."""


def temperature(series: GpuSeries, *, is_old_driver: bool) -> Call:
    core = series.of("everstep_gpu_temperature_celsius", (("sensor", "core"),))

    def new(nvml: Any, handle: Any) -> list[Sample]:
        return [core.sample(float(nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU)))]

    def old(nvml: Any, handle: Any) -> list[Sample]:
        return [core.sample(float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)))]

    return old if is_old_driver else new


def power(series: GpuSeries) -> Call:
    """For devices that do not offer it as a field."""
    watts = series.of("everstep_gpu_power_watts")
    return lambda nvml, handle: [watts.sample(nvml.nvmlDeviceGetPowerUsage(handle) / 1000)]


def power_limit(series: GpuSeries) -> Call:
    watts = series.of("everstep_gpu_power_limit_watts")
    return lambda nvml, handle: [watts.sample(nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000)]


def memory(series: GpuSeries) -> Call:
    used, total = series.of("everstep_gpu_memory_used_bytes"), series.of("everstep_gpu_memory_total_bytes")

    def read(nvml: Any, handle: Any) -> list[Sample]:
        info = nvml.nvmlDeviceGetMemoryInfo(handle)
        return [total.sample(float(info.total)), used.sample(float(info.used))]

    return read


def utilization(series: GpuSeries) -> Call:
    busy = series.of("everstep_gpu_utilization_ratio", (("engine", "sm"),))
    return lambda nvml, handle: [busy.sample(nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)]


def sm_clock(series: GpuSeries) -> Call:
    hertz = series.of("everstep_gpu_sm_clock_hertz")
    return lambda nvml, handle: [hertz.sample(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6)]


def link_width(series: GpuSeries) -> Call:
    lanes = series.of("everstep_gpu_pcie_link_width_lanes", (("bound", "current"),))
    return lambda nvml, handle: [lanes.sample(float(nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)))]


def link_generation(series: GpuSeries) -> Call:
    generation = series.of("everstep_gpu_pcie_link_generation", (("bound", "current"),))
    return lambda nvml, handle: [generation.sample(float(nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)))]


def sampled_reasons(series: GpuSeries, reasons: list[str], clock: Callable[[], float] = time.monotonic) -> Call:
    """Throttled time counted here, by asking now and then what holds the clocks down: for a driver that keeps none.

    A reason that holds now is taken to have held since the last reading, or for five seconds if that is less.
    """
    counted = dict.fromkeys(reasons, 0.0)
    by_reason = {reason: series.of(THROTTLED, (("reason", reason),)) for reason in reasons}
    read_at: float | None = None

    def read(nvml: Any, handle: Any) -> list[Sample]:
        nonlocal read_at
        bits = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        now = clock()
        passed_s = min(now - read_at, LONGEST_GAP_S) if read_at is not None else 0.0
        read_at = now
        for reason in counted:
            if bits & REASON_BITS[reason]:
                counted[reason] += passed_s
        return [by_reason[reason].sample(seconds) for reason, seconds in counted.items()]

    return read


def tensor_utilization(series: GpuSeries) -> Call:
    """From two snapshots of the profiling counters, so that the first reading has none. Opt-in: it profiles the GPU."""
    busy = series.of("everstep_gpu_utilization_ratio", (("engine", "tensor"),))
    snapshots: list[Any] = []

    def read(nvml: Any, handle: Any) -> list[Sample]:
        if not snapshots:
            if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                return []
            snapshots.extend((nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()))
            nvml.nvmlGpmSampleGet(handle, snapshots[0])
            return []
        before, after = snapshots
        nvml.nvmlGpmSampleGet(handle, after)
        snapshots.reverse()
        asked = nvml.c_nvmlGpmMetricsGet_t(
            version=nvml.NVML_GPM_METRICS_GET_VERSION, numMetrics=1, sample1=before, sample2=after
        )
        asked.metrics[0].metricId = nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL
        answer = nvml.nvmlGpmMetricsGet(asked).metrics[0]
        return [busy.sample(answer.value / 100)] if answer.nvmlReturn == 0 else []

    return read
