"""Xid errors counted once, though two sources tell of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_driver import FakeDriver
from structlog.testing import capture_logs

from everstep.collector.gpu import kernel_log, xid_events
from everstep.collector.gpu.device import GpuDevice
from everstep.collector.gpu.expected import ExpectedGpus
from everstep.collector.gpu.inventory import Inventory
from everstep.collector.gpu.kernel_log import KernelLog
from everstep.collector.gpu.nvml import NvmlError, NvmlSession
from everstep.collector.gpu.plan import Attachment
from everstep.collector.gpu.xid import XidCounts, XidSource, bus_address
from everstep.collector.gpu.xid_events import XidEvents
from everstep.core.clock import ManualClock
from everstep.core.errors import EverstepError
from everstep.core.faults import AUTOMATIC_XIDS

FELL_OFF = (
    "4,1187,{at},-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
)


def counted(counts: XidCounts) -> dict[tuple[str, str], float]:
    """By uuid and code, without zeros."""
    return {(dict(one.labels)["uuid"], dict(one.labels)["xid"]): one.value for one in counts.collect() if one.value}


def gpu(session: NvmlSession | None = None) -> GpuDevice:
    return GpuDevice(session or NvmlSession(None), uuid="GPU-0", pci_bus_id="00000000:3b:00.0")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1000.0)


@pytest.fixture
def counts(clock: ManualClock) -> XidCounts:
    counts = XidCounts(clock=clock.now)
    counts.meet(gpu())
    return counts


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "WAIT_S", 0.01)
    monkeypatch.setattr(xid_events, "WAIT_MS", 20)


@pytest.fixture
def log(tmp_path: Path, no_waiting: None) -> Iterator[tuple[Path, int]]:
    """A pipe in place of /dev/kmsg, and its writing end."""
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    yield path, writer
    os.close(writer)


def test_codes_with_an_automatic_action_begin_at_zero(counts: XidCounts) -> None:
    samples = list(counts.collect())
    assert {dict(one.labels)["xid"] for one in samples} == {str(xid) for xid in AUTOMATIC_XIDS}
    assert {one.value for one in samples} == {0.0}
    assert samples[0].labels[:2] == (("gpu", "0"), ("uuid", "GPU-0"))


def test_both_sources_tell_of_one_event(counts: XidCounts, clock: ManualClock) -> None:
    assert counts.tell_of("GPU-0", 79, XidSource.EVENT)
    clock.advance(0.9)
    assert not counts.tell_of_address((0, 0x3B, 0), 79, XidSource.LOG)
    assert counted(counts) == {("GPU-0", "79"): 1}


def test_a_slow_second_source_tells_of_the_same_event(counts: XidCounts, clock: ManualClock) -> None:
    counts.tell_of_address((0, 0x3B, 0), 79, XidSource.LOG)
    clock.advance(3.0)
    assert not counts.tell_of("GPU-0", 79, XidSource.EVENT)


def test_a_repeat_of_one_source_counts_again(counts: XidCounts, clock: ManualClock) -> None:
    for _ in range(3):
        counts.tell_of("GPU-0", 94, XidSource.EVENT)
        counts.tell_of_address((0, 0x3B, 0), 94, XidSource.LOG)
        clock.advance(1.5)
    assert counted(counts) == {("GPU-0", "94"): 3}


def test_another_code_in_the_same_second_is_another_event(counts: XidCounts) -> None:
    counts.tell_of("GPU-0", 45, XidSource.EVENT)
    counts.tell_of("GPU-0", 62, XidSource.EVENT)
    assert counted(counts) == {("GPU-0", "45"): 1, ("GPU-0", "62"): 1}


@pytest.mark.parametrize("code", [0, -1, 1000, 4294967295])
def test_what_is_no_code_is_not_counted(counts: XidCounts, code: int) -> None:
    assert not counts.tell_of("GPU-0", code, XidSource.EVENT)
    assert counted(counts) == {}


def test_who_waits_is_woken_by_new_events_only(counts: XidCounts) -> None:
    woken: list[bool] = []
    counts.on_event = lambda: woken.append(True)
    counts.tell_of("GPU-0", 79, XidSource.EVENT)
    counts.tell_of("GPU-0", 79, XidSource.LOG)
    assert woken == [True]


def test_a_gpu_that_nvml_never_showed_still_counts(counts: XidCounts) -> None:
    counts.tell_of_address((0, 0x99, 0), 79, XidSource.LOG)
    assert counted(counts) == {("", "79"): 1}


def test_counts_follow_a_gpu_whose_index_moves(clock: ManualClock) -> None:
    counts, device = XidCounts(clock=clock.now), gpu()
    counts.meet(device)
    counts.tell_of("GPU-0", 79, XidSource.EVENT)
    device.attach(Attachment(handle=None, index=5, generation=2))
    labels = {dict(one.labels)["gpu"] for one in counts.collect()}
    assert labels == {"5"}
    assert counted(counts) == {("GPU-0", "79"): 1}


def test_both_spellings_of_an_address() -> None:
    assert bus_address("00000000:3B:00.0") == bus_address("0000:3b:00") == (0, 0x3B, 0)


def test_lines_of_the_kernel_log(counts: XidCounts, log: tuple[Path, int]) -> None:
    path, writer = log
    source = KernelLog(path, counts)
    assert list(source.collect()) == []
    os.write(writer, b"6,1186,99,-;usb 1-1: new device\n")
    os.write(writer, FELL_OFF.format(at=100).encode())
    os.write(writer, b"4,1188,101,-;NVRM: Xid (PCI:0000:99:00): 119, pid=7, Timeout\n SUBSYSTEM=pci\n")
    source.collect()
    assert counted(counts) == {("GPU-0", "79"): 1, ("", "119"): 1}


def test_what_the_log_held_before_is_not_news(counts: XidCounts, tmp_path: Path, no_waiting: None) -> None:
    path = tmp_path / "kmsg"
    path.write_text(FELL_OFF.format(at=1))
    source = KernelLog(path, counts)
    source.collect()
    assert counted(counts) == {}
    with path.open("a") as log:
        log.write(FELL_OFF.format(at=2))
    source.collect()
    assert counted(counts) == {("GPU-0", "79"): 1}


def test_overwritten_lines_are_told_and_reading_goes_on(
    counts: XidCounts, log: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, writer = log
    source = KernelLog(path, counts)
    source.collect()
    os.write(writer, FELL_OFF.format(at=5).encode())
    answers = iter([BrokenPipeError()])
    real_read = os.read

    def read(file: int, size: int) -> bytes:
        for answer in answers:
            raise answer
        return real_read(file, size)

    monkeypatch.setattr(kernel_log.os, "read", read)
    with capture_logs() as lines:
        source.collect()
    assert [line["event"] for line in lines] == ["kernel_log_overrun"]
    assert counted(counts) == {("GPU-0", "79"): 1}


def test_an_unreadable_log_names_the_mend(counts: XidCounts, tmp_path: Path) -> None:
    with pytest.raises(EverstepError, match="cannot read the kernel log .*; run the agent as root or with CAP_SYSLOG"):
        KernelLog(tmp_path / "none", counts).collect()


class Watched:
    """An inventory of the fake driver with its event source."""

    def __init__(self, driver: FakeDriver) -> None:
        session = NvmlSession(driver.library)
        self.counts = XidCounts()
        self.inventory = Inventory(
            session,
            ExpectedGpus(None, Path("/nowhere/count")),
            on_new=self.counts.meet,
            on_duplicate=lambda _: None,
        )
        self.inventory.collect()
        self.events = XidEvents(session, lambda: self.inventory.devices, self.counts)


def test_events_of_the_driver(driver: FakeDriver, no_waiting: None) -> None:
    watched = Watched(driver)
    assert list(watched.events.collect()) == []
    driver.xid(1, 79)
    driver.xid(0, 31)
    watched.events.collect()
    watched.events.collect()
    watched.events.collect()
    assert counted(watched.counts) == {("GPU-1", "79"): 1, ("GPU-0", "31"): 1}


def test_xid_79_in_both_sources_is_one(driver: FakeDriver, log: tuple[Path, int]) -> None:
    watched = Watched(driver)
    lines = KernelLog(log[0], watched.counts)
    lines.collect()
    watched.events.collect()
    driver.xid(0, 79)
    os.write(log[1], FELL_OFF.format(at=9).encode())
    threads = [threading.Thread(target=source.collect) for source in (lines, watched.events)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert counted(watched.counts) == {("GPU-0", "79"): 1}


def test_a_gpu_that_takes_no_registration_is_told_once(driver: FakeDriver, no_waiting: None) -> None:
    driver.set(1, register_error=3)
    watched = Watched(driver)
    with capture_logs() as lines:
        watched.events.collect()
        watched.events.collect()
    assert [(line["event"], line["gpu"]) for line in lines] == [("no_xid_events", "GPU-1")]
    driver.xid(0, 48)
    watched.events.collect()
    assert counted(watched.counts) == {("GPU-0", "48"): 1}


def test_the_others_are_watched_when_a_lost_gpu_breaks_the_wait(driver: FakeDriver, no_waiting: None) -> None:
    watched = Watched(driver)
    watched.events.collect()
    driver.set("*", wait_error=15)
    driver.set(1, lost=1)
    watched.events.collect()
    driver.set("*", wait_error=0)
    driver.xid(0, 48)
    watched.events.collect()
    assert counted(watched.counts) == {("GPU-0", "48"): 1}


def test_a_lost_driver_ends_the_wait_and_a_new_session_watches_again(driver: FakeDriver, no_waiting: None) -> None:
    watched = Watched(driver)
    watched.events.collect()
    driver.set("*", wait_error=1)
    with pytest.raises(NvmlError):
        watched.events.collect()
    driver.set("*", wait_error=0)
    watched.inventory.collect()
    driver.xid(0, 48)
    watched.events.collect()
    assert counted(watched.counts) == {("GPU-0", "48"): 1}
