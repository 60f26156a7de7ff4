"""The agent's end of a warm parent: finds or starts it, adopts its children, sends it orders, hears of every end.

Runs in the agent's event loop. A parent that dies is started again with growing pauses; one that was left by a dead
agent is adopted together with its workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import structlog

from everstep.collector.refusal import RefusedError
from everstep.collector.standby import StandbyConfig

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
IMPORT_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A process that the parent has forked; `status` None while it lives, negative for a signal."""

    pid: int
    tag: Mapping[str, Any]
    status: int | None


class ChildListener(Protocol):
    """Told in the event loop, in order."""

    def adopted(self, child: Child) -> None: ...

    def ended(self, child: Child) -> None: ...

    def parent_changed(self, job: str) -> None: ...

    def parent_lost(self, link: StandbyLink) -> None: ...


class StandbyLink:
    """One parent process; `name` is its socket's name below `run_dir`."""

    def __init__(self, name: str, config: StandbyConfig, log: Path, listener: ChildListener) -> None:
        self.name = name
        self.config = config
        self.ready = False
        self.problem = "it is still importing its modules"
        self._failed = False
        self._log_path = log
        self._listener = listener
        self._writer: asyncio.StreamWriter | None = None
        self._replies: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._number = 0
        self._closing = asyncio.Event()
        self._parent: asyncio.subprocess.Process | None = None
        self._changed = asyncio.Event()
        self._disconnected = asyncio.Event()
        self._log = structlog.get_logger().bind(job=config.job, standby=name)

    async def run(self) -> None:
        """Keep a parent until cancelled or shut down."""
        pause = FIRST_PAUSE_S
        while not self._closing.is_set():
            try:
                reader, self._writer = await self._connect()
                was_ready = await self._listen(reader)
            except OSError as error:
                was_ready = False
                self._failed = True
                self._set_problem(f"it cannot be started ({error.strerror or error})")
            self._lost()
            pause = FIRST_PAUSE_S if was_ready else min(pause * 2, LONGEST_PAUSE_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._closing.wait()

    async def wait_ready(self, timeout_s: float) -> None:
        """Raises `RefusedError` when the parent is not ready in time, at once when its last start has failed."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self.ready:
                    if self._failed:
                        raise self.not_ready()
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise self.not_ready() from None

    def not_ready(self) -> RefusedError:
        return RefusedError(
            f"the warm parent of job {self.config.job} is not ready: {self.problem}",
            mend=f"see {self._log_path} or start cold",
            status=503,
        )

    @property
    def failure(self) -> str:
        """Why the last start has failed; empty when it has not."""
        return self.problem if self._failed else ""

    async def fork(self, order: Mapping[str, Any], *, timeout_s: float) -> int:
        """The pid of the new child. Raises `RefusedError`."""
        reply = await self._ask({"fork": order}, timeout_s)
        return int(reply["pid"])

    async def open_store(self, order: Mapping[str, Any], *, timeout_s: float) -> tuple[int, int]:
        """(pid, port) of a new store process. Raises `RefusedError`."""
        reply = await self._ask({"store": order}, timeout_s)
        return int(reply["pid"]), int(reply["port"])

    async def shut_down(self, timeout_s: float) -> None:
        """End the parent and all that it has forked; killed when it does not go in time."""
        self._closing.set()
        was_ready = self.ready
        if was_ready:
            with contextlib.suppress(RefusedError):
                await self._ask({"exit": True}, timeout_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._disconnected.wait()
        parent = self._parent
        if parent is None:
            return
        try:
            if not was_ready and parent.returncode is None:
                parent.terminate()
            async with asyncio.timeout(timeout_s):
                await parent.wait()
        except TimeoutError:
            parent.kill()
            await parent.wait()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        path = self.config.socket
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            return await asyncio.open_unix_connection(path)
        with _listener_at(Path(path)) as listener:
            await self._spawn(listener.fileno())
            return await asyncio.open_unix_connection(path)

    async def _spawn(self, listener: int) -> None:
        log = os.open(self._log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self._parent = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "everstep.collector.standby",
                str(listener),
                json.dumps(asdict(self.config)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(listener,),
                start_new_session=True,
            )
        finally:
            os.close(log)

    async def _listen(self, reader: asyncio.StreamReader) -> bool:
        """Serve the connection to its end; whether the parent had become ready."""
        try:
            async with asyncio.timeout(IMPORT_TIMEOUT_S):
                first = await reader.readline()
        except TimeoutError:
            self._failed = True
            self._set_problem(f"its imports took longer than {IMPORT_TIMEOUT_S:.0f} s")
            self._kill_parent()
            return False
        hello = json.loads(first) if first else {"event": "failed", "error": "it ended while importing"}
        if hello["event"] == "failed":
            self._failed = True
            self._set_problem(hello["error"])
            return False
        if self._is_outdated(hello):
            await self._retire_outdated(reader)
            return True
        self._greet(hello)
        while line := await reader.readline():
            self._hear(json.loads(line))
        return True

    def _is_outdated(self, hello: Mapping[str, Any]) -> bool:
        alive = any(child["status"] is None for child in hello["children"])
        return not alive and hello["preload"] != list(self.config.preload)

    async def _retire_outdated(self, reader: asyncio.StreamReader) -> None:
        """End a workerless parent that an agent with another preload list has left, so that a new one is started."""
        self._send({"id": 0, "exit": True})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(10.0):
                while await reader.readline():
                    pass

    def _greet(self, hello: Mapping[str, Any]) -> None:
        self.ready = True
        self._failed = False
        self.problem = ""
        self._disconnected.clear()
        if hello["threads"] > 1:
            self._log.warning(
                "standby_has_threads", threads=hello["threads"], mend="preload only modules that start no threads"
            )
        self._log.info("standby_ready", pid=hello["pid"], adopted=len(hello["children"]))
        for child in hello["children"]:
            self._listener.adopted(_child(child))
        self._change()

    def _hear(self, message: Mapping[str, Any]) -> None:
        if "reply" in message:
            reply = self._replies.pop(message["reply"], None)
            if reply is not None and not reply.done():
                reply.set_result(message)
        elif message.get("event") == "exit":
            self._listener.ended(_child(message))

    def _lost(self) -> None:
        was_ready, self.ready = self.ready, False
        self._disconnected.set()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        for reply in self._replies.values():
            if not reply.done():
                reply.set_result({"error": "the warm parent ended"})
        self._replies.clear()
        if was_ready and not self._closing.is_set():
            self._set_problem("it has ended and is being started again")
        if was_ready:
            self._listener.parent_lost(self)
        self._change()

    def _set_problem(self, problem: str) -> None:
        if problem != self.problem:
            self._log.error("standby_unavailable", error=problem)
        self.problem = problem

    def _change(self) -> None:
        self._changed.set()
        self._listener.parent_changed(self.config.job)

    def _kill_parent(self) -> None:
        if self._parent is not None and self._parent.returncode is None:
            self._parent.kill()

    def _send(self, message: Mapping[str, Any]) -> None:
        if self._writer is None:
            raise self.not_ready()
        self._writer.write(json.dumps(message).encode() + b"\n")

    async def _ask(self, order: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        if not self.ready:
            raise self.not_ready()
        self._number += 1
        number = self._number
        reply: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._replies[number] = reply
        self._send({"id": number, **order})
        try:
            async with asyncio.timeout(timeout_s):
                answer = await reply
        except TimeoutError:
            raise RefusedError(
                f"the warm parent of job {self.config.job} did not answer within {timeout_s:g} s",
                mend=f"see {self._log_path}",
                status=504,
            ) from None
        finally:
            self._replies.pop(number, None)
        if "error" in answer:
            raise RefusedError(answer["error"], mend=f"see {self._log_path}", status=503)
        return answer


def _listener_at(path: Path) -> socket.socket:
    """Bound before the parent exists, so that connecting never has to wait or retry."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(8)
    return listener


def _child(data: Mapping[str, Any]) -> Child:
    return Child(pid=data["pid"], tag=data["tag"], status=data["status"])
