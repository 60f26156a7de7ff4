"""What a row of the metric table says; the rows live in the sibling modules."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum


class MetricClass(StrEnum):
    HARDWARE = "hardware"
    TRAINING = "training"
    SYSTEM = "system"
    EVERSTEP = "everstep"


class MetricKind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    INFO = "info"


class Scope(StrEnum):
    RANK = "rank"
    GPU = "gpu"
    NODE = "node"
    LINK = "link"
    STORAGE = "storage"
    JOB = "job"
    CLUSTER = "cluster"


class Bad(StrEnum):
    HIGH = "high"
    LOW = "low"
    CHANGE = "change"
    STOP = "stop"
    ABSENT = "absent"


class Role(StrEnum):
    """What a metric can prove: only internal, edge and configuration signals point at a root."""

    INTERNAL = "internal"
    EDGE = "edge"
    CONFIGURATION = "configuration"
    AGGREGATE = "aggregate"
    OBSERVER = "observer"


class Source(StrEnum):
    NVML = "nvml"
    SYSFS = "sysfs"
    PROCFS = "procfs"
    PROBE = "probe"
    CALLBACK = "callback"
    CHECKPOINT = "checkpoint"
    AGENT = "agent"
    SCHEDULER = "scheduler"
    CONTROLLER = "controller"
    DETECTOR = "detector"
    RCA = "rca"


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A sample label; `values` is empty for an open set."""

    name: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Physical range; outside it a sample is discarded before any baseline sees it.

    With `per_second` the range applies to the increase per second, after reset handling. `nonfinite` lets NaN and
    infinity pass as evidence (F28).
    """

    low: float = -math.inf
    high: float = math.inf
    per_second: bool = False
    nonfinite: bool = False

    def admits(self, value: float) -> bool:
        """Whether the value (or rate, with `per_second`) is physically possible.

        >>> Gate(low=1, high=130).admits(82505.0), Gate(low=0, nonfinite=True).admits(float("nan"))
        (False, True)
        """
        if not math.isfinite(value):
            return self.nonfinite
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One row of the metric table; `number` is 1 to 27 for the core metrics and None for companions."""

    name: str
    kind: MetricKind
    unit: str
    help: str
    metric_class: MetricClass
    scope: Scope
    role: Role
    source: Source
    bad: tuple[Bad, ...] = ()
    gate: Gate = field(default_factory=Gate)
    labels: tuple[Label, ...] = ()
    reveals: tuple[str, ...] = ()
    number: int | None = None
    buckets: tuple[float, ...] = ()
    optional: bool = False

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(label.name for label in self.labels)
