"""The metric table: the 27 and their companions, stated once; everything else is derived from it.

One module a group of rows. The 27 stand in the order of their numbers, companions after them; the layout of the rank
record follows from this order.
"""

from everstep.core.metrics.agent import AGENT_METRICS
from everstep.core.metrics.control import CONTROL_COMPANIONS
from everstep.core.metrics.detection import DETECTION_METRICS
from everstep.core.metrics.hardware import HARDWARE_METRICS
from everstep.core.metrics.hardware_companions import HARDWARE_COMPANIONS
from everstep.core.metrics.spec import (
    RATE_SLACK_S,
    Bad,
    Gate,
    Label,
    Metric,
    MetricClass,
    MetricKind,
    Role,
    Scope,
    Source,
)
from everstep.core.metrics.system import SYSTEM_METRICS
from everstep.core.metrics.system_companions import SYSTEM_COMPANIONS
from everstep.core.metrics.training import TRAINING_COMPANIONS, TRAINING_METRICS

CORE_METRICS: tuple[Metric, ...] = (*HARDWARE_METRICS, *TRAINING_METRICS, *SYSTEM_METRICS)
"""The 27, in the order of their numbers."""

METRICS: tuple[Metric, ...] = (
    *CORE_METRICS,
    *TRAINING_COMPANIONS,
    *HARDWARE_COMPANIONS,
    *SYSTEM_COMPANIONS,
    *CONTROL_COMPANIONS,
    *DETECTION_METRICS,
    *AGENT_METRICS,
)
METRIC_BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}

TARGET_LABELS: tuple[str, ...] = ("cluster", "node", "rack", "rail")
"""Set by service discovery or by the pushing agent, never stated as a sample label of its own series."""

__all__ = [
    "CORE_METRICS",
    "METRICS",
    "METRIC_BY_NAME",
    "RATE_SLACK_S",
    "TARGET_LABELS",
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
