from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep.core.rank_record import RankRecordReader, RankSnapshot
from everstep.trainer_integration import EverstepCallback
from everstep.trainer_integration.tracker import StepReport, StepTracker

SAVES = "everstep_checkpoint_duration_seconds"


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "rank-0.rec"


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that pass only when a test says so."""
    clock = [100.0]
    for module in ("callback", "phase", "checkpoint_timer"):
        monkeypatch.setattr(f"everstep.trainer_integration.{module}.perf_counter", lambda: clock[0])
    monkeypatch.setattr("everstep.trainer_integration.phase.thread_time", lambda: clock[0])
    return clock


@pytest.fixture
def tracker(record: Path, now: list[float]) -> Iterator[StepTracker]:
    made = StepTracker(EverstepCallback.from_environment({"EVERSTEP_RANK_RECORD": str(record)}))
    yield made
    made.close()


def _read(record: Path) -> RankSnapshot:
    with RankRecordReader(record) as reader:
        return reader.read()


def _phase(record: Path, name: str) -> float:
    return _read(record).value("everstep_train_phase_seconds_total", name)


def test_a_step_holds_its_wait_for_data_and_its_phases(tracker: StepTracker, record: Path, now: list[float]) -> None:
    tracker.start(step=5, tokens=50, batch_index=5)
    now[0] += 3
    tracker.begin_batch()
    for phase, seconds in (("forward", 1), ("backward", 2), ("optimizer", 4)):
        tracker.enter(phase)
        now[0] += seconds
    tracker.finish(StepReport(step=6, loss=2.0, gradient_norm=0.5, learning_rate=0.1, tokens=60, batch_index=5))
    (sample,) = _read(record).steps
    assert (sample.step, sample.duration, sample.data, sample.compute, sample.batch) == (6, 10, 3, 3, 5)
    assert [_phase(record, each) for each in ("data", "forward", "backward", "optimizer")] == [3, 1, 2, 4]
    assert _read(record).value("everstep_train_state", "steady") == 1


def test_an_accumulating_step_goes_on_through_its_batches(tracker: StepTracker, record: Path, now: list[float]) -> None:
    tracker.start(step=0, tokens=0, batch_index=0)
    for batch in range(3):
        now[0] += 1
        tracker.begin_batch()
        tracker.enter("forward")
        now[0] += 2
        tracker.leave()
        if batch < 2:
            tracker.wait_for_data(batch + 1)
    tracker.finish(StepReport(step=1, loss=1.0, batch_index=2))
    (sample,) = _read(record).steps
    assert (sample.duration, sample.data, sample.compute) == (9, 3, 6)


@pytest.mark.parametrize("activity", ["evaluation", "checkpoint"])
def test_a_pause_between_steps_is_no_part_of_one(
    tracker: StepTracker, record: Path, now: list[float], activity: str
) -> None:
    tracker.start(step=0, tokens=0, batch_index=0)
    tracker.begin_batch()
    tracker.finish(StepReport(step=1, loss=1.0))
    tracker.wait_for_data(1)
    tracker.pause(activity)
    assert _read(record).value("everstep_train_state", activity) == 1
    now[0] += 50
    tracker.resume()
    assert _read(record).value("everstep_train_state", "steady") == 1
    now[0] += 1
    tracker.begin_batch()
    tracker.finish(StepReport(step=2, loss=1.0))
    assert (_read(record).steps[-1].duration, _read(record).steps[-1].data) == (1, 1)
    assert _phase(record, activity) == 50


@pytest.mark.parametrize(
    ("error", "outcome"), [(None, "success"), (OSError("full"), "failed"), (TimeoutError("slow"), "timeout")]
)
def test_a_save_is_counted_by_how_it_ended(
    tracker: StepTracker, record: Path, now: list[float], error: Exception | None, outcome: str
) -> None:
    tracker.start(step=0, tokens=0, batch_index=0)
    tracker.pause("checkpoint")
    now[0] += 7
    tracker.resume(error)
    found = _read(record)
    counts = [found.value(SAVES, "disk", "save", each, "count") for each in ("success", "failed", "timeout")]
    assert counts == [float(each == outcome) for each in ("success", "failed", "timeout")]
    assert found.value(SAVES, "disk", "save", outcome, "sum") == 7


def test_a_save_that_turns_into_an_evaluation_is_not_counted(tracker: StepTracker, record: Path) -> None:
    tracker.start(step=0, tokens=0, batch_index=0)
    tracker.pause("checkpoint")
    tracker.pause("evaluation")
    tracker.resume()
    assert _read(record).value(SAVES, "disk", "save", "success", "count") == 0


def test_an_evaluation_outside_training_is_no_wait_for_data(
    tracker: StepTracker, record: Path, now: list[float]
) -> None:
    tracker.pause("evaluation")
    tracker.resume()
    assert _read(record).value("everstep_train_state", "init") == 1
    now[0] += 9
    tracker.leave()
    tracker.stop()
    assert _phase(record, "data") == 0


def test_a_step_that_is_not_finite_is_evidence_and_a_step(tracker: StepTracker, record: Path) -> None:
    tracker.start(step=0, tokens=0, batch_index=0)
    tracker.begin_batch()
    tracker.finish(StepReport(step=1, loss=math.nan, batch_index=3, nonfinite=True, input_nonfinite=True))
    found = _read(record)
    assert found.value("everstep_train_nonfinite_steps_total") == 1
    assert found.value("everstep_train_nonfinite_batch") == 3
    assert found.value("everstep_train_nonfinite_input") == 1
    assert found.value("everstep_train_steps_total") == 1


def test_another_run_of_the_loop_is_seen_too(tracker: StepTracker, record: Path) -> None:
    tracker.start(step=0, tokens=0, batch_index=0)
    tracker.stop()
    assert _read(record).value("everstep_train_state", "idle") == 1
    tracker.start(step=7, tokens=0, batch_index=7)
    assert _read(record).value("everstep_train_state", "warmup") == 1
    assert _read(record).value("everstep_train_steps_total") == 7
