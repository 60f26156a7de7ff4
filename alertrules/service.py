"""Alerts on the watchers themselves: targets, frozen exporters, detector, learned bands, controller."""

from __future__ import annotations

from everstep.alertrules.rule import Alert, Group
from everstep.core.actions import ActionKind

TARGETS = (
    Alert(
        name="TargetDown",
        component="service",
        fault="F31",
        expr='avg_over_time(up{job=~"everstep-.+"}[5m]) < 0.5',
        hold="1m",
        summary="{{ $labels.job }} at {{ $labels.instance }} is not scraped",
        description="A failed scrape alone is no crash of the node.",
    ),
    Alert(
        name="TargetFlapping",
        component="service",
        fault="F31",
        expr='changes(up{job=~"everstep-.+"}[10m]) > 4',
        keep="5m",
        summary="{{ $labels.job }} at {{ $labels.instance }} comes and goes",
        description="{{ $value }} changes in 10 minutes hide shorter outages from other rules.",
    ),
    Alert(
        name="ServiceDown",
        component="service",
        fault="F31",
        severity="critical",
        action=ActionKind.FIX_SERVICE,
        expr='absent(up{job="everstep-service"} == 1)',
        hold="30s",
        summary="The Everstep service does not run",
        description="Nobody detects or heals until it is back; jobs go on.",
    ),
    Alert(
        name="RankSeriesVanished",
        component="service",
        fault="F31",
        expr="""
        max by (cluster, train_job, rank) (everstep_train_rank_info)
        unless on (cluster, train_job, rank) everstep_train_steps_total
        """,
        hold="2m",
        summary="Rank {{ $labels.rank }} of {{ $labels.train_job }} reports no steps",
        description="The rank is placed, but its record is not read. While others step it is a monitoring fault.",
    ),
    Alert(
        name="GpuSamplesFrozen",
        component="service",
        fault="F31",
        expr="""
        max by (cluster, node, gpu) (stddev_over_time(everstep_gpu_temperature_celsius{sensor="core"}[5m])) == 0
        and on (cluster, node, gpu)
        max by (cluster, node, gpu) (stddev_over_time(everstep_gpu_power_watts[5m])) == 0
        and on (cluster, node, gpu)
        max by (cluster, node, gpu) (everstep_gpu_utilization_ratio{engine="sm"}) > 0
        """,
        hold="2m",
        summary="Values of GPU {{ $labels.gpu }} of {{ $labels.node }} are frozen",
        description="Neither temperature nor power moves under load: the exporter repeats old values.",
    ),
)

AGENT = (
    Alert(
        name="AgentSourceDown",
        component="service",
        fault="F31",
        expr="min by (cluster, node, source) (everstep_agent_source_up) == 0",
        hold="2m",
        summary="Source {{ $labels.source }} of {{ $labels.node }} gives nothing",
        description="Its call hangs or fails, so its series are absent; everything else of the node is still watched.",
    ),
    Alert(
        name="AgentSamplesRejected",
        component="service",
        fault="F31",
        expr="sum by (cluster, node, metric, reason) (rate(everstep_agent_samples_rejected_total[5m])) > 0.2",
        hold="5m",
        summary="{{ $labels.node }} reads impossible values of {{ $labels.metric }} ({{ $labels.reason }})",
        description="{{ $value | humanize }} a second do not leave the node. One is noise, a rise is a broken driver.",
    ),
)

DETECTOR = (
    Alert(
        name="DetectorStalled",
        component="service",
        fault="F31",
        expr="time() - max by (cluster, stage) (everstep_detector_last_run_timestamp_seconds > 0) > 120",
        summary="Detector stage {{ $labels.stage }} has not run for {{ $value | humanizeDuration }}",
        description="Faults go unseen on the live path; the rules here still work.",
    ),
    Alert(
        name="DetectorOverloaded",
        component="service",
        fault="F31",
        expr="stage:everstep_detector_run_duration_seconds:p99 > 1",
        hold="5m",
        summary="Detector stage {{ $labels.stage }} takes {{ $value | humanizeDuration }}",
        description="Longer than the push interval, so verdicts come late.",
    ),
    Alert(
        name="DetectorModelStale",
        component="service",
        fault="F31",
        severity="info",
        expr="max by (cluster, model) (everstep_detector_model_age_seconds) > 604800",
        hold="10m",
        summary="Model {{ $labels.model }} is {{ $value | humanizeDuration }} old",
        description="Bands learned long ago no longer describe the job.",
    ),
    Alert(
        name="SamplesRejected",
        component="service",
        fault="F31",
        expr="sum by (cluster, metric, reason) (rate(everstep_detector_samples_rejected_total[5m])) > 1",
        hold="5m",
        summary="Samples of {{ $labels.metric }} are refused ({{ $labels.reason }})",
        description="{{ $value | humanize }} a second. One is noise, a rise is a broken exporter.",
    ),
    Alert(
        name="SeriesMissing",
        component="service",
        fault="F31",
        expr="max by (cluster, class) (everstep_detector_series_missing) > 0",
        hold="5m",
        summary="{{ $value }} {{ $labels.class }} series are missing",
        description="Expected by the topology, not received.",
    ),
    Alert(
        name="AnomalyScoreHigh",
        component="service",
        fault="UNKNOWN",
        severity="warning",
        action=ActionKind.WATCH,
        expr="max by (cluster, metric, train_job, node) (everstep_anomaly_score) >= 1",
        hold="30s",
        keep="2m",
        summary="{{ $labels.metric }} leaves its learned band",
        description="The one rule for all learned bands; the service's incident says what it means.",
    ),
)

CONTROLLER = (
    Alert(
        name="RecoveryEscalated",
        component="service",
        fault="UNKNOWN",
        severity="critical",
        action=ActionKind.PAGE_HUMAN,
        expr='sum by (cluster) (increase(everstep_recovery_duration_seconds_count{outcome="escalated"}[10m])) > 0',
        summary="A recovery in {{ $labels.cluster }} needs a person",
        description="The controller has used up what it may do by itself; its incident holds the evidence.",
    ),
    Alert(
        name="VerdictsSuppressed",
        component="service",
        fault="F31",
        expr="""
        sum by (cluster, reason) (
          increase(everstep_detector_suppressed_total{reason=~"storm|breaker"}[10m])
        ) > 20
        """,
        summary="{{ $value | humanize }} verdicts were held back ({{ $labels.reason }})",
        description="Many verdicts at once have one cause, often in the monitoring.",
    ),
    Alert(
        name="FalsePositivesHigh",
        component="service",
        fault="F31",
        expr="""
        sum by (cluster) (increase(everstep_detector_verdicts_total{outcome="false_positive"}[1d]))
        / (sum by (cluster) (increase(everstep_detector_verdicts_total[1d])) > 4) > 0.2
        """,
        summary="{{ $value | humanizePercentage }} of the verdicts in {{ $labels.cluster }} were wrong",
        description="Over a day and at least five verdicts.",
    ),
)

WATCHDOG = Alert(
    name="Watchdog",
    component="service",
    severity="none",
    action=ActionKind.WATCH,
    expr="vector(1)",
    summary="The alert path works",
    description="Always firing. When it stops arriving, Prometheus or Alertmanager is down.",
)

GROUPS = (Group(name="everstep-service", rules=(WATCHDOG, *TARGETS, *AGENT, *DETECTOR, *CONTROLLER)),)
