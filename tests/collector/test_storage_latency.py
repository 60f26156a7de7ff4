from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out

from fake_sysfs import values

from everstep.collector.storage_latency import METRIC, StorageLatency
from everstep.core.clock import ManualClock
from everstep.core.metrics import METRIC_BY_NAME


def _counts(latency: StorageLatency, operation: str) -> tuple[float, float, float]:
    """Observations up to 5 s, up to 30 s, and all."""
    found = values(latency.collect())
    return (
        found[(f"{METRIC}_bucket", "t", operation, "5.0")],
        found[(f"{METRIC}_bucket", "t", operation, "30.0")],
        found[(f"{METRIC}_bucket", "t", operation, "+Inf")],
    )


def test_operations_are_timed_apart() -> None:
    clock = ManualClock()
    latency = StorageLatency("t", 10.0, clock.now)
    with latency.timed("write"):
        clock.advance(0.25)
    with latency.timed("fsync"):
        clock.advance(8.0)
    assert _counts(latency, "write") == (1, 1, 1)
    assert _counts(latency, "fsync") == (0, 1, 1)
    assert _counts(latency, "read") == (0, 0, 0)


def test_a_hang_counts_once_while_it_lasts() -> None:
    clock = ManualClock()
    latency = StorageLatency("t", 10.0, clock.now)
    with latency.timed("fsync"):
        clock.advance(9.0)
        assert _counts(latency, "fsync") == (0, 0, 0)
        clock.advance(2.0)
        assert _counts(latency, "fsync") == (0, 0, 1)
        clock.advance(500.0)
        assert _counts(latency, "fsync") == (0, 0, 1)
    assert _counts(latency, "fsync") == (0, 0, 1)
    with latency.timed("fsync"):
        clock.advance(1.0)
    assert _counts(latency, "fsync") == (1, 1, 2)


def test_one_that_ends_too_late_counts_in_inf_though_nobody_looked() -> None:
    clock = ManualClock()
    latency = StorageLatency("t", 10.0, clock.now)
    with latency.timed("read"):
        clock.advance(20.0)
    assert _counts(latency, "read") == (0, 0, 1)


def test_what_is_only_guarded_counts_when_it_hangs() -> None:
    clock = ManualClock()
    latency = StorageLatency("t", 10.0, clock.now)
    with latency.guarded("write"):
        clock.advance(1.0)
    assert _counts(latency, "write") == (0, 0, 0)
    with contextlib.suppress(OSError), latency.timed("write"):
        clock.advance(60.0)
        raise OSError("as a soft NFS mount does it")
    assert _counts(latency, "write") == (0, 0, 1)


def test_one_that_fails_is_no_observation() -> None:
    latency = StorageLatency("t", 10.0)
    with pytest.raises(OSError, match="full"), latency.timed("write"):
        raise OSError("full")
    assert _counts(latency, "write") == (0, 0, 0)


def test_labels_are_those_of_the_metric_table() -> None:
    for one in StorageLatency("t", 10.0).collect():
        names = tuple(name for name, _ in one.labels if name != "le")
        assert names == METRIC_BY_NAME[one.metric].label_names
