from __future__ import annotations

from pathlib import Path

import pytest

from everstep.collector.exit_reason import ExitReason
from everstep.collector.fence import Fence
from everstep.collector.process_state import ProcessState
from everstep.collector.refusal import RefusedError
from everstep.collector.workers import RETIRED_SHOWN_S, Worker, WorkerTable
from everstep.core.clock import ManualClock
from everstep.core.engine import WorkerState
from everstep.core.metrics import METRIC_BY_NAME


def worker(rank: int = 1, attempt: int = 1) -> Worker:
    return Worker(
        job="demo",
        attempt=attempt,
        rank=rank,
        local_rank=0,
        pid=4242,
        started_ticks=1,
        log=Path("rank-1.log"),
        launcher="standby-demo",
    )


def table_at(tmp_path: Path) -> tuple[WorkerTable, Fence, ManualClock]:
    clock = ManualClock(1000.0)
    fence = Fence(lambda job: tmp_path / f"attempt-{job}")
    return WorkerTable("node-1", fence, clock), fence, clock


def test_states_of_a_life() -> None:
    one = worker()
    assert (one.state, one.shown_state) == (WorkerState.STARTING, "running")
    one.reporting = True
    assert (one.state, one.shown_state) == (WorkerState.RUNNING, "running")
    one.process = ProcessState.BLOCKED
    assert (one.state, one.shown_state) == (WorkerState.RUNNING, "blocked")
    one.process = ProcessState.STOPPED
    assert (one.state, one.shown_state) == (WorkerState.STOPPED, "stopped")
    one.exit_code = 1
    assert (one.state, one.shown_state) == (WorkerState.EXITED, "exited")
    one.exit_code = -9
    assert (one.state, one.shown_state) == (WorkerState.KILLED, "killed")


def test_samples_are_state_sets_of_the_metric_table(tmp_path: Path) -> None:
    table, _, _ = table_at(tmp_path)
    one = worker()
    table.add(one)
    table.end(one, -9, ExitReason.SIGNAL)
    samples = list(table.collect())
    for sample in samples:
        assert tuple(name for name, _ in sample.labels) == METRIC_BY_NAME[sample.metric].label_names
    ones = {sample.labels[-1][1] for sample in samples if sample.metric.endswith(("state", "reason")) and sample.value}
    assert ones == {"killed", "signal"}
    assert [sample.value for sample in samples if sample.metric == "everstep_worker_exit_code"] == [-9.0]


def test_the_first_end_counts(tmp_path: Path) -> None:
    table, _, _ = table_at(tmp_path)
    one = worker()
    table.add(one)
    table.end(one, -9, ExitReason.SIGNAL)
    table.end(one, 1, ExitReason.EXCEPTION)
    assert (one.exit_code, one.reason) == (-9, ExitReason.SIGNAL)
    assert table.alive() == []


def test_the_attempt_is_told_while_no_record_tells_it(tmp_path: Path) -> None:
    def told() -> list[float]:
        return [sample.value for sample in table.collect() if sample.metric == "everstep_train_attempt"]

    table, _, _ = table_at(tmp_path)
    one = worker(attempt=3)
    table.add(one)
    assert told() == [3.0]
    one.reporting = True
    assert told() == []
    table.end(one, -9, ExitReason.SIGNAL)
    assert told() == [3.0]


def test_a_retired_attempt_tells_its_end_and_then_falls_silent(tmp_path: Path) -> None:
    table, _, clock = table_at(tmp_path)
    one = worker()
    table.add(one)
    table.end(one, -15, ExitReason.STOPPED_BY_AGENT)
    table.retire("demo", 1)
    assert list(table.collect())
    clock.advance(RETIRED_SHOWN_S)
    assert list(table.collect()) == []
    assert one.describe()["reason"] == "stopped_by_agent"


def test_a_record_speaks_only_for_the_living_worker_of_its_attempt(tmp_path: Path) -> None:
    table, fence, _ = table_at(tmp_path)
    one = worker(attempt=2)
    fence.advance("demo", 2)
    table.add(one)
    assert table.accepts_record("demo", 1, 2)
    assert not table.accepts_record("demo", 1, 1)
    assert not table.accepts_record("demo", 0, 1)
    assert table.accepts_record("foreign", 0, 0)
    table.end(one, 0, ExitReason.SUCCESS)
    assert not table.accepts_record("demo", 1, 2)


def test_the_fence_only_rises_and_is_remembered(tmp_path: Path) -> None:
    _, fence, _ = table_at(tmp_path)
    assert fence.advance("demo", 3)
    assert not fence.advance("demo", 3)
    with pytest.raises(RefusedError, match="attempt 2 of job demo is older than attempt 3") as refused:
        fence.advance("demo", 2)
    assert refused.value.status == 409
    later = Fence(lambda job: tmp_path / f"attempt-{job}")
    later.recall("demo")
    assert later.highest("demo") == 3
    (tmp_path / "attempt-demo").write_text("garbage")
    fresh = Fence(lambda job: tmp_path / f"attempt-{job}")
    fresh.recall("demo")
    assert fresh.highest("demo") == -1
