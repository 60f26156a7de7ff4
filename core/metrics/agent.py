"""What the node agent says of itself: which of its sources answer, and what its gate refused."""

from __future__ import annotations

from functools import partial

from everstep.core.metrics.spec import Bad, Gate, Label, Metric, MetricClass, MetricKind, Role, Scope, Source

AGENT_SOURCES = (
    "host",
    "infiniband",
    "link_rates",
    "mounts",
    "filesystems",
    "fans",
    "clock",
    "network_probe",
    "storage_probe",
    "scheduler",
    "nvml",
    "gpu",
    "xid",
    "kernel_log",
)
"""`gpu` stands for all GPUs of the node: `everstep_gpu_up` says which."""

PROBE_SOURCES = frozenset({"filesystems", "network_probe", "storage_probe", "scheduler"})
"""These wait for something outside the node: how long they take says nothing about the node's own devices."""

SOURCE_FAILURES = ("timeout", "error")
AGENT_REJECTIONS = ("range", "duplicate", "reset", "clock")

_SOURCE = Label(name="source", values=AGENT_SOURCES)
_agent = partial(Metric, metric_class=MetricClass.EVERSTEP, scope=Scope.NODE, role=Role.OBSERVER, source=Source.AGENT)

AGENT_METRICS: tuple[Metric, ...] = (
    _agent(
        name="everstep_agent_source_up",
        kind=MetricKind.GAUGE,
        unit="flag",
        help="1 while the newest reading of a source of the agent is fresh; with several devices, of all of them.",
        labels=(_SOURCE,),
        gate=Gate(choices=(0, 1)),
        bad=(Bad.LOW,),
        reveals=("F02", "F31"),
    ),
    _agent(
        name="everstep_agent_source_failures_total",
        kind=MetricKind.COUNTER,
        unit="failures",
        help="Readings of a source that failed: still running at the deadline, or ended by an error.",
        labels=(_SOURCE, Label(name="reason", values=SOURCE_FAILURES)),
        gate=Gate(low=0, high=1e4, per_second=True),
        bad=(Bad.HIGH,),
        reveals=("F02", "F31"),
    ),
    _agent(
        name="everstep_agent_samples_rejected_total",
        kind=MetricKind.COUNTER,
        unit="samples",
        help="Samples that the agent's gate kept on the node, by reason; one is noise, a rise is a monitoring fault.",
        labels=(Label(name="metric"), Label(name="reason", values=AGENT_REJECTIONS)),
        gate=Gate(low=0, high=1e9, per_second=True),
        bad=(Bad.HIGH,),
        reveals=("F31",),
    ),
)
