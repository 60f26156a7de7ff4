"""What the agent's gate lets out, and what it keeps and counts."""

from __future__ import annotations

import math

import pytest
from structlog.testing import capture_logs

from everstep.collector.gate import Gate, Rejections, merge
from everstep.collector.samples import Labels, Sample

GPU: Labels = (("gpu", "0"), ("uuid", "GPU-0"))
NOW = 1_700_000_000.0
CORE = (*GPU, ("sensor", "core"))
ECC = (*GPU, ("type", "corrected"))


def sample(metric: str, value: float, labels: Labels = GPU, suffix: str = "") -> Sample:
    return Sample(metric=metric, value=value, labels=labels, suffix=suffix)


class Bench:
    """A gate fed with one reading a second."""

    def __init__(self) -> None:
        self.rejections = Rejections()
        self.gate = Gate(self.rejections)
        self.at = 0.0

    def admit(self, *samples: Sample, after_s: float = 1.0) -> list[float]:
        self.at += after_s
        return [one.value for one in self.gate.admit(samples, at=self.at, now=NOW + self.at).values()]

    @property
    def counts(self) -> dict[tuple[str, ...], float]:
        return {tuple(value for _, value in one.labels): one.value for one in self.rejections.collect()}


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize(
    ("metric", "labels", "value"),
    [
        ("everstep_gpu_temperature_celsius", CORE, 82505.0),
        ("everstep_gpu_temperature_celsius", CORE, 644245923.0),
        ("everstep_gpu_temperature_celsius", CORE, 0.0),
        ("everstep_gpu_temperature_celsius", CORE, math.nan),
        ("everstep_gpu_utilization_ratio", (*GPU, ("engine", "sm")), 42949672.95),
        ("everstep_gpu_power_watts", GPU, math.inf),
        ("everstep_gpu_ecc_errors_total", ECC, 9.223372036854775807e18),
        ("everstep_gpu_ecc_errors_total", ECC, 18446744073709551615.0),
        ("everstep_gpu_ecc_errors_total", ECC, -1.0),
        ("everstep_gpu_ecc_errors_total", ECC, math.nan),
        ("everstep_gpu_row_remap_state", (*GPU, ("state", "pending")), 2.0),
    ],
)
def test_the_impossible_stays_here(bench: Bench, metric: str, labels: Labels, value: float) -> None:
    assert bench.admit(sample(metric, value, labels)) == []
    assert bench.counts == {(metric, "range"): 1}


def test_one_bogus_value_leaves_its_neighbours_alone(bench: Bench) -> None:
    memory = sample("everstep_gpu_temperature_celsius", 60.0, (*GPU, ("sensor", "memory")))
    assert bench.admit(sample("everstep_gpu_temperature_celsius", 82505.0, CORE), memory) == [60.0]
    assert bench.admit(sample("everstep_gpu_temperature_celsius", 55.0, CORE), memory) == [55.0, 60.0]


def test_power_is_judged_by_the_limit_of_its_own_gpu(bench: Bench) -> None:
    other: Labels = (("gpu", "1"), ("uuid", "GPU-1"))
    limits = [
        sample("everstep_gpu_power_limit_watts", 400.0),
        sample("everstep_gpu_power_limit_watts", 700.0, other),
    ]
    power = [sample("everstep_gpu_power_watts", 601.0), sample("everstep_gpu_power_watts", 601.0, other)]
    assert bench.admit(*limits, *power) == [400.0, 700.0, 601.0]
    assert bench.admit(sample("everstep_gpu_power_watts", 600.0)) == [600.0]
    assert bench.counts == {("everstep_gpu_power_watts", "range"): 1}


def test_no_more_memory_is_used_than_there_is(bench: Bench) -> None:
    total = sample("everstep_gpu_memory_total_bytes", 80e9)
    assert bench.admit(total, sample("everstep_gpu_memory_used_bytes", 81e9)) == [80e9]
    assert bench.admit(total, sample("everstep_gpu_memory_used_bytes", 80e9)) == [80e9, 80e9]


