"""One series as the window store holds it, and the gate that each of its samples passes.

What the table says of the metric is laid out here once, so that a sample costs two comparisons in the usual case.
"""

from __future__ import annotations

import math

from everstep.core.metrics import METRIC_BY_NAME, METRICS, RATE_SLACK_S, Metric, MetricKind, Scope
from everstep.service.ring import Ring
from everstep.service.views import MAX_RANKS, STEP_HANDLERS, VALUE_HANDLERS, Handler

ATTEMPT = "everstep_train_attempt"
FUTURE_S = 5.0
VALUE, RATE, AGE, REPEATED = range(4)
"""What the plain gate looks at: the value, its rise a second, its distance from now, or that it repeats the last."""

UNLISTED = "unlisted"
BOUNDING = frozenset(metric.gate_by for metric in METRICS if metric.gate_by is not None)
HISTOGRAM_SUFFIXES = ("_bucket", "_sum", "_count")
STATE_LABELS = ("state", "reason", "tier", "phase")
HANDLERS: dict[str, Handler] = {**STEP_HANDLERS, **VALUE_HANDLERS}

RankKey = tuple[str, int]
BoundKey = tuple[str, tuple[str, ...]]
Labels = dict[str, str]


class Speaker:
    """The node and rank that series speak of; one object for all of them, so that a push is summed up fast."""

    __slots__ = ("key", "node")

    def __init__(self, node: str, key: RankKey | None) -> None:
        self.node = node
        self.key = key


class SeriesSlot:
    """One series of the metric table; `key` is the rank that it speaks of, if any.

    `low` and `high` are the plain part of the gate and bound what `judged_by` says; a sample outside, and any sample
    of a gate that says more, takes the long way. `newest_at` is -inf before the first sample.
    """

    __slots__ = (
        "ended",
        "handler",
        "high",
        "judged_by",
        "key",
        "label",
        "labels",
        "low",
        "metric",
        "name",
        "newest",
        "newest_at",
        "node",
        "order",
        "ring",
        "speaker",
        "tells_attempt",
        "upper",
    )

    def __init__(self, labels: Labels, metric: Metric) -> None:
        self.labels = labels
        self.name = labels["__name__"]
        self.metric = metric
        self.node = labels.get("node", "")
        self.key = _rank_key(labels, metric)
        self.label = next((labels[name] for name in STATE_LABELS if name in labels), "")
        self.order = 0 if self.name in STEP_HANDLERS else 1
        self.handler: Handler | None = HANDLERS.get(self.name)
        self.ring = Ring()
        self.ended = False
        self.upper: SeriesSlot | None = None  # the series that bounds this one, by `Metric.gate_by`
        self.newest_at = -math.inf
        self.newest = math.nan
        self.speaker = Speaker(self.node, self.key)
        self.tells_attempt = self.name == ATTEMPT
        self.judged_by, self.low, self.high = _plain_gate(metric)


def metric_of(name: str) -> Metric | None:
    """The row of a series name, also of a histogram's parts; None when the table does not know it."""
    metric = METRIC_BY_NAME.get(name)
    for suffix in HISTOGRAM_SUFFIXES:
        if metric is None and name.endswith(suffix):
            base = METRIC_BY_NAME.get(name.removesuffix(suffix))
            metric = base if base is not None and base.kind is MetricKind.HISTOGRAM else None
    return metric


def bound_key(name: str, labels: Labels) -> BoundKey:
    """The bounding series of the same entity: same node, same values of the labels that the bound itself has."""
    own = METRIC_BY_NAME[name].label_names if name in METRIC_BY_NAME else ()
    return name, (labels.get("node", ""), *(labels.get(label, "") for label in own))


def refusal(slot: SeriesSlot, at: float, value: float, *, arrived: float, window_s: float) -> str:
    """Why a sample is not taken; empty when it is."""
    if at > arrived + FUTURE_S:
        return "clock"
    if at < arrived - window_s or at < slot.newest_at:
        return "stale"
    if at == slot.newest_at:
        return "duplicate"
    return "" if _possible(slot, at, value, arrived) else "range"


def _plain_gate(metric: Metric) -> tuple[int, float, float]:
    gate = metric.gate
    if metric.kind is MetricKind.HISTOGRAM:
        return VALUE, -math.inf, math.inf
    if gate.choices or gate.whole:
        return REPEATED, math.inf, -math.inf
    if gate.from_now:
        return AGE, gate.low, gate.high
    if gate.per_second and metric.gate_by is not None:
        return VALUE, math.inf, -math.inf
    return (RATE, 0.0, gate.high) if gate.per_second else (VALUE, gate.low, gate.high)


def _possible(slot: SeriesSlot, at: float, value: float, arrived: float) -> bool:
    metric = slot.metric
    if metric.kind is MetricKind.HISTOGRAM:
        return math.isfinite(value)
    judged = value
    if metric.gate.per_second:
        if not math.isfinite(value) or value < 0:
            return False
        if slot.newest_at == -math.inf or value < slot.newest:  # first sight or a reset: there is no rate yet
            return True
        judged = (value - slot.newest) / (at - slot.newest_at + RATE_SLACK_S)
    return metric.admits(judged, upper=slot.upper.newest if slot.upper is not None else None, now=arrived)


def _rank_key(labels: Labels, metric: Metric) -> RankKey | None:
    """The rank whose attempt decides about the series; job-wide numbers come from rank 0."""
    job = labels.get("train_job")
    if job is None:
        return None
    if metric.scope is Scope.JOB:
        return job, 0
    rank = labels.get("rank", "")
    return (job, int(rank)) if rank.isascii() and rank.isdigit() and int(rank[:9]) < MAX_RANKS else None
