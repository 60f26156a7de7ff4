"""Recording rules: rates, percentiles, goodput windows, and the medians and MADs that peers are judged by."""

from __future__ import annotations

from dataclasses import dataclass

from everstep.alertrules.rule import Group, Recording

GOODPUT_WINDOWS = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """A metric whose members are compared with the median of their group, in units of its MAD.

    `smooth` is the expression per member with the group's labels on it; records are named `<level>:<metric>:…`.
    """

    metric: str
    level: str
    group_level: str
    group: str
    smooth: str

    @property
    def member_record(self) -> str:
        return f"{self.level}:{self.metric}:median2m"

    @property
    def median_record(self) -> str:
        return f"{self.group_level}:{self.metric}:median"

    @property
    def mad_record(self) -> str:
        return f"{self.group_level}:{self.metric}:mad"

    @property
    def score_record(self) -> str:
        return f"{self.level}:{self.metric}:peer_score"

    def rules(self) -> tuple[Recording, ...]:
        median = f"on ({self.group}) group_left () {self.median_record}"
        return (
            Recording(record=self.member_record, expr=self.smooth),
            Recording(record=self.median_record, expr=f"quantile by ({self.group}) (0.5, {self.member_record})"),
            Recording(
                record=self.mad_record,
                expr=f"quantile by ({self.group}) (0.5, abs({self.member_record} - {median}))",
            ),
            # 1.4826 MAD estimates a standard deviation; the floor of 1 % of the median keeps equal peers from
            # making the score explode.
            Recording(
                record=self.score_record,
                expr=f"""
                ({self.member_record} - {median})
                / on ({self.group}) group_left ()
                (1.4826 * {self.mad_record} + 0.01 * abs({self.median_record}))
                """,
            ),
        )


PEERS = (
    Peers(
        metric="everstep_train_step_compute_seconds",
        level="rank",
        group_level="train_job",
        group="cluster, train_job",
        smooth="quantile_over_time(0.5, everstep_train_step_compute_seconds[2m])",
    ),
    Peers(
        metric="everstep_gpu_temperature_celsius",
        level="gpu",
        group_level="cluster",
        group="cluster",
        smooth='quantile_over_time(0.5, everstep_gpu_temperature_celsius{sensor="core"}[2m])',
    ),
    Peers(
        metric="everstep_gpu_power_watts",
        level="gpu",
        group_level="cluster",
        group="cluster",
        smooth="quantile_over_time(0.5, everstep_gpu_power_watts[2m])",
    ),
    Peers(
        metric="everstep_gpu_sm_clock_hertz",
        level="gpu",
        group_level="cluster",
        group="cluster",
        smooth="quantile_over_time(0.5, everstep_gpu_sm_clock_hertz[2m])",
    ),
)
PEERS_OF = {peers.metric: peers for peers in PEERS}


def _percentile(record: str, share: float, histogram: str, by: str, window: str) -> Recording:
    return Recording(
        record=record,
        expr=f"histogram_quantile({share}, sum by ({by}, le) (rate({histogram}_bucket[{window}])))",
    )


def _median_of_all(record: str, histogram: str, by: str) -> Recording:
    """Of events so rare that their series are born with the first one: a rate would never show that one."""
    return Recording(record=record, expr=f"histogram_quantile(0.5, sum by ({by}, le) ({histogram}_bucket))")


def _rate(record: str, counter: str, by: str, window: str = "2m") -> Recording:
    return Recording(record=record, expr=f"sum by ({by}) (rate({counter}[{window}]))")


def goodput_record(window: str) -> str:
    return f"train_job:everstep_goodput:ratio{window}"


