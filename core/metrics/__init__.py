"""The metric table: the 27 and their companions, stated once; everything else is derived from it."""

from everstep.core.metrics.spec import Bad, Gate, Label, Metric, MetricClass, MetricKind, Role, Scope, Source
from everstep.core.metrics.training import TRAINING_COMPANIONS, TRAINING_METRICS

METRICS: tuple[Metric, ...] = (*TRAINING_METRICS, *TRAINING_COMPANIONS)
METRIC_BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}

__all__ = [
    "METRICS",
    "METRIC_BY_NAME",
    "Bad",
    "Gate",
    "Label",
    "Metric",
    "MetricClass",
    "MetricKind",
    "Role",
    "Scope",
    "Source",
]
