"""The metric table keeps its promises: 27 numbered rows, lawful names and labels, gates that refuse the impossible."""

import ast
import math
import subprocess
import sys
from pathlib import Path

import pytest

from everstep.core import metrics
from everstep.core.faults import FAULT_BY_ID
from everstep.core.metrics import CORE_METRICS, METRIC_BY_NAME, METRICS, Gate, Metric, MetricClass, MetricKind, Source

OF_CLASS = {MetricClass.HARDWARE: range(1, 10), MetricClass.TRAINING: range(10, 19), MetricClass.SYSTEM: range(19, 28)}
SUFFIX_OF_UNIT = {
    "celsius": "celsius",
    "watts": "watts",
    "bytes": "bytes",
    "bytes per second": "bytes_per_second",
    "seconds": "seconds",
    "unix seconds": "timestamp_seconds",
    "hertz": "hertz",
    "ratio": "ratio",
    "lanes": "lanes",
}
COUNTS_BY_PARTICIPLE = {
    "everstep_agent_samples_rejected_total",
    "everstep_detector_samples_rejected_total",
    "everstep_detector_suppressed_total",
}
NOT_BASE_UNITS = ("milli", "micro", "nano", "percent", "mib", "mb_", "gb_", "ms_", "us_", "mhz", "minutes", "hours")
COMPANIONS_OF_THE_REFERENCE = [
    "gpu_up",
    "gpus_expected",
    "gpu_info",
    "gpu_memory_total_bytes",
    "gpu_power_limit_watts",
    "gpu_row_remap_state",
    "gpu_row_remaps_total",
    "gpu_recovery_action",
    "gpu_last_sample_timestamp_seconds",
    "train_run_info",
    "train_rank_info",
    "train_steps_total",
    "train_collective_sequence",
    "rdma_bytes_total",
    "train_sample_hash",
    "train_update_norm",
    "gpu_seconds_total",
    "checkpoint_last_success_timestamp_seconds",
    "checkpoint_duration_seconds",
    "train_restarts_total",
    "comm_bytes_total",
    "fault_detection_delay_seconds",
    "recovery_duration_seconds",
    "anomaly_score",
    "baseline_lower",
    "baseline_upper",
    "detector_last_run_timestamp_seconds",
    "detector_run_duration_seconds",
    "detector_model_age_seconds",
    "detector_samples_rejected_total",
    "detector_series_missing",
    "detector_verdicts_total",
    "detector_suppressed_total",
    "rca_node_score",
    "rca_edge_weight",
    "gpu_sm_clock_hertz",
    "gpu_nvlink_bytes_total",
    "gpu_pcie_bytes_total",
    "gpu_pcie_link_width_lanes",
    "gpu_pcie_link_generation",
    "gpu_ecc_aggregate_errors_total",
    "gpu_memory_allocated_bytes",
    "train_state",
    "train_local_gradient_norm",
    "train_loss_scale",
    "train_skipped_steps_total",
    "train_replica_checksum_mismatches_total",
    "host_memory_total_bytes",
    "host_oom_kills_total",
    "filesystem_available_ratio",
    "host_fan_speed_ratio",
    "host_blocked_tasks",
    "node_clock_offset_seconds",
    "agent_scrape_duration_seconds",
]

each_metric = pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)


def test_the_27_are_numbered_in_order() -> None:
    assert [metric.number for metric in CORE_METRICS] == list(range(1, 28))
    assert [metric.number for metric in METRICS[27:]] == [None] * (len(METRICS) - 27)


def test_each_class_owns_its_nine_numbers() -> None:
    for metric in CORE_METRICS:
        assert metric.number in OF_CLASS[metric.metric_class]


def test_names_are_unique() -> None:
    assert len(METRIC_BY_NAME) == len(METRICS)


@pytest.mark.parametrize("name", COMPANIONS_OF_THE_REFERENCE)
def test_every_companion_of_the_reference_is_there(name: str) -> None:
    assert METRIC_BY_NAME[f"everstep_{name}"].number is None


@each_metric
def test_name_follows_the_rules(metric: Metric) -> None:
    assert metric.name.startswith("everstep_")
    assert metric.name == metric.name.lower()
    assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
    assert metric.name.endswith("_info") == (metric.kind is MetricKind.INFO)
    assert not any(f"_{unit}" in metric.name for unit in NOT_BASE_UNITS)
    assert not metric.name.endswith(("_sum", "_count", "_bucket", "_created"))


