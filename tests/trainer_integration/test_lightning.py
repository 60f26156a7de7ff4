from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from example_run import BROKEN_HOOK, EXAMPLES, SLOW_DATA, ExampleRun, run_example, run_torchrun, skip_without

skip_without("pytorch_lightning", "lightning")

EXAMPLE = EXAMPLES / "lightning_module.py"
TOKENS_PER_BATCH = 8 * 17
BATCHES_PER_EPOCH = 20

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lightning")


@pytest.fixture(scope="module")
def first(output: Path) -> ExampleRun:
    return run_example(EXAMPLE, output, "--steps", "30", "--output", str(output), before=SLOW_DATA)


def test_every_step_is_in_the_record(first: ExampleRun) -> None:
    assert first.code == 0, first.output
    assert (first.record.job, first.record.rank, first.record.attempt) == ("demo", 0, 2)
    assert [(each.step, each.batch) for each in first.record.steps] == [(step, step - 1) for step in range(1, 31)]
    assert first.value("steps_total") == 30
    assert first.value("tokens_total") == 30 * TOKENS_PER_BATCH
    assert first.value("learning_rate") == pytest.approx(0.01 * 0.5**2)  # that of step 30, not of the next
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
    assert all(0.02 <= each.data < each.duration for each in first.record.steps)
    assert first.value("phase_seconds_total", "data") >= 30 * 0.02


def test_saves_are_timed_and_known(first: ExampleRun) -> None:
    assert first.saves("success") == 3  # steps 10, 20, 30
    assert first.saves("failed") == 0
    assert first.record.value("everstep_checkpoint_last_step", "disk") == 30


def test_a_resumed_run_continues_the_count_and_accumulates(first: ExampleRun, output: Path) -> None:
    assert first.code == 0, first.output
    run = run_example(EXAMPLE, output, "--steps", "36", "--accumulate", "2", "--output", str(output))
    assert run.code == 0, run.output
    assert [each.step for each in run.record.steps] == list(range(31, 37))
    assert run.value("tokens_total") == (30 + 2 * 6) * TOKENS_PER_BATCH
    assert run.record.steps[0].loss == pytest.approx(first.record.steps[-1].loss, rel=0.2)  # a mean, not half a loss


def test_a_loss_that_is_not_finite_is_reported(tmp_path: Path) -> None:
    arguments = ("--steps", "6", "--learning-rate", "1e30", "--output", str(tmp_path))
    run = run_example(EXAMPLE, tmp_path, *arguments)
    assert run.code == 0, run.output
    bad = [each.batch for each in run.record.steps if not math.isfinite(each.loss)]
    assert run.value("nonfinite_steps_total") == len(bad) > 0
    assert run.value("nonfinite_batch") == bad[-1]
    assert run.value("nonfinite_input") == 0


def test_a_broken_hook_never_reaches_the_loop(tmp_path: Path) -> None:
    run = run_example(EXAMPLE, tmp_path, "--steps", "10", "--output", str(tmp_path), before=BROKEN_HOOK)
    assert run.code == 0, run.output
    assert (tmp_path / "last.ckpt").exists()
    assert run.output.count("on_train_batch_end failed; training goes on") == 1
    assert run.record.steps == ()


def test_a_save_that_fails_is_counted_and_raises_what_it_raised(tmp_path: Path) -> None:
    full = (
        "import pytorch_lightning\n"
        "def full(*_, **__): raise OSError(28, 'No space left on device')\n"
        "pytorch_lightning.Trainer.save_checkpoint = full\n"
    )
    run = run_example(EXAMPLE, tmp_path, "--steps", "30", "--output", str(tmp_path), before=full)
    assert run.code == 1
    assert run.output.rstrip().endswith("OSError: [Errno 28] No space left on device")
    assert (run.saves("failed"), run.saves("success")) == (1, 0)
    assert run.record.value("everstep_checkpoint_last_step", "disk") == -1
    assert run.value("steps_total") == 10


def test_the_package_named_lightning_does_as_well(tmp_path: Path) -> None:
    if importlib.util.find_spec("lightning") is None:
        pytest.skip("THE PACKAGE NAMED LIGHTNING NOT TESTED: only pytorch_lightning is installed")
    program = tmp_path / "program.py"
    program.write_text(
        EXAMPLE.read_text()
        .replace("import pytorch_lightning as pl", "import lightning.pytorch as pl")
        .replace("from pytorch_lightning.", "from lightning.pytorch.")
    )
    run = run_example(program, tmp_path, "--steps", "10", "--output", str(tmp_path))
    assert run.code == 0, run.output
    assert [each.step for each in run.record.steps] == list(range(1, 11))
    assert run.saves("success") == 1


def test_it_runs_under_torchrun_without_an_agent(tmp_path: Path) -> None:
    done = run_torchrun(EXAMPLE, tmp_path, "--steps", "10", "--output", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "last.ckpt").exists()
