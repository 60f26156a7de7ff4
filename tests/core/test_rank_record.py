"""The rank record: what is written is what is read, also after a kill in the middle of a write."""

from __future__ import annotations

import math
import os
import resource
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from everstep.core.errors import EverstepError
from everstep.core.rank_record import (
    LAYOUT,
    MAX_JOB_BYTES,
    RING_STEPS,
    SLOTS,
    STEP_FIELDS,
    RankRecordReader,
    RankRecordWriter,
    StepSample,
)

TORN_WRITER = """
import sys
from pathlib import Path
from everstep.core.rank_record import SLOTS, RankRecordWriter

writer = RankRecordWriter(Path(sys.argv[1]), job="demo", rank=1, world_size=3, attempt=1)
number = 0
while True:
    number += 1
    for slot in range(len(SLOTS)):
        writer.set(slot, float(number))
    writer.add_step((float(number),) * 8)
    writer.publish()
"""


def _writer(path: Path, job: str = "demo") -> RankRecordWriter:
    return RankRecordWriter(path, job=job, rank=1, world_size=3, attempt=4)


def _step(number: int) -> tuple[float, ...]:
    return (float(number), 1000.0 + number, 0.5, 0.25, 0.01, 2.0, 1.5, float(number - 1))


def test_a_reader_sees_the_identity_the_slots_and_the_steps(tmp_path: Path) -> None:
    writer = _writer(tmp_path / "rank-1.rec")
    writer.set(len(SLOTS) - 1, 42.5)
    writer.add_step(_step(1))
    writer.publish()
    with RankRecordReader(tmp_path / "rank-1.rec") as reader:
        snapshot = reader.read()
    identity = (snapshot.job, snapshot.rank, snapshot.world_size, snapshot.attempt, snapshot.pid, snapshot.sequence)
    assert identity == ("demo", 1, 3, 4, os.getpid(), 1)
    last, labels = list(SLOTS)[-1]
    assert snapshot.value(last, *labels) == 42.5
    assert snapshot.steps == (
        StepSample(step=1, end=1001.0, duration=0.5, compute=0.25, data=0.01, loss=2.0, gradient_norm=1.5, batch=0),
    )
    writer.close()


def test_nothing_is_visible_before_publish(tmp_path: Path) -> None:
    writer = _writer(tmp_path / "a.rec")
    writer.set(0, 7.0)
    writer.add_step(_step(1))
    with RankRecordReader(tmp_path / "a.rec") as reader:
        assert reader.read().sequence == 0
        assert reader.read().steps == ()
        assert set(reader.read().values.values()) == {0.0}
        writer.publish()
        assert reader.read().values[next(iter(SLOTS))] == 7.0
    writer.close()


def test_values_that_are_not_finite_are_kept_as_evidence(tmp_path: Path) -> None:
    writer = _writer(tmp_path / "a.rec")
    writer.set(0, math.nan)
    writer.set(1, -math.inf)
    writer.publish()
    with RankRecordReader(tmp_path / "a.rec") as reader:
        values = list(reader.read().values.values())
    assert math.isnan(values[0])
    assert values[1] == -math.inf
    writer.close()


def test_the_ring_keeps_the_newest_steps_oldest_first(tmp_path: Path) -> None:
    writer = _writer(tmp_path / "a.rec")
    for number in range(1, RING_STEPS + 11):
        writer.add_step(_step(number))
    writer.publish()
    with RankRecordReader(tmp_path / "a.rec") as reader:
        steps = [sample.step for sample in reader.read().steps]
    assert steps == list(range(11, RING_STEPS + 11))
    writer.close()


def test_two_readers_do_not_disturb_each_other(tmp_path: Path) -> None:
    writer = _writer(tmp_path / "a.rec")
    with RankRecordReader(tmp_path / "a.rec") as first, RankRecordReader(tmp_path / "a.rec") as second:
        writer.set(0, 1.0)
        writer.publish()
        assert first.read() == second.read()
        assert first.sequence() == 1
        writer.set(0, 2.0)
        writer.publish()
        assert first.sequence() == second.sequence() == 2
        assert second.read() == first.read()
    writer.close()


def test_a_new_attempt_replaces_the_file_and_an_open_reader_keeps_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    old = _writer(path)
    with RankRecordReader(path) as reader:
        fresh = RankRecordWriter(path, job="demo", rank=1, world_size=3, attempt=5)
        fresh.publish()
        assert (reader.attempt, reader.sequence()) == (4, 0)
        with RankRecordReader(path) as later:
            assert (later.attempt, later.sequence()) == (5, 1)
    assert [file.name for file in tmp_path.iterdir()] == ["a.rec"]
    old.close()
    fresh.close(unlink=True)
    assert not path.exists()