@each_metric
def test_unit_is_in_the_name(metric: Metric) -> None:
    if metric.unit in SUFFIX_OF_UNIT:
        assert metric.name.removesuffix("_total").endswith(SUFFIX_OF_UNIT[metric.unit])
    elif metric.kind is MetricKind.COUNTER:
        counted = metric.name.removesuffix("_total").rsplit("_", 1)[-1]
        assert counted in {metric.unit, "remaps"} or metric.name in COUNTS_BY_PARTICIPLE


@each_metric
def test_labels_are_lawful(metric: Metric) -> None:
    names = metric.label_names
    assert len(set(names)) == len(names)
    assert not {"job", "instance", "pid", "pod", "step", "host"} & set(names)
    assert not {"cluster", "rack", "rail"} & set(names), "target labels come from discovery"
    if "attempt" in names:
        assert metric.name == "everstep_train_run_info"
    if "node" in names:
        assert metric.name == "everstep_train_rank_info" or metric.source is Source.DETECTOR
    for label in metric.labels:
        assert len(set(label.values)) == len(label.values)


@each_metric
def test_row_is_whole(metric: Metric) -> None:
    assert metric.help.endswith(".")
    assert (metric.kind is MetricKind.HISTOGRAM) == bool(metric.buckets)
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert len(metric.buckets) <= 10
    assert metric.gate.low <= metric.gate.high
    assert set(metric.reveals) <= set(FAULT_BY_ID)
    assert metric.gate_by is None or metric.gate_by in METRIC_BY_NAME


@each_metric
def test_only_loss_and_norms_let_nonfinite_values_pass(metric: Metric) -> None:
    assert metric.gate.nonfinite == (metric.name == "everstep_train_loss" or metric.name.endswith("_norm"))


def test_rank_record_metrics_have_closed_labels() -> None:
    for metric in METRICS:
        if metric.source is Source.CALLBACK:
            assert all(label.values for label in metric.labels if label.name not in {"train_job", "rank"}), metric.name


@pytest.mark.parametrize(
    ("name", "value", "admitted"),
    [
        ("everstep_gpu_temperature_celsius", 58.0, True),
        ("everstep_gpu_temperature_celsius", 82505.0, False),
        ("everstep_gpu_temperature_celsius", 0.0, False),
        ("everstep_gpu_utilization_ratio", 4294967295.0, False),
        ("everstep_gpu_power_watts", math.nan, False),
        ("everstep_train_loss", math.nan, True),
        ("everstep_train_loss", 1e9, False),
        ("everstep_gpu_pcie_link_width_lanes", 12.0, False),
        ("everstep_gpu_pcie_link_width_lanes", 8.0, True),
        ("everstep_cluster_gpus", 7.5, False),
        ("everstep_gpu_up", 0.5, False),
    ],
)
def test_gate_of(name: str, value: float, admitted: bool) -> None:
    assert METRIC_BY_NAME[name].gate.admits(value) is admitted


def test_timestamps_are_judged_against_the_clock_that_is_passed_in() -> None:
    gate = METRIC_BY_NAME["everstep_train_last_step_timestamp_seconds"].gate
    now = 1_700_000_000.0
    assert gate.admits(now - 60, now=now)
    assert gate.admits(now + 5, now=now)
    assert not gate.admits(now + 6, now=now)
    assert not gate.admits(now - 31 * 86400, now=now)
    assert gate.admits(now), "without a clock there is nothing to judge by"


def test_a_gate_with_choices_takes_nothing_else() -> None:
    assert Gate(choices=(1, 2)).admits(2)
    assert not Gate(choices=(1, 2)).admits(1.5)


def test_power_is_bounded_by_its_own_limit() -> None:
    power = METRIC_BY_NAME["everstep_gpu_power_watts"]
    assert (power.gate_by, power.gate_factor) == ("everstep_gpu_power_limit_watts", 1.5)


def test_the_table_needs_the_standard_library_only() -> None:
    loaded = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, everstep.core.faults, everstep.core.rank_record; print(sorted(sys.modules))",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout
    strange = {
        name.split(".")[0]
        for name in ast.literal_eval(loaded)
        if name.split(".")[0] not in sys.stdlib_module_names and not name.startswith(("everstep", "_", "__editable__"))
    }
    assert not strange & {"numpy", "pydantic", "yaml", "prometheus_client", "torch", "pandas"}


def test_every_exported_name_exists() -> None:
    assert all(hasattr(metrics, name) for name in metrics.__all__)
    assert Path(metrics.__file__).name == "__init__.py"
