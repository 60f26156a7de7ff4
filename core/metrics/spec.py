"""What a row of the metric table says; the rows live in the sibling modules."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

RATE_SLACK_S = 0.2
"""A device moves its counters in steps of its own, so a rise may belong to slightly more than the time between."""


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

    With `per_second` the range applies to the increase per second, after reset handling; with `from_now` to the
    seconds between now and the value, a timestamp. `nonfinite` lets NaN and infinity pass as evidence (F28). `choices`
    are the only legal values where there are any; `whole` refuses fractions.
    """

    low: float = -math.inf
    high: float = math.inf
    per_second: bool = False
    nonfinite: bool = False
    from_now: bool = False
    choices: tuple[float, ...] = ()
    whole: bool = False

    def admits(self, value: float, *, now: float | None = None) -> bool:
        """Whether the value (or rate, with `per_second`) is physically possible.

        A `from_now` gate judges only when `now` (seconds since the epoch) is given.

        >>> Gate(low=1, high=130).admits(82505.0), Gate(low=0, nonfinite=True).admits(float("nan"))
        (False, True)
        >>> Gate(low=-60, high=5, from_now=True).admits(1006.0, now=1000.0)
        False
        """
        if not math.isfinite(value):
            return self.nonfinite
        if self.choices:
            return value in self.choices
        if self.whole and value != math.floor(value):
            return False
        if self.from_now:
            return now is None or self.low <= value - now <= self.high
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One row of the metric table; `number` is 1 to 27 for the core metrics and None for companions.

    `gate_by` names a metric of the same entity whose value times `gate_factor` is a further upper bound on what the
    gate judges (1.5 times the power limit, the total memory, 1.1 times the link rate).
    """

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
    gate_by: str | None = None
    gate_factor: float = 1.0

    def admits(self, judged: float, *, upper: float | None = None, now: float | None = None) -> bool:
        """Whether a value (or rate, with `gate.per_second`) passes the gate and the bound of `gate_by`.

        `upper` is the newest value of the bounding series; none, zero or NaN bounds nothing.
        """
        if upper is not None and upper > 0 and judged > upper * self.gate_factor:
            return False
        return self.gate.admits(judged, now=now)

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(label.name for label in self.labels)
