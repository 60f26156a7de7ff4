"""A source in its own thread: fresh, stale, failing, stuck; never in the agent's way."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import pytest
from structlog.testing import capture_logs

from everstep.collector.samples import Sample
from everstep.collector.watched import WatchedSource, read_all_once
from everstep.core.clock import ManualClock
from everstep.core.errors import EverstepError

BLOCKED = Sample(metric="everstep_host_blocked_tasks", value=3.0)
PATIENCE_S = 10.0


class Device:
    """A source that a test can break, hold and release."""

    def __init__(self) -> None:
        self.value = 3.0
        self.error: Exception | None = None
        self.num_calls = 0
        self.entered = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def collect(self) -> Iterable[Sample]:
        self.num_calls += 1
        self.entered.set()
        assert self.gate.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        yield Sample(metric="everstep_host_blocked_tasks", value=self.value)


@pytest.fixture
def device() -> Iterator[Device]:
    device = Device()
    yield device
    device.gate.set()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100.0)


def watch(device: Device, clock: ManualClock | None = None, *, interval_s: float = 1.0) -> WatchedSource:
    return WatchedSource("host", device, interval_s=interval_s, deadline_s=2.0, clock=clock, retry_s=0.01)


def eventually(check: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not check():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_the_newest_reading_is_given_while_it_is_fresh(device: Device, clock: ManualClock) -> None:
    source = watch(device, clock, interval_s=60.0)
    source.start()
    eventually(lambda: source.is_up)
    clock.advance(119.9)
    assert tuple(source.collect()) == (BLOCKED,)
    assert source.is_up


def test_an_old_value_is_dropped_not_frozen(device: Device, clock: ManualClock) -> None:
    source = watch(device, clock, interval_s=60.0)
    source.start()
    eventually(lambda: source.is_up)
    clock.advance(120.0)
    assert tuple(source.collect()) == ()
    assert source.is_up is False
    source.stop()


def test_a_single_reading_waits_for_the_others(device: Device, clock: ManualClock) -> None:
    source = watch(device, clock)
    assert source.sample_once() == (BLOCKED,)
    clock.advance(30.0)
    assert tuple(source.collect()) == (BLOCKED,)


def test_nothing_is_known_before_the_first_reading(device: Device, clock: ManualClock) -> None:
    source = watch(device, clock)
    assert source.is_up is None
    device.gate.clear()
    source.begin_once()
    assert device.entered.wait(PATIENCE_S)
    assert source.is_up is None
    assert tuple(source.collect()) == ()


def test_a_call_beyond_its_deadline_is_told_and_counted_once(device: Device, clock: ManualClock) -> None:
    source = watch(device, clock)
    device.gate.clear()
    with capture_logs() as lines:
        source.start()
        assert device.entered.wait(PATIENCE_S)
        clock.advance(2.5)
        for _ in range(3):
            assert tuple(source.collect()) == ()
        assert source.is_up is False
    assert [(line["event"], line["source"]) for line in lines] == [("source_hangs", "host")]
    assert "mend" in lines[0]
    assert (source.num_timeouts, source.num_errors) == (1, 0)
    assert source.duration_s == 2.5
    assert source.stop(0.01) is False, "the thread stays behind"
    source.start()
    assert device.num_calls == 1, "a second thread would hang, too"


def test_a_call_that_comes_back_late_is_stale_and_the_next_is_fresh(device: Device, clock: ManualClock) -> None:
    source = watch(device, clock, interval_s=0.01)
    device.gate.clear()
    source.start()
    assert device.entered.wait(PATIENCE_S)
    clock.advance(60.0)
    assert tuple(source.collect()) == ()
    with capture_logs() as lines:
        device.gate.set()
        eventually(lambda: source.is_up)
    assert [line["event"] for line in lines] == ["source_back"]
    assert tuple(source.collect()) == (BLOCKED,)
    assert source.stop()


def test_an_error_is_told_once_and_drops_what_was_known(device: Device, clock: ManualClock) -> None:
    source = watch(device, clock, interval_s=0.01)
    source.start()
    eventually(lambda: source.is_up)
    with capture_logs() as lines:
        device.error = EverstepError("the fan is on fire", mend="fetch water")
        eventually(lambda: source.num_errors >= 3)
    assert [(line["event"], line["problem"], line["mend"]) for line in lines] == [
        ("source_failed", "the fan is on fire", "fetch water")
    ]
    assert tuple(source.collect()) == ()
    assert source.is_up is False
    device.error = None
    eventually(lambda: source.is_up)
    source.stop()


def test_a_bug_in_a_source_ends_at_its_thread(device: Device) -> None:
    source = watch(device)
    device.error = KeyError("bug")
    with capture_logs() as lines:
        assert source.sample_once() == ()
        assert source.sample_once() == ()
    assert [(line["event"], line["log_level"]) for line in lines] == [("source_failed", "error")]
    assert source.num_errors == 2


def test_readings_go_on_until_stopped(device: Device) -> None:
    source = watch(device, interval_s=0.01)
    source.start()
    eventually(lambda: device.num_calls > 5)
    assert source.stop()
    num_calls = device.num_calls
    time.sleep(0.05)
    assert device.num_calls == num_calls


def test_all_at_once_waits_for_no_deadline_twice(device: Device) -> None:
    stuck = [WatchedSource("gpu", device, interval_s=1, deadline_s=0.05) for _ in range(3)]
    good = watch(Device())
    device.gate.clear()
    read_all_once([*stuck, good])
    assert tuple(good.collect()) == (BLOCKED,)
    assert [one.is_up for one in stuck] == [False] * 3


def test_only_names_of_the_closed_set() -> None:
    with pytest.raises(ValueError, match="AGENT_SOURCES"):
        WatchedSource("webcam", Device(), interval_s=1, deadline_s=1)


def test_a_stuck_thread_does_not_hold_up_the_end_of_the_process() -> None:
    program = """
import threading
from everstep.collector.watched import WatchedSource
class Stuck:
    def collect(self):
        threading.Event().wait()
source = WatchedSource("gpu", Stuck(), interval_s=1, deadline_s=0.05)
source.start()
print(source.stop(0.05))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "False\n"