TRAINING = Group(
    name="everstep-recording-training",
    rules=(
        _percentile(
            "train_job:everstep_train_step_duration_seconds:median30m",
            0.5,
            "everstep_train_step_duration_seconds",
            "cluster, train_job",
            "30m",
        ),
        _percentile(
            "train_job:everstep_train_step_duration_seconds:p99",
            0.99,
            "everstep_train_step_duration_seconds",
            "cluster, train_job",
            "5m",
        ),
        Recording(
            record="train_job:everstep_train_last_step_age:seconds",
            expr="time() - max by (cluster, train_job) (everstep_train_last_step_timestamp_seconds > 0)",
        ),
        _rate("train_job:everstep_train_tokens:rate2m", "everstep_train_tokens_total", "cluster, train_job"),
        _rate(
            "rank:everstep_train_phase_seconds:rate2m",
            "everstep_train_phase_seconds_total",
            "cluster, train_job, rank, phase",
        ),
        _rate("rank:everstep_train_steps:rate2m", "everstep_train_steps_total", "cluster, train_job, rank"),
    ),
)

SYSTEM = Group(
    name="everstep-recording-system",
    rules=(
        Recording(
            record="node:everstep_gpus_present:count",
            expr="""
            count by (cluster, node) (everstep_gpu_up)
            or max by (cluster, node) (everstep_gpus_expected) * 0
            """,
        ),
        Recording(
            record="node:everstep_gpus_missing:count",
            expr="max by (cluster, node) (everstep_gpus_expected) - node:everstep_gpus_present:count",
        ),
        _rate("node:everstep_gpu_nvlink_bytes:rate2m", "everstep_gpu_nvlink_bytes_total", "cluster, node"),
        _rate("node:everstep_net_bytes:rate2m", "everstep_net_bytes_total", "cluster, node, direction"),
        _rate("port:everstep_net_bytes:rate2m", "everstep_net_bytes_total", "cluster, rack, node, device, port"),
        _percentile(
            "node:everstep_net_latency_seconds:p99", 0.99, "everstep_net_latency_seconds", "cluster, node", "5m"
        ),
        _percentile(
            "target:everstep_storage_latency_seconds:p99",
            0.99,
            "everstep_storage_latency_seconds",
            "cluster, node, target, op",
            "5m",
        ),
        _rate(
            "target:everstep_storage_transferred_bytes:rate2m",
            "everstep_storage_transferred_bytes_total",
            "cluster, target, direction",
        ),
        Recording(
            record="node:everstep_host_memory_available:ratio",
            expr="""
            max by (cluster, node) (everstep_host_memory_available_bytes)
            / max by (cluster, node) (everstep_host_memory_total_bytes)
            """,
        ),
        _rate(
            "node:everstep_pressure_stalled:rate2m",
            "everstep_pressure_stalled_seconds_total",
            "cluster, node, resource, kind",
        ),
        _percentile(
            "queue:everstep_queue_wait_seconds:p95", 0.95, "everstep_queue_wait_seconds", "cluster, queue", "1h"
        ),
    ),
)

SLO = Group(
    name="everstep-recording-slo",
    rules=(
        *(
            Recording(
                record=goodput_record(window),
                expr=f"""
                sum by (cluster, train_job) (rate(everstep_gpu_seconds_total{{class="productive"}}[{window}]))
                / sum by (cluster, train_job) (rate(everstep_gpu_seconds_total[{window}]) > 0)
                """,
            )
            for window in GOODPUT_WINDOWS
        ),
        _median_of_all(
            "fault:everstep_fault_detection_delay_seconds:median",
            "everstep_fault_detection_delay_seconds",
            "cluster, fault",
        ),
        _median_of_all(
            "action:everstep_recovery_duration_seconds:median", "everstep_recovery_duration_seconds", "cluster, action"
        ),
        _percentile(
            "stage:everstep_detector_run_duration_seconds:p99",
            0.99,
            "everstep_detector_run_duration_seconds",
            "cluster, stage",
            "5m",
        ),
    ),
)

PEER_GROUP = Group(name="everstep-recording-peers", rules=tuple(rule for peers in PEERS for rule in peers.rules()))

GROUPS = (TRAINING, SYSTEM, SLO, PEER_GROUP)
