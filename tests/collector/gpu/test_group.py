"""All GPUs under watch, with real threads: one that hangs or is lost leaves the others fresh."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_driver import FakeDriver

from everstep.collector.gate import Rejections
from everstep.collector.gpu.group import Gpus
from everstep.collector.sampling import Sampling
from everstep.core.clock import SteadyClock
from everstep.core.settings import AgentSettings

PATIENCE_S = 20.0
Values = dict[tuple[str, str], float]


class Node:
    """Only GPUs, sampled ten times a second."""

    def __init__(self, folder: Path, **settings: object) -> None:
        settings = {
            "nvml_library": folder / "libnvidia-ml.so.1",
            "kernel_log": folder / "no-kmsg",
            "gpu_interval_s": 0.1,
            "source_deadline_s": 0.5,
            **settings,
        }
        self.duplicates: list[str] = []
        self.gpus = Gpus(
            AgentSettings.model_validate(settings),
            SteadyClock(),
            count_file=folder / "gpus-seen",
            on_duplicate=self.duplicates.append,
        )
        self.sampling = Sampling([], self.gpus, Rejections())

    def scrape(self, *labels: str) -> Values:
        """By metric (without its prefix) and the value of the given labels, joined."""
        wanted = labels or ("uuid",)
        return {
            (
                one.metric.removeprefix("everstep_"),
                "/".join(dict(one.labels).get(label, "") for label in wanted),
            ): one.value
            for one in self.sampling.collect()
        }

    def until(self, check: Callable[[Values], object]) -> Values:
        """The first scrape that passes."""
        end = time.monotonic() + PATIENCE_S
        while True:
            found = self.scrape()
            if check(found):
                return found
            assert time.monotonic() < end, found
            time.sleep(0.02)


@pytest.fixture
def node(driver: FakeDriver, tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    node.sampling.start()
    yield node
    driver.set("*", hang=0)
    driver.set(1, hang=0)
    node.sampling.stop(2.0)


def both_up(found: Values) -> bool:
    return found.get(("gpu_up", "GPU-0")) == found.get(("gpu_up", "GPU-1")) == 1


def test_both_gpus_are_found_and_read(node: Node) -> None:
    found = node.until(both_up)
    assert found["gpu_power_watts", "GPU-0"] == found["gpu_power_watts", "GPU-1"] == 612.345
    assert found["gpus_expected", ""] == 2
    assert abs(found["gpu_last_sample_timestamp_seconds", "GPU-0"] - time.time()) < PATIENCE_S


def test_a_hanging_gpu_goes_stale_and_the_other_stays_fresh(node: Node, driver: FakeDriver) -> None:
    node.until(both_up)
    driver.set(1, hang=1)
    found = node.until(lambda found: found.get(("gpu_up", "GPU-1")) == 0)
    assert ("gpu_power_watts", "GPU-1") not in found
    assert found["gpu_up", "GPU-0"] == 1
    first = found["gpu_last_sample_timestamp_seconds", "GPU-0"]
    driver.set(0, temperature=77)
    found = node.until(lambda found: found.get(("gpu_last_sample_timestamp_seconds", "GPU-0"), 0) > first + 1)
    assert found["gpu_last_sample_timestamp_seconds", "GPU-1"] < first
    assert node.scrape("sensor", "gpu")["gpu_temperature_celsius", "core/0"] == 77
    assert node.scrape("source", "reason")["agent_source_failures_total", "gpu/timeout"] == 1
    assert node.scrape("source")["agent_source_up", "gpu"] == 0
    driver.set(1, hang=0)
    node.until(both_up)


def test_a_lost_gpu_is_down_while_it_stays_expected(node: Node, driver: FakeDriver) -> None:
    node.until(both_up)
    driver.xid(1, 79)
    driver.set(1, lost=1)
    found = node.until(lambda found: found.get(("gpu_up", "GPU-1")) == 0)
    gone = {metric for metric, uuid in found if uuid == "GPU-1"}
    assert gone == {"gpu_up", "gpu_last_sample_timestamp_seconds", "gpu_xid_errors_total"}
    assert found["gpus_expected", ""] == 2
    assert found["gpu_up", "GPU-0"] == 1
    assert node.scrape("source", "reason")["agent_source_failures_total", "gpu/error"] >= 1
    node.until(lambda _: node.scrape("uuid", "xid")["gpu_xid_errors_total", "GPU-1/79"] == 1)


def test_bogus_values_are_kept_and_counted(node: Node, driver: FakeDriver) -> None:
    node.until(both_up)
    driver.set(0, temperature=82505, utilization=2619)
    node.until(lambda _: len([key for key in node.scrape("metric") if key[0] == "agent_samples_rejected_total"]) == 2)
    found = node.scrape("sensor", "gpu")
    assert ("gpu_temperature_celsius", "core/0") not in found
    assert found["gpu_temperature_celsius", "core/1"] == 54
    assert found["gpu_up", "/0"] == 1, "the GPU itself answers"


def test_a_counter_that_begins_again_is_let_through(node: Node, driver: FakeDriver) -> None:
    driver.field(0, 94, 900_000)
    node.until(lambda found: found.get(("gpu_pcie_replays_total", "GPU-0")) == 900_000)
    driver.field(0, 94, 5)
    node.until(lambda found: found.get(("gpu_pcie_replays_total", "GPU-0")) == 5)


def test_without_a_library_the_expected_number_is_told(tmp_path: Path) -> None:
    node = Node(tmp_path, gpus_expected=8)
    node.sampling.read_once()
    assert node.scrape()["gpus_expected", ""] == 8
    assert node.scrape("source")["agent_source_up", "nvml"] == 0


def test_a_node_without_driver_and_expectation_is_no_failure(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.sampling.read_once()
    assert node.scrape()["gpus_expected", ""] == 0
    assert node.scrape("source")["agent_source_up", "nvml"] == 1


def test_one_reading_for_a_single_exposition(driver: FakeDriver, tmp_path: Path) -> None:
    driver.set("*", count=8)
    driver.set(3, hang=1)
    node = Node(tmp_path)
    node.sampling.read_once()
    up = {uuid: value for (metric, uuid), value in node.scrape().items() if metric == "gpu_up"}
    assert up == {f"GPU-{index}": float(index != 3) for index in range(8)}


def test_a_gpu_shown_twice_is_one_series(driver: FakeDriver, tmp_path: Path) -> None:
    driver.set("*", count=3)
    driver.set(2, uuid="GPU-1")
    node = Node(tmp_path)
    node.sampling.read_once()
    assert {uuid for metric, uuid in node.scrape() if metric == "gpu_power_watts"} == {"GPU-0", "GPU-1"}
    assert node.duplicates == ["GPU-1"]
