"""A real agent on a node with two GPUs: the real bindings, a fake driver, a pipe in place of the kernel log."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
sys.path.insert(0, str(Path(__file__).parents[1] / "collector" / "fake_nvml"))
from agent_node import PATIENCE_S, AgentNode, Receiver, eventually
from fake_driver import FakeDriver, build

pytestmark = pytest.mark.integration

POWER = "everstep_gpu_power_watts"
UP = "everstep_gpu_up"
XIDS = "everstep_gpu_xid_errors_total"
LINE = "4,77,1000,-;NVRM: Xid (PCI:0000:3c:00): 79, pid=1, GPU has fallen off the bus.\n"


class GpuNode:
    """The agent, its driver, its kernel log and what it pushes."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.driver = FakeDriver(build(folder), folder / "nvml-state", count=2)
        for name, value in self.driver.environment.items():
            monkeypatch.setenv(name, value)
        os.mkfifo(folder / "kmsg")
        self.kernel_log = os.open(folder / "kmsg", os.O_RDWR | os.O_NONBLOCK)
        self.receiver = Receiver()
        settings = {
            "nvml_library": str(self.driver.library),
            "kernel_log": str(folder / "kmsg"),
            "gpu_interval_s": 0.2,
            "source_deadline_s": 1.0,
            "push_interval_s": 0.2,
        }
        self.agent = AgentNode(self.receiver, settings)

    def newest(self, metric: str, **labels: str) -> float | None:
        values = self.receiver.values(metric, **labels)
        return values[-1] if values else None

    def remove(self) -> None:
        self.driver.set(1, hang=0)
        self.agent.remove()
        self.receiver.stop()
        os.close(self.kernel_log)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuNode]:
    try:
        node = GpuNode(tmp_path, monkeypatch)
    except FileNotFoundError:
        pytest.skip("AGENT WITH GPUS NOT TESTED: no gcc to build the fake NVML library with")
    yield node
    node.remove()


def test_a_gpu_that_falls_off_the_bus(node: GpuNode) -> None:
    node.agent.start(ready=False)
    eventually(lambda: node.newest(POWER, uuid="GPU-1") == 612.345, "power is pushed")
    assert node.newest(XIDS, uuid="GPU-1", xid="79") == 0, "so that increase() sees the first event"
    node.driver.xid(1, 79)
    os.write(node.kernel_log, LINE.encode())
    node.driver.set(1, lost=1)
    eventually(lambda: node.newest(XIDS, uuid="GPU-1", xid="79") == 1, "the Xid is pushed")
    eventually(lambda: node.newest(UP, uuid="GPU-1") == 0, "the GPU is down")
    eventually(lambda: node.receiver.is_ended(POWER, uuid="GPU-1"), "its other series end")
    assert node.newest(UP, uuid="GPU-0") == 1
    assert node.newest("everstep_gpus_expected") == 2
    assert node.newest(XIDS, uuid="GPU-1", xid="79") == 1
    assert node.agent.stop() == 0


def test_a_hanging_driver_call_holds_up_nothing(node: GpuNode) -> None:
    node.agent.start(ready=False)
    eventually(lambda: node.newest(UP, uuid="GPU-1") == 1, "both are up")
    node.driver.set(1, hang=1)
    eventually(lambda: node.newest(UP, uuid="GPU-1") == 0, "the hanging one is down")
    num_before = len(node.receiver.values(POWER, uuid="GPU-0"))
    eventually(lambda: len(node.receiver.values(POWER, uuid="GPU-0")) > num_before + 2, "the other goes on")
    timeouts = node.newest("everstep_agent_source_failures_total", source="gpu", reason="timeout")
    assert timeouts == 1
    assert [line for line in node.agent.lines if "source_hangs" in line and "GPU-1" in line]
    assert node.agent.stop() == 0, "the stuck thread does not keep the process"


def test_once_prints_one_openmetrics_exposition(node: GpuNode) -> None:
    once = subprocess.run(
        [sys.executable, "-m", "everstep.cli.main", "agent", "--config", str(node.agent.config), "--once"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert once.stdout.endswith("# EOF\n")
    found = {
        (sample.name, sample.labels.get("uuid", "")): sample.value
        for family in text_string_to_metric_families(once.stdout)
        for sample in family.samples
    }
    assert found[POWER, "GPU-0"] == found[POWER, "GPU-1"] == 612.345
    assert found[UP, "GPU-0"] == 1
    assert found["everstep_gpus_expected", ""] == 2
