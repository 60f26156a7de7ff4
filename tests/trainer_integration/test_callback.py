from __future__ import annotations

import logging
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep.core.metrics.training import PHASES
from everstep.core.rank_record import RankRecordReader, RankSnapshot
from everstep.trainer_integration import EverstepCallback

DURATION = "everstep_train_step_duration_seconds"


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "rank-1.rec"


@pytest.fixture
def callback(record: Path) -> Iterator[EverstepCallback]:
    made = EverstepCallback.from_environment(
        {
            "EVERSTEP_RANK_RECORD": str(record),
            "EVERSTEP_JOB": "demo",
            "EVERSTEP_ATTEMPT": "3",
            "EVERSTEP_PEAK_FLOPS": "1e9",
            "RANK": "1",
            "WORLD_SIZE": "2",
        }
    )
    yield made
    made.close()


def _read(record: Path) -> RankSnapshot:
    with RankRecordReader(record) as reader:
        return reader.read()


def _step(callback: EverstepCallback, step: int, **more: float) -> None:
    callback.step_begin(step + 10)
    for phase in PHASES:
        with callback.phase(phase):
            pass
    callback.step_end(
        step,
        loss=2.5,
        gradient_norm=0.5,
        learning_rate=0.1,
        tokens=100 * step,
        batch_index=step + 10,
        sample_hash=77,
        **more,
    )


def test_a_fresh_record_says_who_writes_and_nothing_more(callback: EverstepCallback, record: Path) -> None:
    found = _read(record)
    assert (found.job, found.rank, found.world_size, found.attempt) == ("demo", 1, 2, 3)
    assert found.value("everstep_train_attempt") == 3
    assert found.value("everstep_train_state", "init") == 1
    assert found.value("everstep_train_nonfinite_batch") == -1
    assert found.value("everstep_checkpoint_last_step", "disk") == -1
    assert math.isnan(found.value("everstep_train_loss_scale"))
    assert found.steps == ()


def test_a_step_is_in_the_slots_and_in_the_ring(callback: EverstepCallback, record: Path) -> None:
    callback.on_train_start(step=4, tokens=400, loss=3.0)
    assert _read(record).value("everstep_train_steps_total") == 4
    _step(callback, 5, compute_s=0.25, flops=1e3)
    found = _read(record)
    for name, value in {
        "loss": 2.5,
        "gradient_norm": 0.5,
        "learning_rate": 0.1,
        "tokens_total": 500,
        "steps_total": 5,
        "batch_index": 15,
        "sample_hash": 77,
        "step_compute_seconds": 0.25,
    }.items():
        assert found.value(f"everstep_train_{name}") == value
    (sample,) = found.steps
    assert (sample.step, sample.compute, sample.loss, sample.batch) == (5, 0.25, 2.5, 15)
    assert sample.end == found.value("everstep_train_last_step_timestamp_seconds") > 0
    assert 0 < found.value("everstep_train_model_flops_utilization_ratio") == pytest.approx(1e-6 / sample.duration)
    assert callback.failures == 0


def test_histogram_slots_are_cumulative(callback: EverstepCallback, record: Path) -> None:
    callback._observe(0.07)
    callback._observe(0.2)
    callback._observe(500.0)
    callback.state("steady")
    found = _read(record)
    counts = [found.value(DURATION, bound) for bound in ("0.05", "0.1", "0.25", "120.0", "+Inf", "count")]
    assert counts == [0, 1, 2, 2, 3, 3]
    assert found.value(DURATION, "sum") == pytest.approx(500.27)


def test_compute_is_what_forward_and_backward_used_of_the_cpu(callback: EverstepCallback, record: Path) -> None:
    callback.step_begin(0)
    with callback.phase("forward"):
        sum(range(200_000))
    callback.step_end(1, loss=1.0)
    found = _read(record)
    compute = found.value("everstep_train_step_compute_seconds")
    assert compute > 0
    assert found.value("everstep_train_phase_seconds_total", "forward") == pytest.approx(compute)
    callback.step_begin(1)
    callback.step_end(2, loss=1.0)
    assert _read(record).value("everstep_train_step_compute_seconds") == 0


def test_exactly_one_state_is_set(callback: EverstepCallback, record: Path) -> None:
    for state in ("warmup", "steady"):
        callback.state(state)
        values = {key[1][0]: value for key, value in _read(record).values.items() if key[0] == "everstep_train_state"}
        assert [name for name, value in values.items() if value] == [state]


def test_checkpoints_skips_and_collectives(callback: EverstepCallback, record: Path) -> None:
    callback.on_checkpoint("memory", 12)
    callback.on_checkpoint("disk", 10)
    callback.on_skip(2)
    callback.collective(31)
    found = _read(record)
    assert found.value("everstep_checkpoint_last_step", "memory") == 12
    assert found.value("everstep_checkpoint_last_step", "disk") == 10
    assert found.value("everstep_train_skipped_steps_total") == 2
    assert found.value("everstep_train_collective_sequence") == 31


