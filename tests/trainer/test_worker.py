from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from everstep.core.errors import ConfigError, ManifestError
from everstep.core.exits import WorkerExit
from everstep.trainer.checkpoint.choice import CheckpointError
from everstep.trainer.checkpoint.fence import FencedError
from everstep.trainer.checkpoint.resume import LoadError
from everstep.trainer.data import DataError
from everstep.trainer.loop import NonFiniteLossError
from everstep.trainer.worker import exit_code, is_peer_loss, main


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NonFiniteLossError("x", mend="y"), WorkerExit.NONFINITE),
        (FencedError("x", mend="y"), WorkerExit.FENCED),
        (CheckpointError("x", mend="y"), WorkerExit.CHECKPOINT),
        (ManifestError("x", mend="y"), WorkerExit.CHECKPOINT),
        (ConfigError("x", mend="y"), WorkerExit.USAGE),
        (OSError(errno.ENOSPC, "No space left on device"), WorkerExit.DISK_FULL),
        (DataError("cannot read shard a (Connection reset by peer)", mend="y"), WorkerExit.EXCEPTION),
        (MemoryError(), WorkerExit.OUT_OF_MEMORY),
        (RuntimeError("[/gloo/tcp/pair.cc:538] Connection closed by peer [127.0.0.1]:1"), WorkerExit.PEER_LOST),
        (RuntimeError("[unbound_buffer.cc:81] Timed out waiting 30000ms for recv operation"), WorkerExit.PEER_LOST),
        (ValueError("something else"), WorkerExit.EXCEPTION),
    ],
)
def test_every_end_has_its_code(error: Exception, code: WorkerExit) -> None:
    assert exit_code(error) == code


def test_a_lost_peer_is_seen_through_the_error_that_wraps_it() -> None:
    outer = ValueError("saving failed")
    outer.__cause__ = RuntimeError("Connection reset by peer")
    assert is_peer_loss(outer)
    assert not is_peer_loss(ValueError("saving failed"))


def test_a_peer_that_is_lost_while_its_shard_is_fetched_is_no_bad_copy() -> None:
    assert exit_code(LoadError("x", mend="y")) == WorkerExit.CHECKPOINT
    error = LoadError("x", mend="y")
    error.__cause__ = RuntimeError("Connection reset by peer")
    assert exit_code(error) == WorkerExit.PEER_LOST


def test_a_bad_configuration_ends_with_one_line_and_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", str(tmp_path / "absent.yaml")]) == WorkerExit.USAGE
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("everstep worker: exit 2 reason=exception: cannot read configuration")


def test_preloading_leaves_one_thread_and_covers_what_torch_loads_late() -> None:
    code = (
        "import everstep.trainer.preload, os, sys; print(len(os.listdir('/proc/self/task')), "
        "'torch._dynamo' in sys.modules, 'everstep.trainer.session' in sys.modules, 'pydantic' in sys.modules)"
    )
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # as the agent sets it; numpy's BLAS starts threads otherwise
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, env=environment
    )
    assert done.stdout.split() == ["1", "True", "True", "False"]
