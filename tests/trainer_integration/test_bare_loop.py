from __future__ import annotations

import math
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from example_run import BROKEN_RECORD, EXAMPLES, ExampleRun, run_example, run_torchrun

EXAMPLE = EXAMPLES / "bare_loop.py"
TOKENS_PER_STEP = 8 * 16

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bare")


@pytest.fixture(scope="module")
def first(output: Path) -> ExampleRun:
    return run_example(EXAMPLE, output, "--steps", "30", "--output", str(output))


def test_five_lines_are_all_that_a_loop_needs() -> None:
    marks = re.findall(r"  # ([1-9])$", EXAMPLE.read_text(), re.MULTILINE)
    assert marks == ["1", "2", "3", "4", "5"]


def test_every_step_is_in_the_record(first: ExampleRun) -> None:
    assert first.code == 0, first.output
    assert (first.record.job, first.record.rank, first.record.attempt) == ("demo", 0, 2)
    assert [(each.step, each.batch) for each in first.record.steps] == [(step, step - 1) for step in range(1, 31)]
    assert first.value("steps_total") == 30
    assert first.value("tokens_total") == 30 * TOKENS_PER_STEP
    assert first.value("learning_rate") == 0.01
    assert first.state == ["idle"]
    assert first.record.value("everstep_checkpoint_last_step", "disk") == 30


def test_it_learns(first: ExampleRun) -> None:
    losses = [each.loss for each in first.record.steps]
    assert losses[0] == pytest.approx(math.log(64), abs=0.5)  # a uniform guess among 64 tokens
    assert losses[-1] < losses[0] / 4
    assert first.value("loss") == losses[-1]


def test_every_phase_has_its_time(first: ExampleRun) -> None:
    for phase in ("data", "forward", "backward", "optimizer"):
        assert first.value("phase_seconds_total", phase) > 0
    assert all(0 < each.compute < each.duration and 0 < each.data < each.duration for each in first.record.steps)


def test_a_resumed_run_continues_the_count(first: ExampleRun, output: Path) -> None:
    assert first.code == 0, first.output
    run = run_example(EXAMPLE, output, "--steps", "40", "--output", str(output))
    assert [each.step for each in run.record.steps] == list(range(31, 41))
    assert run.record.steps[0].batch == 30
    assert run.record.steps[0].loss < first.record.steps[0].loss / 4
    assert run.value("tokens_total") == 40 * TOKENS_PER_STEP


def test_a_loss_that_is_not_finite_is_reported(tmp_path: Path) -> None:
    run = run_example(EXAMPLE, tmp_path, "--steps", "6", "--learning-rate", "1e30", "--output", str(tmp_path))
    assert run.code == 0, run.output
    bad = [each.batch for each in run.record.steps if not math.isfinite(each.loss)]
    assert run.value("nonfinite_steps_total") == len(bad) > 0
    assert run.value("nonfinite_batch") == bad[-1]
    assert math.isnan(run.value("loss"))


def test_a_broken_record_never_reaches_the_loop(tmp_path: Path) -> None:
    run = run_example(EXAMPLE, tmp_path, "--steps", "5", "--output", str(tmp_path), before=BROKEN_RECORD)
    assert run.code == 0, run.output
    assert (tmp_path / "checkpoint.pt").exists()
    assert run.output.count("step_end failed; training goes on") == 1
    assert run.record.steps == ()


def test_it_runs_under_torchrun_without_an_agent(tmp_path: Path) -> None:
    done = run_torchrun(EXAMPLE, tmp_path, "--steps", "5", "--output", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "checkpoint.pt").exists()
