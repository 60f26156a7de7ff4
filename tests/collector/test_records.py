from __future__ import annotations

import math
import os
import time
from pathlib import Path

import pytest

from everstep.collector.gate import Rejections
from everstep.collector.records import NONFINITE, RecordWatcher
from everstep.collector.samples import Sample
from everstep.core.metrics import METRIC_BY_NAME
from everstep.core.rank_record import SLOTS, RankRecordWriter
from everstep.trainer_integration import EverstepCallback

LOSS = "everstep_train_loss"
STEPS = "everstep_train_steps_total"


def writer_at(root: Path, rank: int = 0, attempt: int = 1) -> RankRecordWriter:
    folder = root / "demo"
    folder.mkdir(exist_ok=True)
    return RankRecordWriter(folder / f"rank-{rank}.rec", job="demo", rank=rank, world_size=2, attempt=attempt)


def finish_step(writer: RankRecordWriter, step: int, *, loss: float = 2.0, end: float | None = None) -> None:
    writer.add_step((step, time.time() if end is None else end, 0.3, 0.2, 0.01, loss, 1.0, step + 100))
    writer.set(SLOTS[("everstep_train_attempt", ())], 1.0)
    writer.publish()


def named(samples: list[Sample], name: str) -> list[Sample]:
    return [sample for sample in samples if sample.metric == name]


@pytest.fixture
def watcher(tmp_path: Path) -> RecordWatcher:
    return RecordWatcher(tmp_path, lambda *who: who[-1] == 1)


def test_every_step_is_pushed_once_with_the_time_of_its_end(tmp_path: Path, watcher: RecordWatcher) -> None:
    writer = writer_at(tmp_path)
    finish_step(writer, 1, end=100.0, loss=5.0)
    watcher.poll()
    finish_step(writer, 2, end=100.5, loss=4.0)
    finish_step(writer, 3, end=101.0, loss=3.0)
    watcher.poll()
    drained = list(watcher.drain())
    assert named(drained, STEPS)[0].points == ((100.0, 1.0), (100.5, 2.0), (101.0, 3.0))
    assert named(drained, LOSS)[0].points == ((100.0, 5.0), (100.5, 4.0), (101.0, 3.0))
    assert named(drained, "everstep_train_batch_index")[0].points == ((100.0, 101.0), (100.5, 102.0), (101.0, 103.0))
    again = list(watcher.drain())
    assert named(again, STEPS)[0].points == ()
    assert named(again, STEPS)[0].value == 3.0


def test_nothing_is_read_twice_while_the_rank_is_silent(tmp_path: Path, watcher: RecordWatcher) -> None:
    writer = writer_at(tmp_path)
    finish_step(writer, 1)
    assert [change.rank for change in watcher.poll()] == [0]
    assert watcher.poll() == []


def test_what_is_impossible_stays_on_the_node_and_is_counted_once(tmp_path: Path) -> None:
    rejections = Rejections()
    watcher = RecordWatcher(tmp_path, lambda *_: True, rejections)
    writer = writer_at(tmp_path)
    rate = SLOTS[("everstep_train_learning_rate", ())]
    writer.set(rate, 82505.0)
    finish_step(writer, 1, end=100.0, loss=1e12)
    finish_step(writer, 2, end=101.0, loss=math.nan)
    watcher.poll()
    drained = list(watcher.drain())
    (loss,) = named(drained, LOSS)
    assert loss.points is not None
    assert [at for at, _ in loss.points] == [101.0]
    assert named(drained, "everstep_train_learning_rate") == []
    assert named(list(watcher.collect()), STEPS)[0].value == 2.0
    counted = {dict(sample.labels)["metric"]: sample.value for sample in rejections.collect()}
    assert counted == {LOSS: 1.0, "everstep_train_learning_rate": 1.0}
    writer.set(rate, 3e-4)
    finish_step(writer, 3)
    watcher.poll()
    assert named(list(watcher.drain()), "everstep_train_learning_rate")[0].value == 3e-4


def test_the_callback_writes_nothing_that_is_refused(tmp_path: Path) -> None:
    rejections = Rejections()
    watcher = RecordWatcher(tmp_path, lambda *_: True, rejections)
    callback = EverstepCallback(writer_at(tmp_path), attempt=1)
    watcher.poll()
    list(watcher.drain())
    callback.on_train_start()
    for step in (1, 2):
        callback.step_begin(step)
        callback.step_end(step, loss=2.0)
        watcher.poll()
        list(watcher.drain())
        list(watcher.collect())
    assert list(rejections.collect()) == []


def test_a_new_nonfinite_step_is_urgent(tmp_path: Path, watcher: RecordWatcher) -> None:
    writer = writer_at(tmp_path)
    finish_step(writer, 1)
    assert not watcher.poll()[0].nonfinite
    writer.set(SLOTS[(NONFINITE, ())], 1.0)
    finish_step(writer, 2, loss=math.nan)
    (change,) = watcher.poll()
    assert change.nonfinite
    points = named(list(watcher.drain()), LOSS)[0].points
    assert points is not None
    assert math.isnan(points[-1][1])


def test_job_scope_comes_from_rank_zero_only(tmp_path: Path, watcher: RecordWatcher) -> None:
    finish_step(writer_at(tmp_path, rank=1), 1)
    watcher.poll()
    samples = list(watcher.drain())
    assert not named(samples, LOSS)
    assert named(samples, STEPS)[0].labels == (("train_job", "demo"), ("rank", "1"))


