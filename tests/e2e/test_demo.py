"""The whole loop on real processes: each fault is found, explained and healed, and nothing of the demo stays behind.

Outcomes only, never times.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from everstep.cli.demo_run.janitor import MARK
from everstep.cli.demo_run.layout import SHM
from everstep.cli.demo_run.scenario import DemoFault
from everstep.cli.demo_run.screen import Screen
from everstep.cli.demo_run.session import DemoOptions, References, run_fault
from everstep.cli.demo_run.verdict import Verdict
from everstep.core.events import Entity, EntityKind

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

STEPS = 60
START_TIMEOUT_S = 90.0
GONE_TIMEOUT_S = 30.0


def command(output: Path, fault: str) -> list[str]:
    start = [sys.executable, "-m", "everstep.cli.main", "demo", "--json", "--steps", str(STEPS)]
    return [*start, "--fault", fault, "--output", str(output)]


@pytest.fixture(scope="module")
def references() -> References:
    """Uninterrupted runs, trained once for all tests here."""
    return {}


def healed(fault: DemoFault, output: Path, references: References) -> Verdict:
    """A run of the demo whose outcomes are all as they must be."""
    options = DemoOptions(output=output, seed=1, steps=STEPS)
    verdict = run_fault(fault, options, Screen(Console(stderr=True)), references)
    assert verdict.failures == ()
    assert verdict.ok
    assert verdict.false_incidents == 0
    assert verdict.final_loss == pytest.approx(verdict.reference_loss, abs=1e-6)
    assert (output / "report.html").read_text().startswith("<!doctype html>")
    assert json.loads((output / "incident.json").read_text())["verdict"]["fault"] == fault
    assert list(output.glob(".run-*")) == []
    return verdict


def test_a_killed_worker_is_restarted_from_the_newest_committed_step(tmp_path: Path) -> None:
    done = subprocess.run(command(tmp_path, "kill_process"), capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout.count("\n") == 1, done.stderr
    verdict = json.loads(done.stdout)
    assert (done.returncode, verdict["ok"]) == (0, True), done.stderr
    assert verdict["culprit"] == {"kind": "rank", "name": "demo/1"}
    assert verdict["fault_kind"] == "SOFTWARE"
    assert verdict["lost_steps"] == 0


def test_a_poisoned_batch_is_named_and_skipped(tmp_path: Path, references: References) -> None:
    verdict = healed(DemoFault.NAN_LOSS, tmp_path, references)
    assert verdict.culprit is not None
    assert verdict.culprit.kind is EntityKind.BATCH
    assert verdict.culprit == verdict.expected
    assert "skip_batch" in verdict.actions
    assert "isolate_node" not in verdict.actions


def test_damaged_checkpoints_are_passed_over_for_the_older_good_one(tmp_path: Path, references: References) -> None:
    verdict = healed(DemoFault.CORRUPT_CHECKPOINT, tmp_path, references)
    assert verdict.culprit == verdict.expected
    assert verdict.resumed_from is not None
    assert verdict.resumed_from.tier == "disk"
    assert verdict.lost_steps == verdict.repeated_steps > 0


def test_a_dead_node_is_replaced_by_the_spare(tmp_path: Path, references: References) -> None:
    verdict = healed(DemoFault.KILL_NODE, tmp_path, references)
    assert verdict.culprit == Entity(kind=EntityKind.NODE, name="node-1")
    assert verdict.world == 3
    assert verdict.lost_steps == 0


def test_without_a_fault_no_incident_opens(tmp_path: Path, references: References) -> None:
    verdict = healed(DemoFault.NONE, tmp_path, references)
    assert verdict.culprit is None
    assert verdict.expected is None


def _demo_id(output: Path) -> str:
    """The id prefix of a running demo, from its scratch folder; waits for the first trained step."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        for steps in output.glob(".run-*/jobs/demo/steps.jsonl"):
            if steps.stat().st_size:
                return steps.parents[2].name.removeprefix(".run-")
        time.sleep(0.2)
    raise AssertionError("the job did not start")


def _left(prefix: str) -> list[str]:
    """Command lines of processes that carry the demo's mark, and its shared-memory folders."""
    wanted = f"{MARK}={prefix}".encode()
    found = [str(path) for path in SHM.glob(f"everstep-demo-*-{prefix}")]
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if wanted in Path(entry.path, "environ").read_bytes():
                    found.append(Path(entry.path, "cmdline").read_bytes().decode(errors="replace"))
            except OSError:
                continue
    return found


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (tmp_path / "demo.log").open("wb") as log:
        process = subprocess.Popen(command(tmp_path, "none"), stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait(timeout=10)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_or_killed_demo_leaves_nothing(
    tmp_path: Path, running: subprocess.Popen[bytes], number: signal.Signals
) -> None:
    prefix = _demo_id(tmp_path)
    assert _left(prefix)
    running.send_signal(number)
    assert running.wait(timeout=GONE_TIMEOUT_S) == (130 if number is signal.SIGINT else -signal.SIGKILL)
    deadline = time.monotonic() + GONE_TIMEOUT_S
    while _left(prefix) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert _left(prefix) == []
