"""What broke, what caused it, what was done, and how fast."""

from __future__ import annotations

from everstep.dashboards.board import Board, Kind, Panel, Query, Unit, limits

BOARD = Board(
    uid="everstep-incidents",
    title="Everstep / Incidents and root causes",
    description="What broke, what caused it, what was done, and how fast.",
    panels=(
        Panel(
            title="Ranked causes",
            description="Suspicion of each node of the cause graph, highest first.",
            unit=Unit.RATIO,
            queries=(Query(expr="sort_desc(max by (id, title) (everstep_rca_node_score))"),),
            kind=Kind.TABLE,
            width=10,
            renamed=(("Value", "suspicion"),),
        ),
        Panel(
            title="Cause graph",
            description="From the root to the symptoms; wide edges carry more weight.",
            unit=Unit.NONE,
            queries=(
                Query(expr="max by (id, title) (everstep_rca_node_score)"),
                Query(expr="max by (id, source, target) (everstep_rca_edge_weight)"),
            ),
            kind=Kind.NODE_GRAPH,
            width=14,
        ),
        Panel(
            title="Verdicts",
            description="Verdicts a day by fault and outcome.",
            unit=Unit.SHORT,
            queries=(
                Query(
                    expr="sum by (fault, outcome) (increase(everstep_detector_verdicts_total{@cluster}[1d])) > 0",
                    legend="{{fault}} {{outcome}}",
                ),
            ),
            width=12,
            low=0,
        ),
        Panel(
            title="Restarts by cause",
            description="Restarts a day.",
            unit=Unit.SHORT,
            queries=(
                Query(expr="sum by (cause) (increase(everstep_train_restarts_total{@job}[1d]))", legend="{{cause}}"),
            ),
            width=12,
            low=0,
        ),
        Panel(
            title="Time to detect",
            description="Median from onset to verdict since the service started, by fault.",
            unit=Unit.SECONDS,
            queries=(Query(expr="fault:everstep_fault_detection_delay_seconds:median{@cluster}", legend="{{fault}}"),),
            thresholds=limits(orange=5, red=60),
            low=0,
        ),
        Panel(
            title="Time to recover",
            description="Median from verdict to the first verified step since the service started, by action.",
            unit=Unit.SECONDS,
            queries=(Query(expr="action:everstep_recovery_duration_seconds:median{@cluster}", legend="{{action}}"),),
            thresholds=limits(orange=30, red=300),
            low=0,
        ),
        Panel(
            title="Recoveries by outcome",
            description="Escalated ones wait for a person.",
            unit=Unit.SHORT,
            queries=(
                Query(
                    expr="sum by (outcome) (increase(everstep_recovery_duration_seconds_count{@cluster}[1d]))",
                    legend="{{outcome}}",
                ),
            ),
            low=0,
        ),
        Panel(
            title="Anomaly scores",
            description="Metrics outside their learned band; 1 is the limit.",
            unit=Unit.RATIO,
            queries=(
                Query(
                    expr="max by (metric, train_job) (everstep_anomaly_score{@cluster})",
                    legend="{{metric}} {{train_job}}",
                ),
            ),
            width=12,
            thresholds=limits(orange=0.7, red=1),
            low=0,
            high=1,
        ),
        Panel(
            title="Held back",
            description="Verdicts that a guard-rail suppressed.",
            unit=Unit.SHORT,
            queries=(
                Query(
                    expr="sum by (reason) (increase(everstep_detector_suppressed_total{@cluster}[1h]))",
                    legend="{{reason}}",
                ),
            ),
            width=12,
            thresholds=limits(orange=5, red=20),
            low=0,
        ),
    ),
)
