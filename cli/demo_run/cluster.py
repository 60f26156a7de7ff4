"""The demo's machines: one service and four node agents as child processes, and the janitor that outlives them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from everstep.cli.demo_run.janitor import KILL_DEADLINE_S, MARK, NODE_MARK
from everstep.cli.demo_run.layout import Layout, prepare, scratch, write_agent_config, write_service_config
from everstep.cli.demo_run.scenario import JOB, NODES
from everstep.cli.demo_run.wire import Peer
from everstep.core.errors import EverstepError

READY_TIMEOUT_S = 90.0
END_TIMEOUT_S = 3.0
POLL_S = 0.1
SERVICE = "service"


class Cluster:
    """Running processes and their APIs. Made by `running_cluster`, which also ends it."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        token = layout.agent_token.read_text()
        self.service = Peer(SERVICE, layout.service_url, layout.service_token.read_text())
        self.agents = {node: Peer(node, layout.agent_url(node), token) for node in NODES}

    def start(self) -> None:
        """Start all five; they come up side by side."""
        self._spawn(SERVICE, "serve", {})
        for node in NODES:
            self._spawn(node, "agent", {NODE_MARK: node})

    def _spawn(self, name: str, command: str, marks: Mapping[str, str]) -> None:
        log = self.log(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        arguments = [sys.executable, "-m", "everstep.cli.main", command, "--config", str(self.layout.config(name))]
        with log.open("ab") as output:
            self._children[name] = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, MARK: self.layout.demo_id, **marks, "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )

    def log(self, name: str) -> Path:
        return self.layout.root / "logs" / f"{name}.log"

    def living_agents(self) -> dict[str, Peer]:
        return {node: peer for node, peer in self.agents.items() if self._children[node].poll() is None}

    def check_alive(self, *, except_nodes: frozenset[str] = frozenset()) -> None:
        """Raises `EverstepError` with the last log line of a process that has ended by itself."""
        for name, child in self._children.items():
            if name not in except_nodes and child.poll() is not None:
                raise EverstepError(
                    f"{name} ended with status {child.returncode}: {_last_line(self.log(name))}",
                    mend=f"correct that, or read {self.log(name)} after a run with --keep",
                )

    def wait_ready(self) -> None:
        """Service and agents answer and every warm parent is ready. Raises `EverstepError` at the deadline."""
        peers = [self.service, *self.agents.values()]
        self.wait_for("answers of " + ", ".join(peer.name for peer in peers), lambda: all(p.healthy() for p in peers))
        for node, agent in self.agents.items():
            self.wait_for(f"a warm parent on {node}", lambda agent=agent: _standby_ready(agent))  # type: ignore[misc]

    def wait_for(
        self,
        what: str,
        done: Callable[[], bool],
        *,
        timeout_s: float = READY_TIMEOUT_S,
        except_nodes: frozenset[str] = frozenset(),
    ) -> None:
        """Poll until `done`. Raises `EverstepError` at the deadline, or as soon as a process has ended by itself."""
        deadline = time.monotonic() + timeout_s
        while not done():
            self.check_alive(except_nodes=except_nodes)
            if time.monotonic() > deadline:
                raise EverstepError(
                    f"waited {timeout_s:.0f} s for {what}", mend="run again with --keep and read the logs it names"
                )
            time.sleep(POLL_S)

    def end(self) -> None:
        """Ask service and agents to end by themselves; whatever stays is the janitor's."""
        for child in self._children.values():
            if child.poll() is None:
                child.terminate()
        deadline = time.monotonic() + END_TIMEOUT_S
        while any(child.poll() is None for child in self._children.values()) and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def close(self) -> None:
        for peer in (self.service, *self.agents.values()):
            peer.close()
        for child in self._children.values():
            child.poll()


def _standby_ready(agent: Peer) -> bool:
    """Raises `EverstepError` when the parent cannot import what the job needs: waiting would not help."""
    job = agent.get("/v1/status")["jobs"].get(JOB, {})
    if job.get("standby_problem"):
        raise EverstepError(
            f"the warm parent on {agent.name} did not start: {job['standby_problem']}",
            mend="run `everstep doctor`, or `make install` again",
        )
    return bool(job.get("standby_ready"))


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "its log is empty"


class Janitor:
    """The child that ends everything marked with our id when we are gone, or when `end` says so."""

    def __init__(self, demo_id: str) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "everstep.cli.demo_run.janitor", demo_id],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def remove_later(self, folder: Path) -> None:
        pipe = self._child.stdin
        if pipe is None or self._child.poll() is not None:
            raise EverstepError("the janitor process did not start", mend="run the demo again")
        pipe.write(f"{folder}\n".encode())
        pipe.flush()

    def end(self) -> None:
        """Close the pipe and wait until everything is gone. Raises `EverstepError` when something stayed."""
        if self._child.stdin is not None:
            self._child.stdin.close()
        try:
            status = self._child.wait(timeout=KILL_DEADLINE_S + 5.0)
        except subprocess.TimeoutExpired:
            status = None
        if status != 0:
            raise EverstepError("some child processes did not end", mend=f"look for {MARK} in /proc/*/environ")


@contextmanager
def running_cluster(
    output: Path, jobs: Callable[[Layout], list[dict[str, Any]]], *, cold: bool, keep: bool
) -> Iterator[Cluster]:
    """A started cluster. On the way out, however that comes, no process and no shared memory of it is left."""
    demo_id = uuid.uuid4().hex
    janitor = Janitor(demo_id)
    try:
        on_disk, in_memory = scratch(output, demo_id)
        janitor.remove_later(in_memory)
        if not keep:
            janitor.remove_later(on_disk)
        layout = prepare(output, demo_id)
        write_service_config(layout, cold=cold)
        for node in NODES:
            write_agent_config(layout, node, jobs(layout))
        cluster = Cluster(layout)
        try:
            cluster.start()
            yield cluster
            cluster.end()
        finally:
            cluster.close()
    finally:
        janitor.end()
