"""Every panel of every dashboard on the data of a real demo run: four agents, a service, a fault that is healed.

Prometheus scrapes agents and service as the shipped configuration says. The agents see what this machine lacks through
the settings that a site has for it: a GPU library, a sysfs tree with an InfiniBand port and a fan, each other over UDP.
Panels that must stay empty here are listed one by one, each for want of a metric that the list names.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml
from rich.console import Console

from everstep.alertrules.build import GENERATED, RULE_FILES
from everstep.cli.demo_run import session
from everstep.cli.demo_run.cluster import Cluster, Janitor
from everstep.cli.demo_run.faults import inject
from everstep.cli.demo_run.follow import Follower
from everstep.cli.demo_run.layout import Layout, prepare, write_agent_config, write_service_config
from everstep.cli.demo_run.scenario import NODES, SPARE, DemoFault
from everstep.cli.demo_run.screen import Screen
from everstep.collector.clock_offset import ClockOffset
from everstep.collector.host import Pressure
from everstep.collector.samples import SampleSource
from everstep.core.errors import EverstepError
from everstep.core.events import IncidentState
from everstep.core.metrics import METRIC_BY_NAME, Source
from everstep.dashboards.build import JSON

sys.path.extend(  # --import-mode=importlib leaves them out
    str(Path(__file__).parents[1] / folder) for folder in ("integration", "collector", "collector/fake_nvml")
)
from fake_driver import FakeDriver, build
from fake_sysfs import rdma_device, write_tree
from monitoring import free_port, get, prometheus

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

STEPS = 120
DEADLINE_S = 100.0
SETTLE_S = 4.0
MAX_POINTS = 400
CLUSTER = "demo"

ABSENT = {
    "everstep_queue_wait_seconds": "no batch scheduler queues anything here",
    "everstep_train_loss_scale": "the bundled trainer needs no gradient scaler",
    "everstep_train_update_norm": "the bundled trainer does not offer it",
    "everstep_train_skipped_steps_total": "no batch is skipped in this run",
    "everstep_gpu_memory_allocated_bytes": "training runs on the CPU",
}
"""Metrics that no part of this run has. Only optional ones and those of other people's schedulers may stand here."""

EMPTY = {
    ("everstep-ranks", "Allocator", 0),
    ("everstep-scheduler-goodput", "Queue wait, p95", 0),
    ("everstep-scheduler-goodput", "Starts", 0),
    ("everstep-scheduler-goodput", "Wait distribution", 0),
    ("everstep-training-job", "Non-finite and skipped steps", 1),
    ("everstep-training-job", "Update norm and loss scale", 0),
    ("everstep-training-job", "Update norm and loss scale", 1),
}
"""Targets (board, panel, number) that find nothing in this run."""


LOCAL: dict[str, SampleSource] = {
    "everstep_node_clock_offset_seconds": ClockOffset(),
    "everstep_pressure_stalled_seconds_total": Pressure(),
}
"""What a kernel, or the sandbox around it, may not offer: panels of these are empty where the source gives nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One query of one panel."""

    board: str
    title: str
    number: int
    expr: str

    @property
    def key(self) -> tuple[str, str, int]:
        return self.board, self.title, self.number


TARGETS = tuple(
    Target(board=path.stem, title=panel["title"], number=number, expr=target["expr"])
    for path in sorted(JSON.glob("*.json"))
    for panel in json.loads(path.read_text())["panels"]
    for number, target in enumerate(panel["targets"])
)


class GpuCluster(Cluster):
    """The demo's cluster, each node with a GPU library of its own state."""

    drivers: dict[str, FakeDriver]

    def _spawn(self, name: str, command: str, marks: Any) -> None:
        with patch.dict(os.environ, self.drivers[name].environment if name in self.drivers else {}):
            super()._spawn(name, command, marks)


def _sysfs(folder: Path) -> Path:
    fan = "class/hwmon/hwmon0"
    files = {f"{fan}/name": "chassis\n", f"{fan}/fan1_input": "5000\n", f"{fan}/fan1_max": "10000\n"}
    return write_tree(folder, {**rdma_device("mlx5_0"), **files})


def _drivers(folder: Path) -> dict[str, FakeDriver]:
    library = build(folder)
    drivers = {node: FakeDriver(library, folder / f"{node}.gpus", count=1) for node in NODES}
    for node, driver in drivers.items():
        driver.set(0, uuid=f"GPU-{node}")
    drivers[SPARE].field(0, 145, 1)  # a fault that no run heals: its alert fires all the time
    return drivers


def _write_configs(layout: Layout, library: Path, sysfs: Path) -> None:
    options = session.DemoOptions(output=layout.root, seed=1, steps=STEPS)
    write_service_config(layout, cold=False)
    jobs = session._jobs(layout, options)
    for job in jobs:
        job["environment"]["EVERSTEP_PEAK_FLOPS"] = "1e12"
    for node in NODES:
        write_agent_config(layout, node, jobs)
        peers = [
            {"address": "127.0.0.1", "port": layout.agent_ports[peer], "rack": _rack(peer)}
            for peer in NODES
            if peer != node
        ]
        _amend(
            layout.config(node),
            "agent",
            rack=_rack(node),
            nvml_library=str(library),
            sys_root=str(sysfs),
            kernel_log=os.devnull,
            probes={"echo": {"host": "127.0.0.1"}, "peers": peers, "peers_interval_s": 2, "storage_interval_s": 2},
        )
    text = yaml.safe_load(layout.config("service").read_text())
    _amend(layout.config("service"), "service", nodes=[{**one, "gpus": 1} for one in text["service"]["nodes"]])


def _rack(node: str) -> str:
    return f"rack-{NODES.index(node) // 2}"


