"""The nine system metrics (19 to 27 of the 27): network, storage, host pressure and the scheduler."""

from __future__ import annotations

from functools import partial

from everstep.core.metrics.hardware import DIRECTION
from everstep.core.metrics.spec import Bad, Gate, Label, Metric, MetricClass, MetricKind, Role, Scope, Source

DEVICE = Label(name="device")
PORT = Label(name="port")
TARGET = Label(name="target")
PORT_ERROR_KINDS = (
    "symbol",
    "link_downed",
    "link_recovery",
    "receive",
    "transmit_discard",
    "out_of_sequence",
    "ack_timeout",
)
QUEUE_PRIORITIES = ("low", "normal", "high", "other")
"""By the name of the job's quality of service; whatever a site calls otherwise is `other`."""
GPU_STATES = ("allocated", "idle", "fragmented", "isolated", "lost")
NET_LATENCY_BUCKETS = (2e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 5e-3, 2.5e-2, 0.1, 1.0)
STORAGE_LATENCY_BUCKETS = (5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1.0, 5.0, 30.0)
QUEUE_WAIT_BUCKETS = (10.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 21600.0, 86400.0, 604800.0)

_system = partial(Metric, metric_class=MetricClass.SYSTEM)

SYSTEM_METRICS: tuple[Metric, ...] = (
    _system(
        number=19,
        name="everstep_net_latency_seconds",
        kind=MetricKind.HISTOGRAM,
        unit="seconds",
        help="Round trip of an echo between two node agents, by rack of the peer and rail of the probe.",
        scope=Scope.LINK,
        role=Role.EDGE,
        source=Source.PROBE,
        labels=(Label(name="peer_rack"), Label(name="probe_rail")),
        gate=Gate(low=1e-6, high=60),
        bad=(Bad.HIGH,),
        buckets=NET_LATENCY_BUCKETS,
        reveals=("F09", "F13", "F14", "F15", "F16"),
    ),
    _system(
        number=20,
        name="everstep_net_bytes_total",
        kind=MetricKind.COUNTER,
        unit="bytes",
        help="Bytes over a network port; RDMA ports from InfiniBand counters, others from the kernel's list.",
        scope=Scope.LINK,
        role=Role.EDGE,
        source=Source.SYSFS,
        labels=(DEVICE, PORT, DIRECTION),
        gate=Gate(low=0, high=1e12, per_second=True),
        gate_by="everstep_net_link_rate_bytes_per_second",
        gate_factor=1.1,
        bad=(Bad.LOW, Bad.STOP),
        reveals=("F13", "F14", "F16", "F25"),
    ),
    _system(
        number=21,
        name="everstep_net_port_errors_total",
        kind=MetricKind.COUNTER,
        unit="errors",
        help="Errors of an RDMA port, by kind.",
        scope=Scope.LINK,
        role=Role.EDGE,
        source=Source.SYSFS,
        labels=(DEVICE, PORT, Label(name="kind", values=PORT_ERROR_KINDS)),
        gate=Gate(low=0, high=1e9, per_second=True),
        bad=(Bad.HIGH,),
        reveals=("F13", "F14", "F15", "F16"),
    ),
    _system(
        number=22,
        name="everstep_storage_transferred_bytes_total",
        kind=MetricKind.COUNTER,
        unit="bytes",
        help="Bytes read and written, by block device or network mount.",
        scope=Scope.STORAGE,
        role=Role.EDGE,
        source=Source.PROCFS,
        labels=(TARGET, Label(name="direction", values=("read", "write"))),
        gate=Gate(low=0, high=1e11, per_second=True),
        bad=(Bad.LOW,),
        reveals=("F20", "F21", "F22"),
    ),
    _system(
        number=23,
        name="everstep_storage_latency_seconds",
        kind=MetricKind.HISTOGRAM,
        unit="seconds",
        help="Small read, write and fsync probes in each checkpoint folder; a probe that timed out counts in +Inf.",
        scope=Scope.STORAGE,
        role=Role.EDGE,
        source=Source.PROBE,
        labels=(TARGET, Label(name="op", values=("read", "write", "fsync"))),
        gate=Gate(low=1e-6, high=3600),
        bad=(Bad.HIGH,),
        buckets=STORAGE_LATENCY_BUCKETS,
        reveals=("F20", "F21", "F22"),
    ),
    _system(
        number=24,
        name="everstep_pressure_stalled_seconds_total",
        kind=MetricKind.COUNTER,
        unit="seconds",
        help="Time in which some or all tasks waited for the resource (Linux pressure stall information).",
        scope=Scope.NODE,
        role=Role.INTERNAL,
        source=Source.PROCFS,
        labels=(
            Label(name="resource", values=("cpu", "io", "memory")),
            Label(name="kind", values=("some", "full")),
        ),
        gate=Gate(low=0, high=1.05, per_second=True),
        bad=(Bad.HIGH,),
        reveals=("F17", "F19", "F20", "F21"),
    ),
    _system(
        number=25,
        name="everstep_host_memory_available_bytes",
        kind=MetricKind.GAUGE,
        unit="bytes",
        help="Memory that can be had without swapping; the control group's remainder when that is lower.",
        scope=Scope.NODE,
        role=Role.INTERNAL,
        source=Source.PROCFS,
        gate=Gate(low=0, high=1e14),
        gate_by="everstep_host_memory_total_bytes",
        bad=(Bad.LOW,),
        reveals=("F17",),
    ),
    _system(
        number=26,
        name="everstep_queue_wait_seconds",
        kind=MetricKind.HISTOGRAM,
        unit="seconds",
        help="Time from submission to start of a job, observed at its start.",
        scope=Scope.CLUSTER,
        role=Role.AGGREGATE,
        source=Source.SCHEDULER,
        labels=(Label(name="queue"), Label(name="priority", values=QUEUE_PRIORITIES)),
        gate=Gate(low=0, high=2.6e6),
        bad=(Bad.HIGH,),
        buckets=QUEUE_WAIT_BUCKETS,
    ),
    _system(
        number=27,
        name="everstep_cluster_gpus",
        kind=MetricKind.GAUGE,
        unit="GPUs",
        help="GPUs by state; the states sum to the cluster's total.",
        scope=Scope.CLUSTER,
        role=Role.AGGREGATE,
        source=Source.SCHEDULER,
        labels=(Label(name="state", values=GPU_STATES),),
        gate=Gate(low=0, high=1e6, whole=True),
        bad=(Bad.HIGH,),
        reveals=("F01", "F16", "F18"),
    ),
)