def test_before_the_first_step_no_zero_is_shown_for_what_nobody_measured(
    tmp_path: Path, watcher: RecordWatcher
) -> None:
    writer = writer_at(tmp_path)
    writer.set(SLOTS[("everstep_train_attempt", ())], 1.0)
    writer.publish()
    watcher.poll()
    names = {sample.metric for sample in watcher.collect()}
    assert "everstep_train_attempt" in names
    assert names.isdisjoint({LOSS, STEPS, "everstep_train_last_step_timestamp_seconds", "everstep_train_loss_scale"})


def test_an_older_attempt_is_fenced(tmp_path: Path) -> None:
    watcher = RecordWatcher(tmp_path, lambda *who: who[-1] >= 2)
    finish_step(writer_at(tmp_path, attempt=1), 1)
    assert watcher.poll() == []
    assert list(watcher.drain()) == []
    finish_step(writer_at(tmp_path, attempt=2), 1)
    assert [change.attempt for change in watcher.poll()] == [2]


def test_the_last_step_of_an_ended_rank_is_pushed_then_its_series_end(tmp_path: Path) -> None:
    alive = True
    watcher = RecordWatcher(tmp_path, lambda *_: alive)
    writer = writer_at(tmp_path)
    finish_step(writer, 1, end=100.0)
    watcher.poll()
    finish_step(writer, 2, end=101.0)
    alive = False
    watcher.finish("demo", 0)
    assert list(watcher.collect()) == []
    assert named(list(watcher.drain()), STEPS)[0].points == ((100.0, 1.0), (101.0, 2.0))
    watcher.poll()
    assert list(watcher.drain()) == []


def test_a_record_that_is_none_is_refused_once_and_hurts_nobody(tmp_path: Path, watcher: RecordWatcher) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "rank-9.rec").write_bytes(b"not a record")
    finish_step(writer_at(tmp_path), 1)
    assert [change.rank for change in watcher.poll()] == [0]


def test_histograms_carry_cumulative_buckets(tmp_path: Path, watcher: RecordWatcher) -> None:
    writer = writer_at(tmp_path)
    name = "everstep_train_step_duration_seconds"
    for bound in ("0.5", "+Inf", "count"):
        writer.set(SLOTS[(name, (bound,))], 3.0)
    finish_step(writer, 1)
    watcher.poll()
    histogram = {
        (sample.suffix, dict(sample.labels).get("le")): sample.value for sample in named(list(watcher.collect()), name)
    }
    assert histogram[("_bucket", "0.5")] == 3.0
    assert histogram[("_bucket", "+Inf")] == 3.0
    assert histogram[("_count", None)] == 3.0
    assert len(histogram) == len(METRIC_BY_NAME[name].buckets) + 3


def test_a_record_that_someone_cuts_off_tells_nothing_more(tmp_path: Path, watcher: RecordWatcher) -> None:
    writer = writer_at(tmp_path)
    finish_step(writer, 1)
    assert len(watcher.poll()) == 1
    path = tmp_path / "demo" / "rank-0.rec"
    os.truncate(path, 200)
    assert watcher.poll() == []
    assert named(list(watcher.drain()), STEPS)[0].value == 1.0


def test_a_pipe_in_the_place_of_a_record_is_refused(tmp_path: Path, watcher: RecordWatcher) -> None:
    (tmp_path / "demo").mkdir()
    os.mkfifo(tmp_path / "demo" / "rank-0.rec")
    assert watcher.poll() == []


CHECKPOINT_AT = "everstep_checkpoint_last_success_timestamp_seconds"
CHECKPOINT_DURATION = "everstep_checkpoint_duration_seconds"


def test_checkpoints_are_told_for_the_tiers_in_use(tmp_path: Path, watcher: RecordWatcher) -> None:
    writer = writer_at(tmp_path)
    finish_step(writer, 1)
    watcher.poll()
    assert not named(list(watcher.collect()), CHECKPOINT_AT)
    assert not named(list(watcher.collect()), CHECKPOINT_DURATION)
    writer.set(SLOTS[CHECKPOINT_AT, ("disk",)], 1000.0)
    for bound in ("5.0", "+Inf", "count"):
        writer.set(SLOTS[CHECKPOINT_DURATION, ("disk", "save", "success", bound)], 1.0)
    writer.set(SLOTS[CHECKPOINT_DURATION, ("disk", "save", "success", "sum")], 2.5)
    finish_step(writer, 2)
    watcher.poll()
    samples = list(watcher.collect())
    assert [(sample.labels, sample.value) for sample in named(samples, CHECKPOINT_AT)] == [
        ((("train_job", "demo"), ("tier", "disk")), 1000.0)
    ]
    counts = {
        (dict(sample.labels)["op"], dict(sample.labels)["outcome"]): sample.value
        for sample in named(samples, CHECKPOINT_DURATION)
        if sample.suffix == "_count"
    }
    assert len(counts) == 6, "all outcomes of the tier, so that the first failure is an increase"
    assert counts.pop(("save", "success")) == 1.0
    assert set(counts.values()) == {0.0}
    bucket = next(
        sample for sample in named(samples, CHECKPOINT_DURATION) if sample.suffix == "_bucket" and sample.value == 1.0
    )
    labels = (("tier", "disk"), ("op", "save"), ("outcome", "success"), ("le", "5.0"))
    assert bucket.labels == (("train_job", "demo"), *labels)