def test_a_writer_killed_in_a_tight_loop_leaves_a_consistent_record(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    for _ in range(5):
        process = subprocess.Popen([sys.executable, "-c", TORN_WRITER, str(path)])
        try:
            reader = _open_when_running(path, process)
            alive = [reader.read() for _ in range(200)]
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=10)
        after = reader.read()
        reader.close()
        for snapshot in (*alive, after):
            assert set(snapshot.values.values()) == {float(snapshot.sequence)}
            assert snapshot.steps[-1].step == snapshot.sequence
        assert after.sequence >= alive[-1].sequence > 0
        path.unlink()


def _open_when_running(path: Path, process: subprocess.Popen[bytes]) -> RankRecordReader:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists():
            reader = RankRecordReader(path)
            if reader.sequence() > 100:
                return reader
            reader.close()
        time.sleep(0.01)
    raise AssertionError("the writer published nothing within 30 s")


@pytest.mark.parametrize("content", [b"", b"EVERSTEP", b"\0" * 100_000])
def test_a_file_of_another_size_is_refused_with_the_mend(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.rec"
    path.write_bytes(content)
    with pytest.raises(EverstepError, match="use one Everstep version on the whole node"):
        RankRecordReader(path)


@pytest.mark.parametrize(("offset", "value"), [(0, b"SOMEBODY"), (8, struct.pack("<I", LAYOUT ^ 1))])
def test_another_magic_or_layout_is_refused_with_the_mend(tmp_path: Path, offset: int, value: bytes) -> None:
    path = tmp_path / "a.rec"
    _writer(path).close()
    content = bytearray(path.read_bytes())
    content[offset : offset + len(value)] = value
    path.write_bytes(bytes(content))
    with pytest.raises(EverstepError, match=r"a\.rec is not a rank record of this version"):
        RankRecordReader(path)


def test_a_missing_record_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        RankRecordReader(tmp_path / "none.rec")


def test_a_job_name_that_does_not_fit_is_refused_and_the_longest_that_fits_survives(tmp_path: Path) -> None:
    with pytest.raises(EverstepError, match="shorten it"):
        _writer(tmp_path / "a.rec", job="x" * (MAX_JOB_BYTES + 1))
    assert list(tmp_path.iterdir()) == []
    _writer(tmp_path / "a.rec", job="é" * (MAX_JOB_BYTES // 2)).close()
    with RankRecordReader(tmp_path / "a.rec") as reader:
        assert reader.job == "é" * (MAX_JOB_BYTES // 2)


def test_a_record_is_private_to_its_user(tmp_path: Path) -> None:
    _writer(tmp_path / "a.rec").close()
    assert (tmp_path / "a.rec").stat().st_mode & 0o777 == 0o600


def test_step_fields_and_step_sample_name_the_same_things() -> None:
    assert tuple(StepSample.__dataclass_fields__) == STEP_FIELDS


def test_a_record_owns_its_memory_so_that_a_full_tmpfs_cannot_kill_the_loop(tmp_path: Path) -> None:
    _writer(tmp_path / "a.rec").close()
    found = (tmp_path / "a.rec").stat()
    assert found.st_blocks * 512 >= found.st_size


def test_no_room_for_a_record_is_an_os_error_and_leaves_nothing(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            _writer(tmp_path / "a.rec")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, former)
    assert list(tmp_path.iterdir()) == []


def test_a_record_that_someone_cuts_off_is_an_error_and_kills_no_reader(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    writer = _writer(path)
    writer.publish()
    with RankRecordReader(path) as reader:
        assert reader.sequence() == 1
        os.truncate(path, 0)
        assert reader.sequence() == 1
        with pytest.raises(EverstepError, match="was cut off"):
            reader.read()
    os.truncate(path, 10**6)  # the writer's mapping would raise SIGBUS, too
    writer.close()


@pytest.mark.parametrize("field", ["step", "batch"])
def test_a_step_without_a_number_is_passed_over(tmp_path: Path, field: str) -> None:
    writer = _writer(tmp_path / "a.rec")
    row = list(_step(1))
    row[STEP_FIELDS.index(field)] = math.nan
    writer.add_step(tuple(row))
    writer.add_step(_step(2))
    writer.publish()
    with RankRecordReader(tmp_path / "a.rec") as reader:
        assert [sample.step for sample in reader.read().steps] == [2]
    writer.close()


@pytest.mark.parametrize("end", [math.inf, math.nan, 1e308, -1.0, 4e10])
def test_a_step_that_ended_at_no_time_is_passed_over(tmp_path: Path, end: float) -> None:
    writer = _writer(tmp_path / "a.rec")
    row = list(_step(1))
    row[STEP_FIELDS.index("end")] = end
    writer.add_step(tuple(row))
    writer.add_step(_step(2))
    writer.publish()
    with RankRecordReader(tmp_path / "a.rec") as reader:
        assert [sample.step for sample in reader.read().steps] == [2]
    writer.close()
