"""Companions that checkpoint manager, compressor and controller report: checkpoints, goodput, restarts, delays."""

from __future__ import annotations

from functools import partial

from everstep.core.metrics.spec import Bad, Gate, Label, Metric, MetricClass, MetricKind, Role, Scope, Source
from everstep.core.metrics.training import JOB

TIERS = ("memory", "disk", "local", "remote")
"""`disk` is a checkpoint folder of which nobody has said whether it is on a local disk or on a remote file system."""
CHECKPOINT_OPS = ("save", "load")
CHECKPOINT_OUTCOMES = ("success", "failed", "timeout")
GPU_SECOND_CLASSES = ("productive", "checkpoint", "restart", "recompute", "hang", "slow", "queue", "idle")
CHECKPOINT_BUCKETS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1800.0, 7200.0)
DELAY_BUCKETS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
_CLASSES = tuple(str(kind) for kind in MetricClass if kind is not MetricClass.EVERSTEP)

_job = partial(Metric, metric_class=MetricClass.TRAINING, scope=Scope.JOB, role=Role.AGGREGATE)

CONTROL_COMPANIONS: tuple[Metric, ...] = (
    _job(
        name="everstep_gpu_seconds_total",
        kind=MetricKind.COUNTER,
        unit="seconds",
        help="Wall time times world size, each second in exactly one class; goodput is the productive share.",
        source=Source.CONTROLLER,
        labels=(JOB, Label(name="class", values=GPU_SECOND_CLASSES)),
        gate=Gate(low=0, high=1.05 * 131072, per_second=True),
        bad=(Bad.LOW,),
    ),
    _job(
        name="everstep_checkpoint_last_success_timestamp_seconds",
        kind=MetricKind.GAUGE,
        unit="unix seconds",
        help="When the newest checkpoint of the tier was committed, as rank 0 knows it.",
        source=Source.CALLBACK,
        labels=(JOB, Label(name="tier", values=TIERS)),
        gate=Gate(low=-30 * 86400, high=5, from_now=True),
        bad=(Bad.STOP,),
        reveals=("F22", "F24"),
    ),
    _job(
        name="everstep_checkpoint_duration_seconds",
        kind=MetricKind.HISTOGRAM,
        unit="seconds",
        help="Time to save or load a checkpoint.",
        source=Source.CALLBACK,
        labels=(
            JOB,
            Label(name="tier", values=TIERS),
            Label(name="op", values=CHECKPOINT_OPS),
            Label(name="outcome", values=CHECKPOINT_OUTCOMES),
        ),
        gate=Gate(low=0.001, high=86400),
        bad=(Bad.HIGH, Bad.ABSENT),
        buckets=CHECKPOINT_BUCKETS,
        reveals=("F21", "F22", "F23"),
    ),
    _job(
        name="everstep_train_restarts_total",
        kind=MetricKind.COUNTER,
        unit="restarts",
        help="Restarts by the id of the fault that caused them.",
        source=Source.CONTROLLER,
        labels=(JOB, Label(name="cause")),
        gate=Gate(low=0, high=1, per_second=True),
        bad=(Bad.HIGH,),
        reveals=("F24", "F26"),
    ),
    _job(
        name="everstep_comm_bytes_total",
        kind=MetricKind.COUNTER,
        unit="bytes",
        help="Gradient bytes before and after compression.",
        source=Source.CHECKPOINT,
        labels=(JOB, Label(name="stage", values=("raw", "compressed"))),
        gate=Gate(low=0, high=1e14, per_second=True),
        bad=(Bad.HIGH,),
    ),
    Metric(
        name="everstep_fault_detection_delay_seconds",
        kind=MetricKind.HISTOGRAM,
        unit="seconds",
        help="From the estimated onset of a fault (or its injection) to the verdict.",
        metric_class=MetricClass.EVERSTEP,
        scope=Scope.CLUSTER,
        role=Role.AGGREGATE,
        source=Source.CONTROLLER,
        labels=(Label(name="fault"), Label(name="class", values=_CLASSES)),
        gate=Gate(low=0, high=86400),
        bad=(Bad.HIGH,),
        buckets=DELAY_BUCKETS,
    ),
    Metric(
        name="everstep_recovery_duration_seconds",
        kind=MetricKind.HISTOGRAM,
        unit="seconds",
        help="From the verdict to the first verified step.",
        metric_class=MetricClass.EVERSTEP,
        scope=Scope.CLUSTER,
        role=Role.AGGREGATE,
        source=Source.CONTROLLER,
        labels=(Label(name="action"), Label(name="outcome", values=("success", "failed", "escalated"))),
        gate=Gate(low=0, high=86400),
        bad=(Bad.HIGH,),
        buckets=DELAY_BUCKETS,
    ),
)
