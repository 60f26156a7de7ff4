from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep.collector.process_state import ProcessState, read_process, same_process, send_signal


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def wait_state(pid: int, state: ProcessState) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        reading = read_process(pid)
        if reading is not None and reading.state is state:
            return
        time.sleep(0.01)
    raise AssertionError(f"{pid} never became {state}")


@pytest.mark.parametrize(
    ("letter", "state"),
    [
        ("R", ProcessState.RUNNING),
        ("S", ProcessState.RUNNING),
        ("D", ProcessState.BLOCKED),
        ("T", ProcessState.STOPPED),
        ("t", ProcessState.TRACED),
        ("Z", ProcessState.ENDED),
        ("X", ProcessState.ENDED),
    ],
)
def test_the_state_letter_is_found_behind_any_command_name(tmp_path: Path, letter: str, state: ProcessState) -> None:
    folder = tmp_path / "42"
    folder.mkdir()
    numbers = " ".join(str(number) for number in range(4, 22))
    (folder / "stat").write_text(f"42 (evil) R (name) {letter} {numbers} 777 0 0")
    reading = read_process(42, proc=tmp_path)
    assert reading is not None
    assert reading.state is state
    assert reading.started_ticks == 777


def test_no_such_process() -> None:
    assert read_process(2**22 - 1) is None


def test_a_stopped_process_is_seen_and_continued(sleeper: subprocess.Popen[bytes]) -> None:
    reading = read_process(sleeper.pid)
    assert reading is not None
    assert send_signal(sleeper.pid, reading.started_ticks, signal.SIGSTOP)
    wait_state(sleeper.pid, ProcessState.STOPPED)
    assert send_signal(sleeper.pid, reading.started_ticks, signal.SIGCONT)
    wait_state(sleeper.pid, ProcessState.RUNNING)


def test_a_pid_with_another_start_time_is_a_stranger(sleeper: subprocess.Popen[bytes]) -> None:
    reading = read_process(sleeper.pid)
    assert reading is not None
    assert same_process(sleeper.pid, reading.started_ticks)
    assert not same_process(sleeper.pid, reading.started_ticks + 1)
    assert not send_signal(sleeper.pid, reading.started_ticks + 1, signal.SIGKILL)
    assert sleeper.poll() is None


def test_a_zombie_has_ended() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    try:
        wait_state(pid, ProcessState.ENDED)
        reading = read_process(pid)
        assert reading is not None
        assert not same_process(pid, reading.started_ticks)
    finally:
        os.waitpid(pid, 0)
