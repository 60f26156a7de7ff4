"""Whether the watchers work: targets, agents, detector, rules."""

from __future__ import annotations

from everstep.dashboards.board import Board, Kind, Panel, Query, Unit, floors, limits

BOARD = Board(
    uid="everstep-self",
    title="Everstep / Everstep itself",
    description="Whether the watchers work: targets, agents, detector, rules.",
    panels=(
        Panel(
            title="Targets up",
            description="Scrape targets that answer.",
            unit=Unit.SHORT,
            queries=(Query(expr='sum by (job) (up{job=~"everstep-.+",@cluster})', legend="{{job}}", instant=True),),
            kind=Kind.STAT,
            width=6,
            height=5,
            thresholds=floors(red=1, orange=1),
        ),
        Panel(
            title="Agents heard",
            description="Agents that the service hears.",
            unit=Unit.SHORT,
            queries=(Query(expr="sum(everstep_agent_up{@node})", legend="heard", instant=True),),
            kind=Kind.STAT,
            width=6,
            height=5,
            thresholds=floors(red=1, orange=1),
        ),
        Panel(
            title="Series missing",
            description="Expected minus present.",
            unit=Unit.SHORT,
            queries=(
                Query(
                    expr="sum by (class) (everstep_detector_series_missing{@cluster})", legend="{{class}}", instant=True
                ),
            ),
            kind=Kind.STAT,
            width=6,
            height=5,
            thresholds=limits(orange=1, red=10),
        ),
        Panel(
            title="Standby ready",
            description="Nodes whose pre-imported parent can fork workers at once.",
            unit=Unit.SHORT,
            queries=(
                Query(
                    expr="sum by (train_job) (everstep_agent_standby_ready{@job})", legend="{{train_job}}", instant=True
                ),
            ),
            kind=Kind.STAT,
            width=6,
            height=5,
        ),
        Panel(
            title="Time since the last run",
            description="By stage of the detector.",
            unit=Unit.SECONDS,
            queries=(
                Query(
                    expr="time() - max by (stage) (everstep_detector_last_run_timestamp_seconds{@cluster} > 0)",
                    legend="{{stage}}",
                ),
            ),
            thresholds=limits(orange=10, red=120),
            low=0,
        ),
        Panel(
            title="Run time, p99",
            description="Above the push interval verdicts come late.",
            unit=Unit.SECONDS,
            queries=(Query(expr="stage:everstep_detector_run_duration_seconds:p99{@cluster}", legend="{{stage}}"),),
            thresholds=limits(orange=0.5, red=1),
            low=0,
        ),
        Panel(
            title="Agent collection time",
            description="Time of one full collection by node.",
            unit=Unit.SECONDS,
            queries=(Query(expr="everstep_agent_scrape_duration_seconds{@node}", legend="{{node}}"),),
            thresholds=limits(orange=1, red=10),
            low=0,
        ),
        Panel(
            title="Rejected samples",
            description="A second, by metric and reason.",
            unit=Unit.OPS,
            queries=(
                Query(
                    expr="""
                    sum by (metric, reason)
                    (rate(everstep_detector_samples_rejected_total{@cluster}[$__rate_interval]))
                    """,
                    legend="{{metric}} {{reason}}",
                ),
            ),
            width=12,
            thresholds=limits(orange=0.1, red=1),
            low=0,
        ),
        Panel(
            title="Survived failures",
            description="In an hour, by place; the service's log has each one.",
            unit=Unit.SHORT,
            queries=(
                Query(
                    expr="sum by (where) (increase(everstep_service_errors_total{@cluster}[1h]))", legend="{{where}}"
                ),
            ),
            width=12,
            thresholds=limits(orange=1, red=10),
            low=0,
        ),
        Panel(
            title="Clock offset",
            description="By node; onset times compare only within it.",
            unit=Unit.SECONDS,
            queries=(Query(expr="everstep_node_clock_offset_seconds{@node}", legend="{{node}}"),),
            width=12,
        ),
        Panel(
            title="Age of GPU samples",
            description="Old samples are frozen values.",
            unit=Unit.SECONDS,
            queries=(
                Query(
                    expr="time() - max by (node) (everstep_gpu_last_sample_timestamp_seconds{@node})", legend="{{node}}"
                ),
            ),
            thresholds=limits(orange=15, red=60),
            low=0,
        ),
        Panel(
            title="Age of models",
            description="By model.",
            unit=Unit.SECONDS,
            queries=(Query(expr="max by (model) (everstep_detector_model_age_seconds{@cluster})", legend="{{model}}"),),
            thresholds=limits(orange=86400, red=604800),
            low=0,
        ),
        Panel(
            title="Verdict quality",
            description="False share of the verdicts of a day.",
            unit=Unit.RATIO,
            queries=(
                Query(
                    expr="""
                    sum(increase(everstep_detector_verdicts_total{outcome="false_positive",@cluster}[1d]))
                    / (sum(increase(everstep_detector_verdicts_total{@cluster}[1d])) > 0)
                    """,
                    legend="false",
                ),
            ),
            thresholds=limits(orange=0.1, red=0.2),
            low=0,
            high=1,
        ),
        Panel(
            title="Sources that give nothing",
            description="Of the agents, by node: their calls hang or fail, so their series are absent.",
            unit=Unit.SHORT,
            queries=(
                Query(
                    expr="sum by (node, source) (everstep_agent_source_up{@node} == bool 0)",
                    legend="{{node}} {{source}}",
                ),
            ),
            thresholds=limits(orange=1, red=2),
            low=0,
        ),
    ),
)