def test_counters_are_judged_by_their_rise_a_second(bench: Bench) -> None:
    metric = "everstep_gpu_ecc_errors_total"
    assert bench.admit(sample(metric, 5e6, ECC)) == [5e6]
    assert bench.admit(sample(metric, 5.9e6, ECC)) == [5.9e6]
    assert bench.admit(sample(metric, 9e6, ECC)) == []
    assert bench.admit(sample(metric, 9e6, ECC), after_s=10.0) == [9e6], "over a longer time it is possible"


def test_a_fall_is_a_restart_from_zero(bench: Bench) -> None:
    metric = "everstep_gpu_ecc_errors_total"
    bench.admit(sample(metric, 5e6, ECC))
    assert bench.admit(sample(metric, 3.0, ECC)) == [3.0]
    assert bench.admit(sample(metric, 4.0, ECC)) == [4.0]
    assert bench.counts == {}


def test_a_fall_that_is_no_restart_stays_here(bench: Bench) -> None:
    metric, labels = "everstep_gpu_pcie_bytes_total", (*GPU, ("direction", "transmit"))
    bench.admit(sample(metric, 9e15, labels))
    assert bench.admit(sample(metric, 8.9e15, labels)) == [], "to Prometheus this would be a burst of 8.9e15"
    assert bench.counts == {(metric, "reset"): 1}
    assert bench.admit(sample(metric, 9.0000001e15, labels)) == [9.0000001e15]


def test_a_device_may_be_late_with_its_counter(bench: Bench) -> None:
    metric, labels = "everstep_gpu_throttled_seconds_total", (*GPU, ("reason", "power"))
    bench.admit(sample(metric, 10.0, labels))
    assert bench.admit(sample(metric, 11.2, labels)) == [11.2]
    assert bench.admit(sample(metric, 14.0, labels)) == []


def test_a_series_told_twice_counts_once_with_the_highest_value(bench: Bench) -> None:
    metric = "everstep_gpu_power_watts"
    assert bench.admit(sample(metric, 300.0), sample(metric, 400.0), sample(metric, 200.0)) == [400.0]
    assert bench.counts == {(metric, "duplicate"): 2}


def test_times_are_judged_by_the_clock(bench: Bench) -> None:
    metric = "everstep_gpu_last_sample_timestamp_seconds"
    assert bench.admit(sample(metric, NOW)) == [NOW]
    assert bench.admit(sample(metric, NOW + 600)) == []
    assert bench.counts == {(metric, "clock"): 1}


def test_parts_of_a_histogram_need_only_be_numbers(bench: Bench) -> None:
    labels: Labels = (("target", "scratch"), ("op", "fsync"))
    metric = "everstep_storage_latency_seconds"
    assert bench.admit(sample(metric, 12345.0, labels, "_sum"), sample(metric, math.nan, labels, "_count")) == [12345.0]


def test_each_kind_is_told_once(bench: Bench) -> None:
    with capture_logs() as lines:
        for value in (200.0, 300.0):
            bench.admit(sample("everstep_gpu_temperature_celsius", value, CORE))
    assert [(line["event"], line["metric"], line["reason"]) for line in lines] == [
        ("sample_rejected", "everstep_gpu_temperature_celsius", "range")
    ]
    assert "200" in lines[0]["sample"]


def test_series_that_ended_are_forgotten(bench: Bench) -> None:
    metric = "everstep_gpu_ecc_errors_total"
    bench.admit(sample(metric, 5.0, ECC))
    bench.admit(after_s=2000.0)
    assert bench.gate._series == {}


def test_of_two_sources_the_higher_value_counts() -> None:
    metric = "everstep_gpu_power_watts"
    gates = [Gate(Rejections()) for _ in range(2)]
    one, other = (
        gate.admit([sample(metric, value), sample(metric, 100.0 + value, own)], at=1.0, now=NOW)
        for gate, value, own in zip(gates, (300.0, 200.0), (CORE, ECC), strict=True)
    )
    merged, twice = merge([one, other])
    assert sorted(one.value for one in merged.values()) == [300.0, 300.0, 400.0]
    assert twice == [(metric, "", GPU)]
    assert merge([one]) == (one, [])
