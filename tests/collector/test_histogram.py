from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out

from fake_sysfs import values

from everstep.collector.histogram import Histogram
from everstep.core.metrics import METRIC_BY_NAME

METRIC = "everstep_storage_latency_seconds"
LABELS = (("target", "t"), ("op", "read"))


def test_buckets_are_cumulative_and_those_of_the_table() -> None:
    histogram = Histogram(METRIC, LABELS)
    for value in (0.0005, 0.0006, 7.0, 31.0):
        histogram.observe(value)
    found = values(histogram.samples())
    bounds = METRIC_BY_NAME[METRIC].buckets
    counts = [found[(f"{METRIC}_bucket", "t", "read", repr(bound))] for bound in bounds]
    assert counts == [1, 2, 2, 2, 2, 2, 2, 2, 2, 3]
    assert found[(f"{METRIC}_bucket", "t", "read", "+Inf")] == 4
    assert found[(f"{METRIC}_count", "t", "read")] == 4
    assert found[(f"{METRIC}_sum", "t", "read")] == 38.0011


def test_it_starts_at_zero() -> None:
    assert set(values(Histogram(METRIC, LABELS).samples()).values()) == {0}


def test_what_is_lost_counts_above_all_buckets() -> None:
    histogram = Histogram(METRIC, LABELS)
    histogram.lose(10.0)
    found = values(histogram.samples())
    assert found[(f"{METRIC}_bucket", "t", "read", "30.0")] == 0
    assert found[(f"{METRIC}_bucket", "t", "read", "+Inf")] == 1
    assert found[(f"{METRIC}_sum", "t", "read")] == 10


def test_the_impossible_is_not_observed() -> None:
    histogram = Histogram(METRIC, LABELS)
    for value in (-1.0, 0.0, 1e9, float("nan"), float("inf")):
        histogram.observe(value)
    assert set(values(histogram.samples()).values()) == {0}
