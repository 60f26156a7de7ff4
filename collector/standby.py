"""The warm parent of one job: imports the job's heavy modules once and forks workers that start in milliseconds.

`python -m everstep.collector.standby <listening socket fd> <configuration as JSON>`, started by the agent, which
talks to it in newline-delimited JSON over a unix socket. It stays single-threaded, runs no torch operation, reaps its
children at once, and outlives a dead agent for a grace period so that a restarted agent can adopt the workers. Standard
library only.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from everstep.collector import store_host, worker_entry
from everstep.collector.paths import clean_abandoned

_MAX_PENDING_BYTES = 1 << 20
_KEPT_ENDS = 256
PRELOAD_FAILED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyConfig:
    """`socket` is the listener's path; `run_dir` is cleaned of the job when the grace period ends without an agent."""

    job: str
    preload: tuple[str, ...]
    orphan_grace_s: float
    socket: str
    run_dir: str


@dataclass(slots=True, kw_only=True)
class _Child:
    pid: int
    tag: Mapping[str, Any]
    status: int | None = None

    def describe(self) -> dict[str, Any]:
        return {"pid": self.pid, "tag": self.tag, "status": self.status}


@dataclass(slots=True, eq=False)
class _Connection:
    """One agent, non-blocking both ways."""

    socket: socket.socket
    received: bytes = b""
    pending: bytearray = field(default_factory=bytearray)

    def lines(self) -> list[bytes] | None:
        """Whole lines that have arrived; None at the end of the connection."""
        try:
            data = self.socket.recv(65536)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        *whole, self.received = (self.received + data).split(b"\n")
        return whole

    def flush(self) -> bool:
        """False when the peer is gone or does not read."""
        try:
            while self.pending:
                del self.pending[: self.socket.send(self.pending)]
        except BlockingIOError:
            return len(self.pending) < _MAX_PENDING_BYTES
        except OSError:
            return False
        return True


