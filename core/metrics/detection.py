"""Self-monitoring of detector, root-cause engine and controller, and what the service says of its agents."""

from __future__ import annotations

from functools import partial

from everstep.core.metrics.spec import Bad, Gate, Label, Metric, MetricClass, MetricKind, Role, Scope, Source
from everstep.core.metrics.training import JOB

STAGES = ("ingest", "baseline", "forest", "rca")
REJECTIONS = ("range", "stale", "duplicate", "reset", "clock", "fenced", "limit", "unknown")
SUPPRESSIONS = ("maintenance", "recovering", "storm", "breaker")
ALERT_OUTCOMES = (
    "duplicate",
    "own",
    "ignored",
    "watched",
    "reported",
    "told",
    "echo",
    "resolved",
    "storm",
)
VERDICTS = ("confirmed", "false_positive", "unknown")
SURVIVED_AT = ("monitor", "recovery", "probe", "forest", "store", "fleet", "launcher", "history")
RUN_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)

_own = partial(Metric, metric_class=MetricClass.EVERSTEP, scope=Scope.CLUSTER, role=Role.OBSERVER)
_detector = partial(_own, source=Source.DETECTOR)
_controller = partial(_own, source=Source.CONTROLLER)
_rca = partial(_own, source=Source.RCA, kind=MetricKind.GAUGE, gate=Gate(low=0, high=1))
_METRIC = Label(name="metric")
_NODE = Label(name="node")
_STAGE = Label(name="stage", values=STAGES)

DETECTION_METRICS: tuple[Metric, ...] = (
    _detector(
        name="everstep_anomaly_score",
        kind=MetricKind.GAUGE,
        unit="score",
        help="Newest score of a watched metric, 0 to 1; carries train_job or node, whichever the series belongs to.",
        labels=(_METRIC, JOB, _NODE),
        gate=Gate(low=0, high=1),
        bad=(Bad.HIGH,),
    ),
    _detector(
        name="everstep_baseline_lower",
        kind=MetricKind.GAUGE,
        unit="unit of the metric",
        help="Lower edge of the learned band of a metric.",
        labels=(_METRIC, JOB, _NODE),
        bad=(Bad.ABSENT,),
    ),
    _detector(
        name="everstep_baseline_upper",
        kind=MetricKind.GAUGE,
        unit="unit of the metric",
        help="Upper edge of the learned band of a metric.",
        labels=(_METRIC, JOB, _NODE),
        bad=(Bad.ABSENT,),
    ),
    _detector(
        name="everstep_detector_last_run_timestamp_seconds",
        kind=MetricKind.GAUGE,
        unit="unix seconds",
        help="When a stage of the detector last ran to its end.",
        labels=(_STAGE,),
        gate=Gate(low=-86400, high=5, from_now=True),
        bad=(Bad.STOP,),
    ),
    _detector(
        name="everstep_detector_run_duration_seconds",
        kind=MetricKind.HISTOGRAM,
        unit="seconds",
        help="Time of one run of a stage; above the push interval means overload.",
        labels=(_STAGE,),
        gate=Gate(low=0, high=3600),
        bad=(Bad.HIGH,),
        buckets=RUN_BUCKETS,
    ),
    _detector(
        name="everstep_detector_model_age_seconds",
        kind=MetricKind.GAUGE,
        unit="seconds",
        help="Age of a learned model.",
        labels=(Label(name="model"),),
        gate=Gate(low=0, high=1e8),
        bad=(Bad.HIGH,),
    ),
    _detector(
        name="everstep_detector_samples_rejected_total",
        kind=MetricKind.COUNTER,
        unit="samples",
        help="Samples that the input gate refused, by reason; one is noise, a rise is a monitoring fault.",
        labels=(_METRIC, Label(name="reason", values=REJECTIONS)),
        gate=Gate(low=0, high=1e9, per_second=True),
        bad=(Bad.HIGH,),
        reveals=("F31",),
    ),
    _detector(
        name="everstep_detector_series_missing",
        kind=MetricKind.GAUGE,
        unit="series",
        help="Series expected minus series present.",
        labels=(Label(name="class", values=("hardware", "training", "system")),),
        gate=Gate(low=0, high=1e9),
        bad=(Bad.HIGH,),
        reveals=("F01", "F31"),
    ),
    _controller(
        name="everstep_detector_verdicts_total",
        kind=MetricKind.COUNTER,
        unit="verdicts",
        help="Verdicts by fault and what became of them.",
        labels=(Label(name="fault"), Label(name="outcome", values=VERDICTS)),
        gate=Gate(low=0, high=1e3, per_second=True),
        bad=(Bad.HIGH,),
    ),
    _controller(
        name="everstep_detector_suppressed_total",
        kind=MetricKind.COUNTER,
        unit="verdicts",
        help="Verdicts held back, by reason.",
        labels=(Label(name="reason", values=SUPPRESSIONS),),
        gate=Gate(low=0, high=1e3, per_second=True),
        bad=(Bad.HIGH,),
    ),
    _controller(
        name="everstep_alerts_total",
        kind=MetricKind.COUNTER,
        unit="alerts",
        help="Alerts that Alertmanager's webhook brought, by what became of them; repeats count as duplicates.",
        labels=(Label(name="outcome", values=ALERT_OUTCOMES),),
        gate=Gate(low=0, high=1e4, per_second=True),
    ),
    _controller(
        name="everstep_alert_posts_total",
        kind=MetricKind.COUNTER,
        unit="posts",
        help="Verdicts posted to Alertmanager; a failed one is tried again, a dropped one is not.",
        labels=(Label(name="outcome", values=("sent", "failed", "dropped")),),
        gate=Gate(low=0, high=1e4, per_second=True),
        bad=(Bad.HIGH,),
    ),
    _rca(
        name="everstep_rca_node_score",
        unit="score",
        help="Suspicion of a node of the cause graph, for the node graph panel.",
        labels=(Label(name="id"), Label(name="title")),
    ),
    _rca(
        name="everstep_rca_edge_weight",
        unit="weight",
        help="Weight of an edge of the cause graph, for the node graph panel.",
        labels=(Label(name="id"), Label(name="source"), Label(name="target")),
    ),
    _own(
        name="everstep_agent_up",
        kind=MetricKind.GAUGE,
        unit="flag",
        help="1 while the service hears the node's agent: pushes arrive, or its probe answers.",
        source=Source.DETECTOR,
        labels=(_NODE,),
        gate=Gate(choices=(0, 1)),
        bad=(Bad.LOW, Bad.ABSENT),
        reveals=("F18", "F31"),
    ),
    _own(
        name="everstep_service_errors_total",
        kind=MetricKind.COUNTER,
        unit="errors",
        help="Failures that the service survived at a thread boundary or in its store, by place.",
        source=Source.CONTROLLER,
        labels=(Label(name="where", values=SURVIVED_AT),),
        gate=Gate(low=0, high=1e3, per_second=True),
        bad=(Bad.HIGH,),
    ),
)
