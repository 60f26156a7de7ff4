"""What a node agent takes at 1 Hz with 8 GPUs and 8 ranks, beside Debian's node_exporter scraped at 1 Hz.

The agent is a process of its own, with NVIDIA's binding on the test suite's GPU library, pushing to a sink here that
answers as the service does. Eight rank records step once a second, and a scraper asks every 5 s, as the shipped
Prometheus configuration does. CPU and memory are those of the process and all its descendants.
"""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from everstep.bench.overhead_run.gpu_library import GpuSource, gpu_source
from everstep.core.rank_record import RankRecordWriter
from everstep.core.remote_write import decode, decode_labels, decompress
from everstep.trainer_integration import EverstepCallback

GOAL_SHARE = 0.01
GOAL_BYTES = 60e6
GPUS = 8
WARM_S = 5.0
START_TIMEOUT_S = 30.0
SCRAPE_EVERY_S = 5.0
EXPORTER = "prometheus-node-exporter"
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCost:
    """`core_share` is CPU seconds a second; memory is at the end, Pss counting shared pages in parts."""

    seconds: float
    core_share: float
    rss_bytes: int
    pss_bytes: int
    num_processes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCost:
    """`num_series` and `num_gpu_series` are those of the newest push; `gpu_source` says where GPU values came from."""

    agent: ProcessCost
    exporter: ProcessCost | None
    num_pushes: int
    num_series: int
    num_gpu_series: int
    gpu_source: str


def cpu_seconds(stat: str) -> float:
    """User and system time in the text of /proc/<pid>/stat.

    >>> cpu_seconds("7 (a ) b) S 1 7 7 0 -1 0 0 0 0 0 200 50 0 0 20 0 1 0 9 0") == 250 * _TICK_S
    True
    """
    fields = stat[stat.rindex(")") + 2 :].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def memory_bytes(smaps_rollup: str) -> tuple[int, int]:
    """Rss and Pss in the text of /proc/<pid>/smaps_rollup.

    >>> memory_bytes("00-ff ---p 0 00:00 0 [rollup]\\nRss:  10 kB\\nPss:  4 kB\\n")
    (10240, 4096)
    """
    sizes = {words[0]: int(words[1]) * 1024 for words in map(str.split, smaps_rollup.splitlines()) if len(words) == 3}
    return sizes["Rss:"], sizes["Pss:"]


class ProcessTree:
    """A process and its descendants, read from /proc."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def pids(self) -> list[int]:
        found, waiting = [], [self._pid]
        while waiting:
            pid = waiting.pop()
            found.append(pid)
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                waiting += [int(word) for word in children.read_text().split()]
        return found

    def cpu_seconds(self) -> float:
        return sum(cpu_seconds(Path(f"/proc/{pid}/stat").read_text()) for pid in self.pids())

    def cost(self, *, since: tuple[float, float]) -> ProcessCost:
        """Since a moment of (monotonic time, CPU seconds)."""
        pids = self.pids()
        sizes = [memory_bytes(Path(f"/proc/{pid}/smaps_rollup").read_text()) for pid in pids]
        seconds = time.monotonic() - since[0]
        return ProcessCost(
            seconds=round(seconds, 1),
            core_share=round((self.cpu_seconds() - since[1]) / seconds, 5),
            rss_bytes=sum(rss for rss, _ in sizes),
            pss_bytes=sum(pss for _, pss in sizes),
            num_processes=len(pids),
        )


class Sink(ThreadingHTTPServer):
    """Takes pushes, as the service does, and keeps the newest."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _SinkHandler)
        self.num_pushes = 0
        self.newest = b""

    def series_names(self) -> list[str]:
        raw = decompress(self.newest, max_bytes=1 << 26) if self.newest else b""
        return [decode_labels(block)["__name__"] for block, _ in decode(raw)]


