"""Which GPUs there are, through the real bindings: duplicates, losses, a driver that comes back, no library."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_driver import FakeDriver
from structlog.testing import capture_logs

from everstep.collector.gpu.device import GpuDevice
from everstep.collector.gpu.expected import ExpectedGpus
from everstep.collector.gpu.inventory import Inventory
from everstep.collector.gpu.nvml import GpuLostError, NvmlAbsentError, NvmlError, NvmlSession


class Look:
    """An inventory and what it said."""

    def __init__(self, library: Path, *, expected: int | None = None, folder: Path = Path("/nowhere")) -> None:
        self.new: list[str] = []
        self.duplicates: list[str] = []
        self.expected = ExpectedGpus(expected, folder / "gpus-seen")
        self.inventory = Inventory(
            NvmlSession(library),
            self.expected,
            on_new=lambda device: self.new.append(device.uuid),
            on_duplicate=self.duplicates.append,
        )

    def again(self) -> tuple[GpuDevice, ...]:
        assert list(self.inventory.collect()) == []
        return self.inventory.devices


def test_each_gpu_is_met_once(driver: FakeDriver) -> None:
    look = Look(driver.library)
    look.again()
    look.again()
    assert look.new == ["GPU-0", "GPU-1"]
    assert look.expected.value == 2


def test_a_gpu_shown_twice_is_read_once_and_told(driver: FakeDriver) -> None:
    driver.set("*", count=3)
    driver.set(2, uuid="GPU-1")
    look = Look(driver.library)
    devices = look.again()
    assert [(device.uuid, device.index) for device in devices] == [("GPU-0", 0), ("GPU-1", 1)]
    assert look.duplicates == ["GPU-1"]
    assert look.expected.value == 2


def test_a_gpu_that_is_not_shown_any_more_is_lost_and_may_come_back(driver: FakeDriver) -> None:
    look = Look(driver.library)
    look.again()
    driver.set(1, lost=1)
    first, second = look.again()
    assert first.collect()
    with pytest.raises(GpuLostError):
        second.collect()
    assert look.expected.value == 2, "what is lost is still expected"
    driver.set(1, lost=0)
    look.again()
    assert second.collect()
    assert look.new == ["GPU-0", "GPU-1"]


def test_a_gpu_keeps_its_uuid_when_indices_move(driver: FakeDriver) -> None:
    look = Look(driver.library)
    first, second = look.again()
    driver.set("*", count=1)
    driver.set(0, uuid="GPU-1")
    look.again()
    with pytest.raises(GpuLostError):
        first.collect()
    assert {dict(one.labels)["gpu"] for one in second.collect()} == {"0"}


def test_a_lost_driver_is_opened_again(driver: FakeDriver) -> None:
    look = Look(driver.library)
    first, _ = look.again()
    first.collect()
    driver.set("*", driver_error=9)
    with pytest.raises(NvmlError):
        first.collect()
    driver.set("*", init_error=9)
    with pytest.raises(NvmlError, match="cannot be used"):
        look.again()
    driver.set("*", driver_error=0, init_error=0)
    look.again()
    assert first.collect()


def test_without_a_library_a_node_has_no_gpu_and_says_so_once() -> None:
    look = Look(Path("/nowhere/libnvidia-ml.so.1"))
    with capture_logs() as logs:
        assert look.again() == ()
        look.again()
    assert [(line["event"], line["log_level"]) for line in logs] == [("no_gpus", "info")]
    assert "agent.nvml_library" in logs[0]["mend"]


def test_without_a_library_expected_gpus_are_missing() -> None:
    with pytest.raises(NvmlAbsentError, match="no NVML library .*; install the NVIDIA driver"):
        Look(Path("/nowhere/libnvidia-ml.so.1"), expected=8).again()


def test_the_highest_count_survives_a_restart(driver: FakeDriver, tmp_path: Path) -> None:
    Look(driver.library, folder=tmp_path).again()
    driver.set("*", count=1)
    look = Look(driver.library, folder=tmp_path)
    look.again()
    assert look.expected.value == 2
    assert [one.value for one in look.expected.collect()] == [2.0]
    assert ExpectedGpus(8, tmp_path / "gpus-seen").value == 8


@pytest.mark.parametrize("content", [b"", b"many", b"-1", b"9999", b"\xff"])
def test_an_unreadable_count_counts_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "gpus-seen").write_bytes(content)
    assert ExpectedGpus(None, tmp_path / "gpus-seen").value == 0
