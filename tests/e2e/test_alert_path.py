"""A NaN loss on two ways, with real servers: agent, Prometheus, rule, Alertmanager, webhook, incident; and back.

The rank record is written by this test; agent, service, Prometheus and Alertmanager are processes of their own. Times
are printed; only outcomes are asserted.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from everstep.alertrules.build import GENERATED, RULE_FILES
from everstep.core.clock import SystemClock
from everstep.core.events import Entity, EntityKind, Incident, IncidentState, RootCause
from everstep.core.rank_record import SLOTS, RankRecordWriter
from everstep.service.alert_post import AlertPost, sender

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]
TOKEN = "alert-path-token"
PATIENCE_S = 60.0


def _port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _eventually(check: Callable[[], Any], what: str, log: Path | None = None) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            found = check()
        except httpx.HTTPError:
            found = None
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"never happened: {what}" + (f"\n{log.read_text()[-3000:]}" if log is not None else ""))


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")


@contextmanager
def _running(argv: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=15)


class Stack:
    """All addresses and the processes behind them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {name: _port() for name in ("agent", "service", "prometheus", "alertmanager")}
        (folder / "token").write_text(TOKEN)

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    def get(self, name: str, path: str) -> Any:
        answer = httpx.get(self.url(name) + path, timeout=5)
        answer.raise_for_status()
        return answer.json()

    def configs(self) -> None:
        token = str(self.folder / "token")
        listen = {"token_file": token}
        self._write(
            "everstep.yml",
            {
                "agent": {
                    "node": "node-0",
                    "listen": {"port": self.ports["agent"], **listen},
                    "service_url": self.url("service"),
                    "service_token_file": token,
                    "run_dir": str(self.folder / "run"),
                    "log_dir": str(self.folder / "log"),
                    "jobs": [{"name": "demo", "program": ["-c", "pass"], "preload": []}],
                },
                "service": {
                    "listen": {"port": self.ports["service"], **listen},
                    "data_dir": str(self.folder / "data"),
                    "agent_token_file": token,
                    "nodes": [{"name": "node-0", "agent_url": self.url("agent")}],
                    "alertmanager_url": self.url("alertmanager"),
                    "prometheus_url": self.url("prometheus"),
                },
            },
        )
        self._write(
            "prometheus.yml",
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s", "external_labels": {"cluster": "c1"}},
                "rule_files": [str(GENERATED / name) for name in RULE_FILES if name != "compat.yml"],
                "alerting": {
                    "alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{self.ports['alertmanager']}"]}]}]
                },
                "scrape_configs": [
                    {
                        "job_name": "everstep-agent",
                        "static_configs": [
                            {"targets": [f"127.0.0.1:{self.ports['agent']}"], "labels": {"node": "node-0"}}
                        ],
                    }
                ],
            },
        )
        text = (GENERATED / "alertmanager.yml").read_text()
        text = text.replace("http://service:9800", self.url("service")).replace("/run/secrets/everstep_token", token)
        (self.folder / "alertmanager.yml").write_text(text)

    def _write(self, name: str, content: dict[str, Any]) -> None:
        (self.folder / name).write_text(yaml.safe_dump(content))

    def start(self, held: ExitStack) -> None:
        self.configs()
        everstep = [sys.executable, "-m", "everstep.cli.main"]
        config = str(self.folder / "everstep.yml")
        argvs = {
            "service": [*everstep, "serve", "--config", config],
            "agent": [*everstep, "agent", "--config", config],
            "alertmanager": [
                str(shutil.which("prometheus-alertmanager")),
                f"--config.file={self.folder / 'alertmanager.yml'}",
                f"--storage.path={self.folder / 'am'}",
                f"--web.listen-address=127.0.0.1:{self.ports['alertmanager']}",
                "--cluster.listen-address=",
            ],
            "prometheus": [
                str(shutil.which("prometheus")),
                f"--config.file={self.folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={self.folder / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{self.ports['prometheus']}",
            ],
        }
        ready = {"service": "/readyz", "agent": "/healthz", "alertmanager": "/-/ready", "prometheus": "/-/ready"}
        for name, argv in argvs.items():
            log = self.folder / f"{name}.log"
            held.enter_context(_running(argv, log))
            _eventually(lambda name=name: httpx.get(self.url(name) + ready[name], timeout=2).is_success, name, log)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    for binary in ("prometheus", "prometheus-alertmanager"):
        if shutil.which(binary) is None:
            pytest.skip(f"ALERT PATH NOT TESTED: {binary} is missing; apt-get install {binary}")
    made = Stack(tmp_path)
    with ExitStack() as held:
        made.start(held)
        yield made


def test_a_nan_loss_reaches_an_incident_through_prometheus_and_alertmanager(stack: Stack) -> None:
    records = stack.folder / "run/records/demo"
    records.mkdir(parents=True, exist_ok=True)
    record = RankRecordWriter(records / "rank-0.rec", job="demo", rank=0, world_size=1, attempt=1)
    record.set(SLOTS[("everstep_train_attempt", ())], 1.0)
    record.set(SLOTS[("everstep_train_loss", ())], float("nan"))
    record.add_step((1, time.time(), 0.05, 0.04, 0.0, float("nan"), 1.0, 1))
    record.publish()
    began = time.monotonic()

    def told() -> Any:
        found = stack.get("service", "/api/v1/incidents")["incidents"]
        return [one for one in found if one["anomalies"][0]["evidence"].get("alert") == "TrainLossNotFinite"]

    (incident, *_) = _eventually(told, "an incident of the alert", stack.folder / "service.log")
    _tell(f"NaN loss to incident through Prometheus and Alertmanager: {time.monotonic() - began:.1f} s")
    assert incident["causes"][0]["fault"] == "F28"
    assert incident["state"] == "escalated", "nothing of ours runs under that name, so nothing may act"
    assert incident["actions"] == []


def test_a_verdict_reaches_alertmanager_and_ends_there(stack: Stack) -> None:
    now = time.time()
    rank = Entity(kind=EntityKind.RANK, name="demo/1")
    incident = Incident(
        id="demo-1-abc",
        job="demo",
        attempt=1,
        opened=now,
        onset=now - 1,
        diagnosed=now,
        state=IncidentState.DIAGNOSED,
        causes=(RootCause(entity=rank, fault="F28", confidence=0.9),),
    )
    outcomes: list[str] = []
    post = AlertPost(
        sender(stack.url("alertmanager")), SystemClock(), public_url=stack.url("service"), on_outcome=outcomes.append
    )

    def firing() -> list[Any]:
        alerts = stack.get("alertmanager", "/api/v2/alerts?active=true")
        return [one for one in alerts if one["labels"]["alertname"] == "EverstepIncident"]

    def taken_back() -> bool:
        answer = httpx.get(stack.url("service") + "/metrics", timeout=5).text
        return 'everstep_alerts_total{outcome="own"}' in answer

    began = time.monotonic()
    post.put(incident)
    post.turn()
    (alert,) = _eventually(firing, "the verdict at Alertmanager")
    _tell(f"verdict to Alertmanager: {time.monotonic() - began:.1f} s")
    assert alert["labels"]["rank"] == "1"
    assert alert["annotations"]["cause"].startswith("F28")
    _eventually(taken_back, "our own verdict at our webhook")
    assert stack.get("service", "/api/v1/incidents")["incidents"] == []
    post.put(replace(incident, state=IncidentState.RESOLVED, closed=time.time()))
    post.turn()
    _eventually(lambda: not firing(), "the end of the alert")
    assert outcomes == ["sent", "sent"]