class _SinkHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        sink: Any = self.server
        sink.newest = self.rfile.read(int(self.headers["Content-Length"]))
        sink.num_pushes += 1
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet."""


@contextmanager
def serving(sink: Sink) -> Iterator[None]:
    thread = threading.Thread(target=sink.serve_forever, args=(0.2,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        sink.shutdown()
        thread.join(timeout=5)
        sink.server_close()


@contextmanager
def every(seconds: float, act: Any) -> Iterator[None]:
    """Call `act` on a thread at that interval until left."""
    over = threading.Event()

    def loop() -> None:
        due = time.monotonic()
        while not over.wait(max(0.0, due - time.monotonic())):
            act()
            due += seconds

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=10)


class Ranks:
    """Eight ranks' callbacks on records of a node, which all end a step at each `step`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._number = 0
        self._callbacks = []
        for rank in range(GPUS):
            record = RankRecordWriter(folder / f"rank-{rank}.rec", job="bench", rank=rank, world_size=GPUS, attempt=1)
            self._callbacks.append(EverstepCallback(record, attempt=1))
            self._callbacks[-1].on_train_start()

    def step(self) -> None:
        self._number += 1
        for callback in self._callbacks:
            callback.step_begin(self._number)
            callback.step_end(self._number, loss=2.0, gradient_norm=0.5, learning_rate=1e-3, tokens=self._number)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def scrape(port: int) -> int:
    """Bytes of one scrape of a local exporter. Raises `OSError` when it does not answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise OSError(f"port {port} answered {answer.status}")
    return len(body)


@contextmanager
def running(argv: Sequence[str], log: Path, port: int, environment: dict[str, str] | None = None) -> Iterator[int]:
    """A child that answers scrapes; yields its pid. Raises `RuntimeError` with its last words when it does not."""
    with log.open("wb") as output:
        child = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _answers(port):
            if child.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{argv[0]} did not come up: {log.read_text(errors='replace')[-500:]}")
            time.sleep(0.1)
        yield child.pid
    finally:
        child.terminate()
        try:
            child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(timeout=10)


def _answers(port: int) -> bool:
    try:
        return scrape(port) > 0
    except OSError:
        return False


def agent_config(folder: Path, port: int, service_url: str, gpus: GpuSource) -> Path:
    """Write the configuration of an agent below `folder`; the path of the file."""
    section: dict[str, Any] = {
        "node": "bench-node",
        "listen": {"port": port},
        "service_url": service_url,
        "run_dir": str(folder / "run"),
        "log_dir": str(folder / "log"),
        **gpus.settings,
    }
    path = folder / "agent.yml"
    path.write_text(yaml.safe_dump({"agent": section}))
    return path


@contextmanager
def running_agent(config: Path, folder: Path, port: int, gpus: GpuSource) -> Iterator[int]:
    """A node agent; yields its pid."""
    argv = [sys.executable, "-m", "everstep.cli.main", "agent", "--config", str(config)]
    with running(argv, folder / "agent.log", port, {**os.environ, **gpus.environment}) as pid:
        yield pid


def measure(folder: Path, *, seconds: float) -> AgentCost:
    """Agent and exporter side by side for so long, after a warm-up."""
    port, sink = free_port(), Sink()
    gpus = gpu_source(folder, num_gpus=GPUS)
    ranks = Ranks(folder / "run/records/bench")
    config = agent_config(folder, port, f"http://127.0.0.1:{sink.server_port}", gpus)
    with ExitStack() as held:
        held.enter_context(serving(sink))
        held.enter_context(every(1.0, ranks.step))
        trees = [ProcessTree(held.enter_context(running_agent(config, folder, port, gpus)))]
        held.enter_context(every(SCRAPE_EVERY_S, lambda: scrape(port)))
        trees += _exporter(held, folder)
        time.sleep(WARM_S)
        before = sink.num_pushes
        costs = _over(trees, seconds)
        names = sink.series_names()
        return AgentCost(
            agent=costs[0],
            exporter=costs[1] if len(costs) > 1 else None,
            num_pushes=sink.num_pushes - before,
            num_series=len(names),
            num_gpu_series=sum(name.startswith("everstep_gpu_") for name in names),
            gpu_source=gpus.name,
        )


def _exporter(held: ExitStack, folder: Path) -> Iterable[ProcessTree]:
    path = shutil.which(EXPORTER)
    if path is None:
        return []
    port = free_port()
    pid = held.enter_context(running([path, f"--web.listen-address=127.0.0.1:{port}"], folder / "exporter.log", port))
    held.enter_context(every(1.0, lambda: scrape(port)))
    return [ProcessTree(pid)]


def _over(trees: Sequence[ProcessTree], seconds: float) -> list[ProcessCost]:
    began = [(time.monotonic(), tree.cpu_seconds()) for tree in trees]
    time.sleep(seconds)
    return [tree.cost(since=since) for tree, since in zip(trees, began, strict=True)]
