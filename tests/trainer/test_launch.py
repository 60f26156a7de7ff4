"""`everstep train` and the torchrun below it end together."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

LAUNCHER = """
import sys
from pathlib import Path
from everstep.trainer import launch
sys.executable = sys.argv[1]
sys.exit(launch.run(Path(sys.argv[2]), 1))
"""
TORCHRUN = """#!/bin/sh
trap 'echo told > "{folder}/end.new"; mv "{folder}/end.new" "{folder}/end"; exit 0' TERM
trap 'exit 1' INT
echo $$ > "{folder}/pid.new"; mv "{folder}/pid.new" "{folder}/pid"
while true; do sleep 0.05; done
"""
TIMEOUT_S = 30.0


def appears(file: Path) -> str:
    deadline = time.monotonic() + TIMEOUT_S
    while not file.exists():
        assert time.monotonic() < deadline, f"{file.name} did not appear"
        time.sleep(0.02)
    return file.read_text().strip()


def test_an_interrupted_training_ends_with_130_whatever_torchrun_says(tmp_path: Path) -> None:
    stand_in = tmp_path / "torchrun"
    stand_in.write_text(TORCHRUN.format(folder=tmp_path))
    stand_in.chmod(0o700)
    config = tmp_path / "run.yaml"
    config.write_text(f"output_dir: {tmp_path}\n")
    command = [sys.executable, "-c", LAUNCHER, str(stand_in), str(config)]
    with subprocess.Popen(command, start_new_session=True) as launcher:
        appears(tmp_path / "pid")
        try:
            os.killpg(launcher.pid, signal.SIGINT)  # as a terminal does
            assert launcher.wait(timeout=TIMEOUT_S) == 130
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(launcher.pid, signal.SIGKILL)


def test_torchrun_does_not_outlive_a_killed_launcher(tmp_path: Path) -> None:
    stand_in = tmp_path / "torchrun"
    stand_in.write_text(TORCHRUN.format(folder=tmp_path))
    stand_in.chmod(0o700)
    config = tmp_path / "run.yaml"
    config.write_text(f"output_dir: {tmp_path}\n")
    with subprocess.Popen([sys.executable, "-c", LAUNCHER, str(stand_in), str(config)]) as launcher:
        pid = int(appears(tmp_path / "pid"))
        launcher.kill()
        launcher.wait(timeout=TIMEOUT_S)
    try:
        assert appears(tmp_path / "end") == "told"
    finally:
        if not (tmp_path / "end").exists():
            os.kill(pid, signal.SIGKILL)