def test_extras_are_told_only_where_they_are_offered(callback: EverstepCallback, record: Path) -> None:
    assert math.isnan(_read(record).value("everstep_train_loss_scale"))
    callback.on_extras(loss_scale=1024.0, update_norm=0.5)
    _step(callback, 1)
    callback.on_checksum_mismatch()
    found = _read(record)
    assert found.value("everstep_train_loss_scale") == 1024.0
    assert found.value("everstep_train_update_norm") == 0.5
    assert math.isnan(found.value("everstep_train_local_gradient_norm"))
    assert math.isnan(found.value("everstep_gpu_memory_allocated_bytes", "reserved"))
    assert found.value("everstep_train_replica_checksum_mismatches_total") == 1


DURATIONS = "everstep_checkpoint_duration_seconds"


def test_saves_and_loads_are_timed_by_how_they_end(callback: EverstepCallback, record: Path) -> None:
    with callback.checkpoint("disk", "save"):
        pass
    with pytest.raises(OSError, match="full"), callback.checkpoint("disk", "save"):
        raise OSError("full")
    with pytest.raises(TimeoutError), callback.checkpoint("memory", "load"):
        raise TimeoutError
    with callback.checkpoint("tape", "save"):
        pass
    callback.on_unusable_checkpoint("disk")
    found = _read(record)
    counts = {
        key[1][:3]: value
        for key, value in found.values.items()
        if key[0] == DURATIONS and key[1][-1] == "count" and value
    }
    assert counts == {
        ("disk", "save", "success"): 1,
        ("disk", "save", "failed"): 1,
        ("disk", "load", "failed"): 1,
        ("memory", "load", "timeout"): 1,
    }
    assert found.value(DURATIONS, "disk", "save", "success", "0.1") == 1
    assert found.value(DURATIONS, "disk", "save", "success", "+Inf") == 1
    assert 0 <= found.value(DURATIONS, "disk", "save", "success", "sum") < 0.1


def test_a_commit_is_dated_when_it_is_new(
    callback: EverstepCallback, record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "everstep_checkpoint_last_success_timestamp_seconds"
    for at, step, dated in ((100.0, 4, 100.0), (200.0, 4, 100.0), (300.0, 5, 300.0)):
        monkeypatch.setattr("everstep.trainer_integration.callback.time", lambda at=at: at)
        callback.on_checkpoint("memory", step)
        assert _read(record).value(name, "memory") == dated
    assert _read(record).value(name, "disk") == 0.0


def test_a_nonfinite_step_is_evidence_and_no_step(callback: EverstepCallback, record: Path) -> None:
    _step(callback, 1)
    callback.on_nonfinite(57, True)
    found = _read(record)
    assert found.value("everstep_train_nonfinite_steps_total") == 1
    assert found.value("everstep_train_nonfinite_batch") == 57
    assert found.value("everstep_train_nonfinite_input") == 1
    assert math.isnan(found.value("everstep_train_loss"))
    assert found.value("everstep_train_steps_total") == 1
    assert len(found.steps) == 1


def test_nothing_is_raised_into_the_loop_and_the_first_failure_is_logged(
    callback: EverstepCallback, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        callback.state("dreaming")
        callback.on_checkpoint("tape", 3)
        callback.step_end("five", loss=1.0)  # type: ignore[arg-type]
        with callback.phase("lunch"):
            pass
    assert callback.failures == 3
    assert len(caplog.records) == 1
    assert "state failed; training goes on" in caplog.text


def test_the_loops_own_errors_pass_through_a_phase(callback: EverstepCallback) -> None:
    with pytest.raises(KeyError), callback.phase("forward"):
        raise KeyError("mine")


def test_without_the_agents_variables_it_does_nothing() -> None:
    callback = EverstepCallback.from_environment({})
    callback.on_train_start()
    _step(callback, 1)
    callback.on_nonfinite(1, False)
    callback.on_checkpoint("disk", 1)
    callback.state("steady")
    callback.close()
    assert callback.failures == 0


@pytest.mark.parametrize("bad", [{"EVERSTEP_ATTEMPT": "x"}, {"EVERSTEP_RANK_RECORD": "/proc/none/rank-0.rec"}])
def test_unusable_variables_make_it_inert_and_are_logged(
    record: Path, bad: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    callback = EverstepCallback.from_environment({"EVERSTEP_RANK_RECORD": str(record)} | bad)
    _step(callback, 1)
    assert callback.failures == 0
    assert "training goes on without a rank record" in caplog.text


def test_after_close_the_record_stays_readable_and_hooks_do_nothing(callback: EverstepCallback, record: Path) -> None:
    _step(callback, 1)
    callback.close()
    _step(callback, 2)
    callback.close()
    assert callback.failures == 0
    assert _read(record).value("everstep_train_steps_total") == 1


def test_it_loads_nothing_but_the_standard_library() -> None:
    code = (
        "import sys, sysconfig; import everstep.trainer_integration; "
        "print(sorted({n.split('.')[0] for n, m in sys.modules.items() "
        "if 'site-packages' in (getattr(m, '__file__', '') or '')} - {'_distutils_hack'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.strip() == "[]"