def _amend(path: Path, section: str, **changes: Any) -> None:
    content = yaml.safe_load(path.read_text())
    content[section].update(changes)
    path.write_text(yaml.safe_dump(content))


@contextmanager
def _cluster(folder: Path) -> Iterator[GpuCluster]:
    demo_id = uuid.uuid4().hex
    janitor = Janitor(demo_id)
    try:
        layout = prepare(folder, demo_id)
        janitor.remove_later(layout.memory)
        drivers = _drivers(folder)
        _write_configs(layout, drivers[SPARE].library, _sysfs(folder / "sys"))
        cluster = GpuCluster(layout)
        cluster.drivers = drivers
        try:
            cluster.start()
            yield cluster
            cluster.end()
        finally:
            cluster.close()
    finally:
        janitor.end()


def _prometheus_config(layout: Layout, path: Path) -> Path:
    """As compose/prometheus/prometheus.yml, with fixed loopback targets instead of discovery files."""
    agents = [
        {
            "targets": [f"127.0.0.1:{layout.agent_ports[node]}"],
            "labels": {"cluster": CLUSTER, "node": node, "rack": _rack(node)},
        }
        for node in NODES
    ]
    service = [{"targets": [f"127.0.0.1:{layout.service_port}"], "labels": {"cluster": CLUSTER}}]
    path.write_text(
        yaml.safe_dump(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(GENERATED / name) for name in RULE_FILES if name != "compat.yml"],
                "scrape_configs": [
                    {"job_name": "everstep-agent", "honor_labels": True, "static_configs": agents},
                    {"job_name": "everstep-service", "honor_labels": True, "static_configs": service},
                ],
            }
        )
    )
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A Prometheus that holds a finished run, and when that was."""

    url: str
    begin: float
    end: float

    def points(self, expr: str) -> int:
        """Numbers, other than NaN and infinity, that a panel over the whole run would show."""
        for name, value in (("$__rate_interval", "10s"), ("$cluster", ".*"), ("$job", ".*"), ("$node", ".*")):
            expr = expr.replace(name, value)
        step = max(1.0, (self.end - self.begin) / MAX_POINTS)
        answer = get(
            f"{self.url}/api/v1/query_range", query=expr, start=str(self.begin), end=str(self.end), step=f"{step:g}"
        )
        rows = [value for series in answer["data"]["result"] for _, value in series["values"]]
        return sum(value not in {"NaN", "+Inf", "-Inf"} for value in rows)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("dashboards")
    began = time.time()
    with _cluster(folder) as cluster:
        config = _prometheus_config(cluster.layout, folder / "prometheus.yml")
        with prometheus(config, folder, port=free_port()) as url:
            _break_and_heal(cluster)
            time.sleep(SETTLE_S)
            yield Run(url=url, begin=began, end=time.time())


def _break_and_heal(cluster: Cluster) -> None:
    cluster.wait_ready()
    screen = Screen(Console(stderr=True))
    follower = Follower(cluster, screen, total_steps=STEPS, deadline=time.monotonic() + DEADLINE_S)
    follower.wait_learned()
    incidents = follower.wait_end(inject(DemoFault.KILL_PROCESS, cluster))
    assert [incident.state for incident in incidents] == [IncidentState.RESOLVED]


def _missing_on_this_machine() -> set[str]:
    missing = set()
    for name, source in LOCAL.items():
        try:
            offered = any(sample.metric == name for sample in source.collect())
        except EverstepError:
            offered = False
        missing |= set() if offered else {name}
    return missing


def _metrics(expr: str, records: dict[str, str]) -> set[str]:
    """Rows of the metric table that a query needs, also through recording rules."""
    found: set[str] = set()
    for word in re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*", expr):
        name = re.sub(r"_(bucket|sum|count)$", "", word)
        if word in records:
            found |= _metrics(records[word], {key: text for key, text in records.items() if key != word})
        elif word in METRIC_BY_NAME or name in METRIC_BY_NAME:
            found.add(word if word in METRIC_BY_NAME else name)
    return found


def _records() -> dict[str, str]:
    groups = yaml.safe_load((GENERATED / "recording.yml").read_text())["groups"]
    groups += yaml.safe_load((GENERATED / "slo.yml").read_text())["groups"]
    return {rule["record"]: rule["expr"] for group in groups for rule in group["rules"] if "record" in rule}


def test_only_optional_metrics_and_other_peoples_may_be_absent() -> None:
    for name in ABSENT:
        metric = METRIC_BY_NAME[name]
        assert metric.optional or metric.source is Source.SCHEDULER, name


def test_an_empty_panel_needs_nothing_but_what_is_absent_here() -> None:
    records = _records()
    needs = {target.key: _metrics(target.expr, records) for target in TARGETS}
    for key in EMPTY:
        assert needs[key]
        assert needs[key] <= ABSENT.keys(), key
    used = {name for key in EMPTY for name in needs[key]}
    assert used == ABSENT.keys(), "a metric stands in the list for no panel"


def test_every_panel_shows_the_run(run: Run) -> None:
    points = {target.key: run.points(target.expr) for target in TARGETS}
    empty = {key for key, number in points.items() if not number}
    records, missing = _records(), _missing_on_this_machine()
    local = {target.key for target in TARGETS if _metrics(target.expr, records) & missing}
    assert (sorted(empty - EMPTY - local), sorted(EMPTY - empty)) == ([], [])


def test_no_rule_fails_on_the_run(run: Run) -> None:
    groups = get(f"{run.url}/api/v1/rules")["data"]["groups"]
    broken = {rule["name"]: rule["lastError"] for group in groups for rule in group["rules"] if rule.get("lastError")}
    assert broken == {}
    assert len(groups) > 5
