"""A real node agent under test, with a remote-write receiver beside it."""

from __future__ import annotations

import contextlib
import json
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import yaml

from everstep.core.remote_write import decode, decode_labels, decompress, is_stale

TOKEN = "agent-token"
PATIENCE_S = 30.0
STEPPER = """
import os, signal, sys, time
from pathlib import Path
from everstep.core.rank_record import SLOTS, RankRecordWriter
record = RankRecordWriter(
    Path(os.environ["EVERSTEP_RANK_RECORD"]), job=os.environ["EVERSTEP_JOB"], rank=int(os.environ["RANK"]),
    world_size=int(os.environ["WORLD_SIZE"]), attempt=int(os.environ["EVERSTEP_ATTEMPT"]))
print("argv", sys.argv[1:], "name", __name__, flush=True)
if "--polite" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
step = 0
while True:
    step += 1
    record.set(SLOTS[("everstep_train_attempt", ())], float(os.environ["EVERSTEP_ATTEMPT"]))
    if "--nan-at-5" in sys.argv and step == 5:
        record.set(SLOTS[("everstep_train_nonfinite_steps_total", ())], 1.0)
    record.add_step((step, time.time(), 0.05, 0.04, 0.0, 2.0, 1.0, step))
    record.publish()
    if f"--fail-at-{step}" in sys.argv:
        raise RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:4242")
    time.sleep(0.05)
"""


def eventually(check: Callable[[], Any], what: str) -> Any:
    """The first truthy answer; fails after a generous time."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        answer = check()
        if answer:
            return answer
        time.sleep(0.02)
    raise AssertionError(f"never happened: {what}")


class Receiver:
    """An in-test service: decodes what agents push. `stop` and `start` again on the same port."""

    def __init__(self) -> None:
        self.samples: list[tuple[dict[str, str], float, float]] = []
        self.port = 0
        self._server: ThreadingHTTPServer | None = None
        self._open: set[socket.socket] = set()
        self.start()

    def start(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                receiver._open.add(self.connection)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                for block, points in decode(decompress(body, max_bytes=1 << 26)):
                    labels = decode_labels(block)
                    receiver.samples.extend((labels, at, value) for at, value in points)
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class' name
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        while self._open:  # a keep-alive connection would go on being served
            with contextlib.suppress(OSError):
                self._open.pop().shutdown(socket.SHUT_RDWR)

    def values(self, name: str, **labels: str) -> list[float]:
        wanted = {"__name__": name, **labels}
        return [
            value for found, _, value in list(self.samples) if wanted.items() <= found.items() and not is_stale(value)
        ]

    def is_ended(self, name: str, **labels: str) -> bool:
        """Whether the newest sample of the series says that it has ended."""
        wanted = {"__name__": name, **labels}
        values = [value for found, _, value in list(self.samples) if wanted.items() <= found.items()]
        return bool(values) and is_stale(values[-1])


@dataclass
class AgentNode:
    """One agent process on scratch folders; `client` holds the right token."""

    receiver: Receiver
    settings: dict[str, Any] = field(default_factory=dict)
    job: dict[str, Any] = field(default_factory=dict)
    program: str = STEPPER
    arguments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="es-", dir="/tmp"))
        self.run_dir = self.folder / "run"
        self.script = self.folder / "program.py"
        self.script.write_text(self.program)
        (self.folder / "token").write_text(TOKEN)
        command = {"name": "demo", "program": [str(self.script), *self.arguments], "preload": [], **self.job}
        self.config = self.folder / "agent.yaml"
        agent = {
            "node": "node-1",
            "listen": {"port": 0, "token_file": str(self.folder / "token")},
            "service_url": f"http://127.0.0.1:{self.receiver.port}",
            "run_dir": str(self.run_dir),
            "log_dir": str(self.folder / "log"),
            "slots": 2,
            "orphan_grace_s": 10,
            "jobs": [command],
            **self.settings,
        }
        self.config.write_text(yaml.safe_dump({"agent": agent}))
        self.lines: list[str] = []
        self.process: subprocess.Popen[str] | None = None

    def start(self, *, ready: bool = True) -> AgentNode:
        self.process = process = subprocess.Popen(
            [sys.executable, "-m", "everstep.cli.main", "agent", "--config", str(self.config)],
            stderr=subprocess.PIPE,
            text=True,
        )
        started: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, args=(process, started), daemon=True).start()
        address = started.get(timeout=PATIENCE_S)
        self.client = httpx.Client(
            base_url=f"http://{address}", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=PATIENCE_S
        )
        if ready:
            eventually(lambda: self.status()["jobs"]["demo"]["standby_ready"], "standby ready")
        return self

    def _read(self, process: subprocess.Popen[str], started: queue.Queue[str]) -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                self.lines.append(line)
                if "event=agent_started" in line:
                    started.put(line.rsplit("listen=", 1)[1].strip())

    def status(self) -> dict[str, Any]:
        return dict(self.client.get("/v1/status").json())

    def worker(self, rank: int = 0) -> dict[str, Any]:
        workers = self.status()["jobs"]["demo"]["workers"]
        return next((worker for worker in workers if worker["rank"] == rank), {})

    def post(self, verb: str, body: Mapping[str, Any]) -> httpx.Response:
        return self.client.post(f"/v1/{verb}", content=json.dumps(body))

    def start_worker(self, rank: int = 0, *, attempt: int = 1, port: int = 4000, **changes: Any) -> httpx.Response:
        body = {
            "job": "demo",
            "attempt": attempt,
            "rank": rank,
            "local_rank": rank,
            "local_world_size": 2,
            "world_size": 2,
            "node_rank": 0,
            "nnodes": 1,
            "master_addr": "127.0.0.1",
            "master_port": port,
            "cold": False,
            **changes,
        }
        return self.post("workers/start", body)

    def run_worker(self, rank: int = 0, **changes: Any) -> int:
        """The pid of a worker that has reported."""
        response = self.start_worker(rank, **changes)
        assert response.status_code == 200, response.text
        eventually(lambda: self.worker(rank)["state"] == "running", f"rank {rank} runs")
        return int(self.worker(rank)["pid"])

    def kill(self) -> None:
        """SIGKILL of the agent alone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self.client.close()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE_S)
        self.client.close()
        return code

    def remove(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def exists(pid: int) -> bool:
    """Whether the process lives; one that is dead and waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}