class Standby:
    """The server loop; one thread, woken only by sockets, children's ends and the grace period."""

    def __init__(self, listener: socket.socket, config: StandbyConfig) -> None:
        self._listener = listener
        self._config = config
        self._selector = selectors.DefaultSelector()
        self._connections: list[_Connection] = []
        self._children: dict[int, _Child] = {}
        self._orphaned_at = time.monotonic()
        self._stopping = False
        self._wake_read, self._wake_write = os.pipe()

    def run(self) -> int:
        self._listen_for_signals()
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._woken)
        abandoned = False
        while not self._stopping:
            for key, _ in self._selector.select(self._timeout()):
                key.data()
            if not self._connections and self._grace_left() <= 0:
                self._stopping = True
                abandoned = True
        self._end_children()
        Path(self._config.socket).unlink(missing_ok=True)
        if abandoned:
            clean_abandoned(Path(self._config.run_dir), self._config.job)
        return 0

    def refuse(self, problem: str) -> None:
        """Tell the agent, which has connected already or will within a moment, why there is no warm parent."""
        self._listener.settimeout(5.0)
        try:
            connection, _ = self._listener.accept()
            with connection:
                connection.sendall(json.dumps({"event": "failed", "error": problem}).encode() + b"\n")
        except OSError:
            print(problem, file=sys.stderr)  # noqa: T201 - nobody listens: the log is all there is
        Path(self._config.socket).unlink(missing_ok=True)

    def _listen_for_signals(self) -> None:
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)

    def _timeout(self) -> float | None:
        return None if self._connections else max(self._grace_left(), 0.0)

    def _grace_left(self) -> float:
        return self._orphaned_at + self._config.orphan_grace_s - time.monotonic()

    def _woken(self) -> None:
        numbers = os.read(self._wake_read, 4096)
        if signal.SIGTERM in numbers or signal.SIGINT in numbers:
            self._stopping = True
        self._reap()

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if struct.unpack("3i", credentials)[1] != os.getuid():
            peer.close()
            return
        peer.setblocking(False)
        connection = _Connection(peer)
        self._connections.append(connection)
        self._selector.register(peer, selectors.EVENT_READ, lambda: self._serve(connection))
        self._send(connection, self._hello())

    def _hello(self) -> dict[str, Any]:
        return {
            "event": "hello",
            "pid": os.getpid(),
            "preload": list(self._config.preload),
            "threads": len(os.listdir("/proc/self/task")),  # noqa: PTH208 - a count of /proc entries
            "children": [child.describe() for child in self._children.values()],
        }

    def _serve(self, connection: _Connection) -> None:
        if not connection.flush():
            self._drop(connection)
            return
        lines = connection.lines()
        if lines is None:
            self._drop(connection)
            return
        for line in lines:
            self._order(connection, json.loads(line))

    def _drop(self, connection: _Connection) -> None:
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        self._selector.unregister(connection.socket)
        connection.socket.close()
        self._orphaned_at = time.monotonic()

    def _send(self, connection: _Connection, message: Mapping[str, Any]) -> None:
        connection.pending += json.dumps(message).encode() + b"\n"
        if not connection.flush():
            self._drop(connection)

    def _order(self, connection: _Connection, order: Mapping[str, Any]) -> None:
        try:
            if "fork" in order:
                self._send(connection, {"reply": order["id"], "pid": self._fork(order["fork"])})
            elif "store" in order:
                self._open_store(connection, order["id"], order["store"])
            elif order.get("exit"):
                self._stopping = True
                self._send(connection, {"reply": order["id"], "pid": 0})
        except OSError as error:
            self._send(connection, {"reply": order["id"], "error": f"cannot fork: {error.strerror}"})

    def _fork(self, order: Mapping[str, Any]) -> int:
        return self._spawn(order["tag"], lambda: _become(order))

    def _spawn(self, tag: Mapping[str, Any], become: Callable[[], None]) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                worker_entry.die_with_parent(parent)
                self._close_in_child()
                worker_entry.reset_signals()
                gc.enable()
                become()
            finally:
                os._exit(70)
        self._children[pid] = _Child(pid=pid, tag=tag)
        self._forget_oldest_ends()
        return pid

    def _close_in_child(self) -> None:
        signal.set_wakeup_fd(-1)
        self._selector.close()
        self._listener.close()
        for connection in self._connections:
            connection.socket.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _open_store(self, connection: _Connection, number: int, order: Mapping[str, Any]) -> None:
        read_end, write_end = os.pipe()
        log = Path(order["log"])
        pid = self._spawn(order["tag"], lambda: store_host.serve(order["host"], write_end, log))
        os.close(write_end)

        def answered() -> None:
            self._selector.unregister(read_end)
            text = os.read(read_end, 1024).decode(errors="replace").strip()
            os.close(read_end)
            if text.isdecimal():
                self._children[pid].tag = {**order["tag"], "port": int(text)}
                self._send(connection, {"reply": number, "pid": pid, "port": int(text)})
            else:
                problem = text or f"the store process ended; see {log}"
                self._send(connection, {"reply": number, "error": problem})

        self._selector.register(read_end, selectors.EVENT_READ, answered)

    def _forget_oldest_ends(self) -> None:
        ended = [pid for pid, child in self._children.items() if child.status is not None]
        for pid in ended[:-_KEPT_ENDS]:
            del self._children[pid]

    def _reap(self) -> None:
        while (pid := _ended_child()) is not None:
            # Before the pid is given back: what the worker left behind in its session ends with it.
            if pid in self._children:
                _kill_group(pid)
            _, status = os.waitpid(pid, 0)
            child = self._children.get(pid)
            if child is None:
                continue  # an adopted orphan of a worker
            child.status = os.waitstatus_to_exitcode(status)
            for connection in list(self._connections):
                self._send(connection, {"event": "exit", **child.describe()})

    def _end_children(self) -> None:
        alive = [pid for pid, child in self._children.items() if child.status is None]
        for pid in alive:
            _kill_group(pid)
        deadline = time.monotonic() + 5.0
        while any(self._children[pid].status is None for pid in alive) and time.monotonic() < deadline:
            self._selector.select(0.2)
            self._reap()


def _become(order: Mapping[str, Any]) -> None:
    log = Path(order["log"])
    if order.get("exec"):
        os.environ.update(order["environment"])
        os.environ[worker_entry.LAUNCHER_VARIABLE] = str(os.getpid())
        worker_entry.redirect(log)
        os.execv(order["argv"][0], order["argv"])  # noqa: S606 - an argv from the agent's own configuration
    worker_entry.run_forked(order["argv"], order["environment"], log)


def _ended_child() -> int | None:
    try:
        info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return info.si_pid if info is not None else None


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def preload(modules: tuple[str, ...]) -> str:
    """Import the modules; the problem in one line, or empty."""
    for name in modules:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            return (
                f"preload module {name} cannot be imported ({error}); install it into {sys.executable} "
                f"or take it out of the job's preload list"
            )
        except Exception as error:  # noqa: BLE001 - an import may raise anything; the agent reports it and retries
            return f"preload module {name} failed with {type(error).__name__}: {error}; correct it or do not preload it"
    return ""


def main(arguments: list[str]) -> int:
    fd, text = arguments
    data = json.loads(text)
    config = StandbyConfig(**{**data, "preload": tuple(data["preload"])})
    listener = socket.socket(fileno=int(fd))
    listener.set_inheritable(False)
    os.environ["OMP_NUM_THREADS"] = "1"
    worker_entry.adopt_orphans()
    server = Standby(listener, config)
    gc.disable()  # collections while importing would scatter garbage over pages that children share
    problem = preload(config.preload)
    if problem:
        server.refuse(problem)
        return PRELOAD_FAILED
    gc.collect()
    gc.freeze()
    return server.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
