"""Runs a program of `examples/` as a user would, with the environment of an agent, and reads the rank record back."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from everstep.core.rank_record import RankRecordReader, RankSnapshot

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PATIENCE_S = 110
DURATION = "everstep_checkpoint_duration_seconds"


def skip_without(package: str, extra: str) -> None:
    """Skip a module of tests with one line; finding a package does not import it."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(
            f"{package.upper()} CALLBACK NOT TESTED: not installed; pip install -c constraints.txt -e '.[{extra}]'",
            allow_module_level=True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleRun:
    code: int
    output: str
    record: RankSnapshot

    def value(self, name: str, *labels: str) -> float:
        return self.record.value(f"everstep_train_{name}", *labels)

    @property
    def state(self) -> list[str]:
        return [
            key[1][0] for key, value in self.record.values.items() if key[0] == "everstep_train_state" and value == 1
        ]

    def saves(self, outcome: str) -> float:
        return self.record.value(DURATION, "disk", "save", outcome, "count")


def run_example(program: Path, folder: Path, *arguments: str, before: str = "") -> ExampleRun:
    """One rank in a process of its own; `before` is Python that runs ahead of the example."""
    record = folder / "rank-0.rec"
    launch = (
        f"import runpy, sys\nsys.argv = {[str(program), *arguments]!r}\nsys.path.insert(0, {str(program.parent)!r})\n"
        f"{before}\nrunpy.run_path({str(program)!r}, run_name='__main__')\n"
    )
    agent = {"EVERSTEP_RANK_RECORD": str(record), "EVERSTEP_JOB": "demo", "EVERSTEP_ATTEMPT": "2"}
    rank = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    done = _run([sys.executable, "-c", launch], folder, {**agent, **rank})
    with RankRecordReader(record) as reader:
        return ExampleRun(code=done.returncode, output=done.stdout + done.stderr, record=reader.read())


def run_torchrun(program: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Two ranks under torchrun, no agent."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(program)]
    return _run([*command, *arguments], folder, {})


def _run(command: list[str], folder: Path, more: dict[str, str]) -> subprocess.CompletedProcess[str]:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("EVERSTEP_", "TORCHELASTIC_"))
    }
    return subprocess.run(
        command,
        cwd=folder,
        env={**inherited, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29400", **more},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


BROKEN_HOOK = """
from everstep.trainer_integration import EverstepCallback
def broken(*_, **__): raise RuntimeError('a broken hook')
EverstepCallback.step_end = broken
"""
BROKEN_RECORD = """
from everstep.core.rank_record import RankRecordWriter
def broken(*_, **__): raise RuntimeError('a broken record')
RankRecordWriter.add_step = broken
"""
SLOW_DATA = """
import time
from torch.utils.data.dataloader import _BaseDataLoaderIter
fetch = _BaseDataLoaderIter.__next__
def slow(self): time.sleep(0.02); return fetch(self)
_BaseDataLoaderIter.__next__ = slow
"""
