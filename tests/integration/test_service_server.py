"""The service as a process: it starts, answers, says in one line why it cannot start, and stops when told."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from everstep.core.engine import Attempt, RankPlacement
from everstep.core.errors import EverstepError
from everstep.core.remote_write import HEADERS, encode_series, series
from everstep.core.settings import ServiceSettings
from everstep.service.server import serve
from everstep.service.storage import SqliteStore
from everstep.service.wiring import Service

pytestmark = pytest.mark.integration
RUN = "import sys, pathlib; from everstep.cli.serve import serve; serve(pathlib.Path(sys.argv[1]))"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def eventually(check: Callable[[], Any], *, within_s: float = 40.0) -> Any:
    """The first truthy answer of `check`."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        found = check()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")


class Running:
    """A service process on a free port."""

    def __init__(self, folder: Path, **service: Any) -> None:
        port = free_port()
        config = folder / "service.yaml"
        section = {"listen": {"port": port}, "data_dir": str(folder / "data"), **service}
        config.write_text(yaml.safe_dump({"service": section}))
        self.url = f"http://127.0.0.1:{port}"
        self.log = (folder / "service.log").open("a+")
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(config)], stderr=self.log, stdout=self.log, env=environment
        )
        eventually(self._ready)

    def _ready(self) -> bool:
        assert self.process.poll() is None, self.output()
        try:
            return httpx.get(f"{self.url}/readyz", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def output(self) -> str:
        self.log.flush()
        return Path(self.log.name).read_text()

    def get(self, path: str) -> Any:
        return httpx.get(self.url + path, timeout=5).json()

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(20)
        self.log.close()
        return code


def test_it_answers_takes_pushes_and_stops_when_told(tmp_path: Path) -> None:
    running = Running(tmp_path)
    try:
        now = time.time()
        labels = {"node": "node-0", "gpu": "0", "sensor": "core"}
        push = encode_series([series("everstep_gpu_temperature_celsius", labels, [(now, 50.0)])])
        assert httpx.post(f"{running.url}/api/v1/write", content=push, headers=HEADERS).status_code == 204
        assert running.get("/api/v1/incidents") == {"incidents": []}
        assert running.get("/api/v1/jobs") == {"jobs": {}}
        with httpx.stream("GET", f"{running.url}/api/v1/events", timeout=20) as events:
            lines = events.iter_lines()
            assert next(lines) == ": everstep"
            running.process.send_signal(signal.SIGTERM)
            assert list(lines) is not None  # the stream ends instead of holding the server up
        assert running.process.wait(20) == 0
        assert "stopped" in running.output()
    finally:
        running.end(signal.SIGKILL)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"listen": {"token_file": "/nowhere/token"}}, "cannot read token file /nowhere/token; check the path"),
        ({"data_dir": "/proc/everstep"}, "cannot write to data directory /proc/everstep"),
        ({"agent_ca_file": "/nowhere/ca.pem"}, "cannot use CA file /nowhere/ca.pem"),
        ({"nodes": [{"name": "a"}, {"name": "a"}]}, "node 'a' is in the topology twice; give each node its own name"),
    ],
)
def test_what_cannot_be_used_is_one_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    settings = ServiceSettings.model_validate({"listen": {"port": 0}, "data_dir": str(tmp_path), **change})
    with pytest.raises(EverstepError, match=message) as raised:
        serve(settings)
    assert "\n" not in str(raised.value)


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        settings = ServiceSettings.model_validate({"listen": {"port": port}, "data_dir": str(tmp_path)})
        with pytest.raises(EverstepError, match=f"cannot listen on 127.0.0.1:{port}"):
            serve(settings)


def test_tls_files_are_refused_before_anything_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Service] = []
    monkeypatch.setattr(Service, "start", started.append)
    (tmp_path / "pem").write_text("no certificate")
    listen = {"port": 0, "tls_certificate": str(tmp_path / "pem"), "tls_key": str(tmp_path / "pem")}
    settings = ServiceSettings.model_validate({"listen": listen, "data_dir": str(tmp_path)})
    with pytest.raises(EverstepError, match=f"cannot use TLS files {tmp_path / 'pem'}"):
        serve(settings)
    assert started == []


class Agent(BaseHTTPRequestHandler):
    """A node agent that knows one living worker and refuses to be told anything."""

    told: list[str]

    def do_GET(self) -> None:
        worker = {"rank": 0, "attempt": 7, "pid": 1, "state": "running", "exit_code": None, "reason": ""}
        status = {
            "node": "node-0",
            "slots": 1,
            "cordoned": False,
            "jobs": {"demo": {"standby_ready": True, "workers": [worker]}},
        }
        self._answer(200, status)

    def do_POST(self) -> None:
        self.told.append(self.path)
        self._answer(409, {"error": "no; never"})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Quiet."""


@pytest.fixture
def agent() -> Iterator[tuple[str, list[str]]]:
    told: list[str] = []
    handler = type("Told", (Agent,), {"told": told})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", told
    server.shutdown()
    server.server_close()
    thread.join(5)


def test_a_restarted_service_adopts_the_running_attempt(tmp_path: Path, agent: tuple[str, list[str]]) -> None:
    url, told = agent
    (tmp_path / "token").write_text("secret")
    store = SqliteStore(tmp_path / "data")
    placements = (RankPlacement(rank=0, node="node-0", local_rank=0),)
    store.save_attempt(Attempt(job="demo", number=7, placements=placements))
    store.close()
    running = Running(
        tmp_path,
        nodes=[{"name": "node-0", "agent_url": url}],
        jobs=[{"name": "demo", "world_size": 1}],
        agent_token_file=str(tmp_path / "token"),
    )
    try:
        job = eventually(lambda: (found := running.get("/api/v1/jobs")["jobs"]["demo"])["attempt"] and found)
        assert job["attempt"] == 7
        assert job["placements"][0]["node"] == "node-0"
        assert told == []
        assert "attempt_adopted" in running.output()
    finally:
        running.end(signal.SIGKILL)
