"""The nine hardware metrics (1 to 9 of the 27), read from NVML; field ids (FI) are those of nvidia-ml-py 13.615."""

from __future__ import annotations

from functools import partial

from everstep.core.metrics.spec import Bad, Gate, Label, Metric, MetricClass, MetricKind, Role, Scope, Source

GPU = Label(name="gpu")
UUID = Label(name="uuid")
DIRECTION = Label(name="direction", values=("transmit", "receive"))
THROTTLE_REASONS = (
    "power",
    "thermal",
    "sync_boost",
    "board_limit",
    "low_utilization",
    "reliability",
    "sw_thermal",
    "hw_thermal",
    "power_brake",
)
NVLINK_ERROR_KINDS = ("crc_flit", "crc_data", "replay", "recovery", "ecc", "symbol")

_gpu = partial(Metric, metric_class=MetricClass.HARDWARE, scope=Scope.GPU, source=Source.NVML)
_internal = partial(_gpu, role=Role.INTERNAL)

HARDWARE_METRICS: tuple[Metric, ...] = (
    _internal(
        number=1,
        name="everstep_gpu_temperature_celsius",
        kind=MetricKind.GAUGE,
        unit="celsius",
        help="GPU core and memory temperature; a memory reading of 0 means unsupported and is dropped.",
        labels=(GPU, UUID, Label(name="sensor", values=("core", "memory"))),
        gate=Gate(low=1, high=130),
        bad=(Bad.HIGH, Bad.LOW),
        reveals=("F10", "F11", "F31"),
    ),
    _internal(
        number=2,
        name="everstep_gpu_power_watts",
        kind=MetricKind.GAUGE,
        unit="watts",
        help="Power draw of the GPU; low while utilisation is 1 means a spinning collective.",
        labels=(GPU, UUID),
        gate=Gate(low=5, high=2000),
        gate_by="everstep_gpu_power_limit_watts",
        gate_factor=1.5,
        bad=(Bad.LOW,),
        reveals=("F01", "F11", "F12", "F25"),
    ),
    _internal(
        number=3,
        name="everstep_gpu_memory_used_bytes",
        kind=MetricKind.GAUGE,
        unit="bytes",
        help="GPU memory in use; non-zero without a process is an orphan.",
        labels=(GPU, UUID),
        gate=Gate(low=0, high=2e12),
        gate_by="everstep_gpu_memory_total_bytes",
        bad=(Bad.HIGH,),
        reveals=("F26",),
    ),
    _internal(
        number=4,
        name="everstep_gpu_utilization_ratio",
        kind=MetricKind.GAUGE,
        unit="ratio",
        help="Share of time the engine was busy; the tensor engine is read only when profiling is opted into.",
        labels=(GPU, UUID, Label(name="engine", values=("sm", "tensor"))),
        gate=Gate(low=0, high=1),
        bad=(Bad.LOW,),
        reveals=("F12", "F20", "F25"),
    ),
    _internal(
        number=5,
        name="everstep_gpu_throttled_seconds_total",
        kind=MetricKind.COUNTER,
        unit="seconds",
        help="Time with clocks held down, by reason; reason=power at full draw is normal.",
        labels=(GPU, UUID, Label(name="reason", values=THROTTLE_REASONS)),
        gate=Gate(low=0, high=1.05, per_second=True),
        bad=(Bad.HIGH,),
        reveals=("F10", "F11", "F12"),
    ),
    _internal(
        number=6,
        name="everstep_gpu_ecc_errors_total",
        kind=MetricKind.COUNTER,
        unit="errors",
        help="Volatile ECC errors since the driver was loaded.",
        labels=(GPU, UUID, Label(name="type", values=("corrected", "uncorrected"))),
        gate=Gate(low=0, high=1e6, per_second=True),
        bad=(Bad.HIGH,),
        reveals=("F03", "F04", "F05", "F06"),
    ),
    _internal(
        number=7,
        name="everstep_gpu_xid_errors_total",
        kind=MetricKind.COUNTER,
        unit="errors",
        help="XID events by code, from the NVML event set and the kernel log, each event counted once.",
        labels=(GPU, UUID, Label(name="xid")),
        gate=Gate(low=0, high=100, per_second=True),
        bad=(Bad.HIGH,),
        reveals=("F01", "F02", "F03", "F04", "F05", "F06", "F07", "F08"),
    ),
    _gpu(
        number=8,
        name="everstep_gpu_nvlink_errors_total",
        kind=MetricKind.COUNTER,
        unit="errors",
        help="NVLink errors of all links of the GPU, by kind.",
        role=Role.EDGE,
        labels=(GPU, UUID, Label(name="kind", values=NVLINK_ERROR_KINDS)),
        gate=Gate(low=0, high=1e9, per_second=True),
        bad=(Bad.HIGH,),
        reveals=("F07",),
    ),
    _gpu(
        number=9,
        name="everstep_gpu_pcie_replays_total",
        kind=MetricKind.COUNTER,
        unit="replays",
        help="PCIe replays of the GPU's link to its host.",
        role=Role.EDGE,
        labels=(GPU, UUID),
        gate=Gate(low=0, high=1e6, per_second=True),
        bad=(Bad.HIGH,),
        reveals=("F01", "F09"),
    ),
)
