"""Agents, service, Prometheus and Alertmanager as processes of their own, wired as a site wires them."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from everstep.alertrules.build import GENERATED, RULE_FILES

sys.path.extend(  # --import-mode=importlib leaves them out
    str(Path(__file__).parents[1] / folder) for folder in ("collector/fake_nvml", "integration")
)
from fake_driver import FakeDriver, build
from monitoring import free_port, running

TOKEN = "alert-path-token"
PATIENCE_S = 60.0
GPUS = 2
READY = {"service": "/readyz", "alertmanager": "/-/ready", "prometheus": "/-/ready"}
WORKER = """
import time
from everstep.trainer_integration import EverstepCallback

callback = EverstepCallback.from_environment()
callback.on_train_start()
for step in range(1, 100_000):
    callback.step_begin(step)
    time.sleep(0.1)
    callback.step_end(step, loss=2.0, gradient_norm=1.0, tokens=step, batch_index=step, compute_s=0.1)
"""
"""A job of one rank that takes ten steps a second and keeps no checkpoint."""


def eventually(check: Callable[[], Any], what: str, log: Path | None = None) -> Any:
    """The first true answer; a failure with the end of the log after a minute."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            found = check()
        except httpx.HTTPError:
            found = None
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"never happened: {what}" + (f"\n{log.read_text()[-3000:]}" if log is not None else ""))


class Stack:
    """All addresses and the processes behind them. With `job` the service runs a job of one rank on the first node."""

    def __init__(self, folder: Path, *, nodes: tuple[str, ...] = ("node-0",), job: bool = False) -> None:
        self.folder = folder
        self.nodes = nodes
        self._job = job
        self.ports = {name: free_port() for name in (*nodes, "service", "prometheus", "alertmanager")}
        (folder / "token").write_text(TOKEN)
        (folder / "worker.py").write_text(WORKER)
        self.gpus: dict[str, FakeDriver] = {}

    def with_gpus(self) -> Stack:
        """Two GPUs on each node. Skips where there is no C compiler."""
        try:
            library = build(self.folder)
        except FileNotFoundError:
            pytest.skip("LOST GPU NOT TESTED: no gcc to build the fake NVML library with")
        for node in self.nodes:
            self.gpus[node] = driver = FakeDriver(library, self.folder / f"{node}.gpus", count=GPUS)
            for gpu in range(GPUS):
                driver.set(gpu, uuid=f"GPU-{node}-{gpu}")
        return self

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    def get(self, name: str, path: str) -> Any:
        answer = httpx.get(self.url(name) + path, timeout=5)
        answer.raise_for_status()
        return answer.json()

    def query(self, expr: str) -> list[Any]:
        """The samples that Prometheus finds."""
        answer = httpx.get(self.url("prometheus") + "/api/v1/query", params={"query": expr}, timeout=5)
        answer.raise_for_status()
        return list(answer.json()["data"]["result"])

    def incidents(self) -> list[Any]:
        return list(self.get("service", "/api/v1/incidents")["incidents"])

    def firing(self, name: str) -> list[Any]:
        """Alerts of that name that Alertmanager holds."""
        alerts = self.get("alertmanager", "/api/v2/alerts?active=true")
        return [one for one in alerts if one["labels"]["alertname"] == name]

    def start(self, held: ExitStack) -> None:
        self._write_configs()
        for name, argv in self._commands().items():
            log = self.folder / f"{name}.log"
            driver = self.gpus.get(name)
            held.enter_context(running(argv, log, environment=driver.environment if driver is not None else {}))
            ready = self.url(name) + READY.get(name, "/healthz")
            eventually(lambda ready=ready: httpx.get(ready, timeout=2).is_success, name, log)

    def _commands(self) -> dict[str, list[str]]:
        everstep = [sys.executable, "-m", "everstep.cli.main"]
        config = {name: str(self.folder / f"{name}.yml") for name in self.ports}
        return {
            "service": [*everstep, "serve", "--config", config["service"]],
            **{node: [*everstep, "agent", "--config", config[node]] for node in self.nodes},
            "alertmanager": [
                str(shutil.which("prometheus-alertmanager")),
                f"--config.file={config['alertmanager']}",
                f"--storage.path={self.folder / 'am'}",
                f"--web.listen-address=127.0.0.1:{self.ports['alertmanager']}",
                "--cluster.listen-address=",
            ],
            "prometheus": [
                str(shutil.which("prometheus")),
                f"--config.file={config['prometheus']}",
                f"--storage.tsdb.path={self.folder / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{self.ports['prometheus']}",
            ],
        }

    def _write_configs(self) -> None:
        for node in self.nodes:
            self._write(node, {"agent": self._agent(node)})
        self._write("service", {"service": self._service()})
        self._write("prometheus", self._prometheus())
        text = (GENERATED / "alertmanager.yml").read_text()
        text = text.replace("http://service:9800", self.url("service"))
        text = text.replace("/run/secrets/everstep_token", str(self.folder / "token"))
        (self.folder / "alertmanager.yml").write_text(text)

    def _agent(self, node: str) -> dict[str, Any]:
        token = str(self.folder / "token")
        worker = {"name": "demo", "program": [str(self.folder / "worker.py")], "preload": ["torch"]}  # for the store
        gpus = {"nvml_library": str(self.gpus[node].library), "kernel_log": os.devnull} if node in self.gpus else {}
        return {
            "node": node,
            "cluster": "c1",
            "listen": {"port": self.ports[node], "token_file": token},
            "service_url": self.url("service"),
            "service_token_file": token,
            "run_dir": str(self.folder / "run" / node),
            "log_dir": str(self.folder / "log" / node),
            "jobs": [worker if self._job else {"name": "demo", "program": ["-c", "pass"], "preload": []}],
            **gpus,
        }

    def _service(self) -> dict[str, Any]:
        token = str(self.folder / "token")
        nodes = [
            {"name": node, "agent_url": self.url(node), "spare": node != self.nodes[0], "gpus": GPUS * bool(self.gpus)}
            for node in self.nodes
        ]
        return {
            "listen": {"port": self.ports["service"], "token_file": token},
            "data_dir": str(self.folder / "data"),
            "agent_token_file": token,
            "nodes": nodes,
            "jobs": [{"name": "demo", "world_size": 1}] if self._job else [],
            "alertmanager_url": self.url("alertmanager"),
            "prometheus_url": self.url("prometheus"),
        }

    def _prometheus(self) -> dict[str, Any]:
        targets = [{"targets": [f"127.0.0.1:{self.ports[node]}"], "labels": {"node": node}} for node in self.nodes]
        managers = [{"targets": [f"127.0.0.1:{self.ports['alertmanager']}"]}]
        return {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s", "external_labels": {"cluster": "c1"}},
            "rule_files": [str(GENERATED / name) for name in RULE_FILES if name != "compat.yml"],
            "alerting": {"alertmanagers": [{"static_configs": managers}]},
            "scrape_configs": [{"job_name": "everstep-agent", "static_configs": targets}],
        }

    def _write(self, name: str, content: dict[str, Any]) -> None:
        (self.folder / f"{name}.yml").write_text(yaml.safe_dump(content))


@contextmanager
def started(stack: Stack) -> Iterator[Stack]:
    """Skips in one loud line where a Debian package is missing."""
    for binary in ("prometheus", "prometheus-alertmanager"):
        if shutil.which(binary) is None:
            pytest.skip(f"ALERT PATH NOT TESTED: {binary} is missing; apt-get install {binary}")
    with ExitStack() as held:
        stack.start(held)
        yield stack
