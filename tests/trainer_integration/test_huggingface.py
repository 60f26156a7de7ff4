from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from example_run import BROKEN_HOOK, EXAMPLES, SLOW_DATA, ExampleRun, run_example, run_torchrun, skip_without

skip_without("transformers", "huggingface")
skip_without("accelerate", "huggingface")

EXAMPLE = EXAMPLES / "huggingface_trainer.py"
TOKENS_PER_BATCH = 8 * 16

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("huggingface")


@pytest.fixture(scope="module")
def first(output: Path) -> ExampleRun:
    return run_example(EXAMPLE, output, "--steps", "30", "--output", str(output), before=SLOW_DATA)


def test_every_step_is_in_the_record(first: ExampleRun) -> None:
    assert first.code == 0, first.output
    assert (first.record.job, first.record.rank, first.record.attempt) == ("demo", 0, 2)
    assert [(each.step, each.batch) for each in first.record.steps] == [(step, step - 1) for step in range(1, 31)]
    assert first.value("steps_total") == 30
    assert first.value("tokens_total") == 30 * TOKENS_PER_BATCH
    assert first.value("learning_rate") == pytest.approx(0.01 / 30)  # that of step 30: the schedule ends at 0 after it
    assert first.state == ["idle"]
    assert "everstep callback:" not in first.output


def test_loss_and_gradient_norm_are_those_of_the_step(first: ExampleRun) -> None:
    losses = [each.loss for each in first.record.steps]
    assert losses[0] == pytest.approx(math.log(64), abs=0.5)  # a uniform guess among 64 tokens
    assert losses[-1] < losses[0] / 2
    assert first.value("loss") == losses[-1]
    assert all(0 < each.gradient_norm < 10 for each in first.record.steps)


def test_every_phase_has_its_time(first: ExampleRun) -> None:
    for phase in ("data", "forward", "backward", "optimizer", "evaluation", "checkpoint"):
        assert first.value("phase_seconds_total", phase) > 0
    assert all(0 < each.compute < each.duration for each in first.record.steps)


def test_the_wait_for_data_is_seen_and_part_of_the_step(first: ExampleRun) -> None:
    assert first.value("phase_seconds_total", "data") >= 30 * 0.02
    waited = [each for each in first.record.steps if each.data >= 0.02]
    assert len(waited) >= 28  # accelerate fetches one batch ahead: none is left to fetch at the end of an epoch
    assert all(each.data < each.duration for each in waited)


def test_saves_are_timed_and_known(first: ExampleRun) -> None:
    assert first.saves("success") == 3  # steps 10, 20, 30
    assert first.record.value("everstep_checkpoint_last_step", "disk") == 30


def test_a_resumed_run_continues_the_count(first: ExampleRun, output: Path) -> None:
    assert first.code == 0, first.output
    run = run_example(EXAMPLE, output, "--steps", "36", "--output", str(output))
    assert run.code == 0, run.output
    assert [each.step for each in run.record.steps] == list(range(31, 37))
    assert run.value("tokens_total") == 36 * TOKENS_PER_BATCH
    assert run.record.steps[0].loss < first.record.steps[0].loss / 2


def test_a_step_is_an_optimizer_step_and_keeps_the_loss_of_the_last_log(tmp_path: Path) -> None:
    arguments = ("--steps", "7", "--accumulate", "3", "--log-every", "3", "--output", str(tmp_path))
    run = run_example(EXAMPLE, tmp_path, *arguments)
    assert run.code == 0, run.output
    steps = run.record.steps
    assert [each.step for each in steps] == list(range(1, 8))
    # An epoch has 20 batches: six steps of three, one of two.
    assert run.value("tokens_total") == 20 * TOKENS_PER_BATCH
    losses = [each.loss for each in steps]
    assert losses[:2] == [0.0, 0.0]  # not known before the first log
    assert 0 < losses[5] < losses[4] == losses[3] == losses[2] < 5
    assert losses[6] == losses[5]
    assert [math.isnan(each.gradient_norm) for each in steps] == [True, True, False, True, True, False, True]


def test_a_loss_that_is_not_finite_is_reported(tmp_path: Path) -> None:
    arguments = ("--steps", "6", "--learning-rate", "1e30", "--schedule", "constant", "--output", str(tmp_path))
    run = run_example(EXAMPLE, tmp_path, *arguments)
    assert run.code == 0, run.output
    bad = [each.batch for each in run.record.steps if not math.isfinite(each.loss)]
    assert run.value("nonfinite_steps_total") == len(bad) > 0
    assert run.value("nonfinite_batch") == bad[-1]
    assert run.value("nonfinite_input") == 0


def test_a_log_at_the_end_of_an_epoch_comes_with_the_next_step(tmp_path: Path) -> None:
    by_epoch = (
        "import transformers\n"
        "arguments = transformers.TrainingArguments\n"
        "transformers.TrainingArguments = lambda **more: arguments(**more | {'logging_strategy': 'epoch'})\n"
    )
    run = run_example(EXAMPLE, tmp_path, "--steps", "24", "--output", str(tmp_path), before=by_epoch)
    assert run.code == 0, run.output
    losses = [each.loss for each in run.record.steps]
    assert losses[:20] == [0.0] * 20  # an epoch has 20 steps
    assert 0 < losses[20] < 5
    assert losses[20:] == [losses[20]] * 4


def test_a_broken_hook_never_reaches_the_loop(tmp_path: Path) -> None:
    run = run_example(EXAMPLE, tmp_path, "--steps", "10", "--output", str(tmp_path), before=BROKEN_HOOK)
    assert run.code == 0, run.output
    assert (tmp_path / "checkpoint-10").is_dir()
    assert run.output.count("training goes on, later failures are only counted") == 1
    assert run.record.steps == ()


def test_it_runs_under_torchrun_without_an_agent(tmp_path: Path) -> None:
    done = run_torchrun(EXAMPLE, tmp_path, "--steps", "10", "--output", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "checkpoint-10").is_dir()
