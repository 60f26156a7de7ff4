"""Starting: the store of an attempt, a warm worker by fork, the workers of a node under torchrun."""

from __future__ import annotations

import socket
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import structlog

from everstep.collector.launch import Launch, cold_launch, warm_launch, worker_log
from everstep.collector.node_state import NodeState
from everstep.collector.orders import StartOrder, StoreOrder
from everstep.collector.parents import Parents
from everstep.collector.process_state import read_process
from everstep.collector.refusal import RefusedError
from everstep.collector.worker_entry import exit_file
from everstep.collector.workers import StoreProcess, Worker
from everstep.core.settings import JobCommand

FORK_TIMEOUT_S = 5.0
STORE_TIMEOUT_S = 20.0
WARM_PARENT_TIMEOUT_S = 20.0
"""A parent that was killed imports anew; a healthy node must not be left for that."""
_WILDCARDS = {"0.0.0.0", "::", ""}  # noqa: S104 - recognised, not bound


class Starter:
    """Called with the job's lock held and older attempts ended."""

    def __init__(self, state: NodeState, parents: Parents) -> None:
        self._state = state
        self._parents = parents
        self._log = structlog.get_logger()

    async def open_store(self, order: StoreOrder) -> tuple[str, int]:
        """Host and port of the attempt's store; for a cold start a port that is free now."""
        host = self._store_host()
        if order.cold:
            return host, _free_port(host)
        store = self._state.stores.get(order.job)
        if store is not None:
            return host, store.port
        link = self._parents.warm(order.job)
        await link.wait_ready(WARM_PARENT_TIMEOUT_S)
        log = self._log_folder(order.job, order.attempt) / "store.log"
        tag = {"kind": "store", "job": order.job, "attempt": order.attempt, "launcher": link.name}
        pid, port = await link.open_store({"tag": tag, "host": host, "log": str(log)}, timeout_s=STORE_TIMEOUT_S)
        self._state.stores[order.job] = StoreProcess(
            job=order.job, attempt=order.attempt, pid=pid, port=port, launcher=link.name
        )
        self._log.info("store_started", job=order.job, attempt=order.attempt, pid=pid, port=port)
        return host, port

    async def start_warm(self, order: StartOrder, command: JobCommand) -> int:
        """The new worker's pid. Raises `RefusedError`."""
        state = self._state
        link = self._parents.warm(order.job)
        await link.wait_ready(WARM_PARENT_TIMEOUT_S)
        self._make_folders(order)
        start = warm_launch(order, command, state.paths, state.settings.node)
        tag = worker_tag(order, link.name, start.log)
        pid = await link.fork(_fork_order(start, tag), timeout_s=FORK_TIMEOUT_S)
        self._add(worker_of(pid, tag))
        return pid

    async def start_cold(self, order: StartOrder, command: JobCommand) -> int:
        """torchrun's pid, for all workers of this node; theirs follow from their records. Raises `RefusedError`."""
        first = order.node_rank * order.local_world_size
        if order.rank != first + order.local_rank:
            raise RefusedError(
                f"torchrun would give local rank {order.local_rank} of node {order.node_rank} "
                f"the rank {first + order.local_rank}, not {order.rank}",
                mend="place ranks in node order or start warm",
                status=409,
            )
        link = await self._parents.cold(order.job)
        mates = [replace(order, rank=first + local, local_rank=local) for local in range(order.local_world_size)]
        for mate in mates:
            self._make_folders(mate)
        start = cold_launch(order, command, self._state.paths, self._state.settings.node)
        tags = [worker_tag(mate, link.name, worker_log(mate, self._state.paths)) for mate in mates]
        tag = {
            "kind": "torchrun",
            "job": order.job,
            "attempt": order.attempt,
            "log": str(start.log),
            "workers": tags,
        }
        pid = await link.fork(_fork_order(start, tag), timeout_s=FORK_TIMEOUT_S)
        for one in tags:
            self._add(worker_of(pid, one, torchrun=Path(start.log)))
        return pid

    def _add(self, worker: Worker) -> None:
        self._state.table.add(worker)
        self._log.info(
            "worker_started",
            job=worker.job,
            rank=worker.rank,
            attempt=worker.attempt,
            pid=worker.pid,
            cold=worker.cold,
        )
        self._state.wake()

    def _log_folder(self, job: str, attempt: int) -> Path:
        folder = self._state.paths.logs(job, attempt)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _make_folders(self, order: StartOrder) -> None:
        """Folders for the worker; what an older attempt of the rank has left in them goes."""
        paths = self._state.paths
        self._log_folder(order.job, order.attempt)
        for folder in (paths.records(order.job), paths.memory(order.job)):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        paths.record(order.job, order.rank).unlink(missing_ok=True)
        exit_file(worker_log(order, paths)).unlink(missing_ok=True)

    def _store_host(self) -> str:
        host = self._state.settings.listen.host
        return socket.gethostname() if host in _WILDCARDS else host


def worker_tag(order: StartOrder, launcher: str, log: Path) -> dict[str, Any]:
    """What the parent keeps for us, so that a later agent can adopt the worker."""
    return {
        "kind": "worker",
        "job": order.job,
        "attempt": order.attempt,
        "rank": order.rank,
        "local_rank": order.local_rank,
        "launcher": launcher,
        "log": str(log),
    }


def worker_of(pid: int, tag: dict[str, Any], torchrun: Path | None = None) -> Worker:
    """A table entry from a tag; `torchrun` is the log of the torchrun that the pid belongs to."""
    reading = read_process(pid)
    return Worker(
        job=tag["job"],
        attempt=tag["attempt"],
        rank=tag["rank"],
        local_rank=tag["local_rank"],
        pid=pid,
        started_ticks=reading.started_ticks if reading is not None else 0,
        log=Path(tag["log"]),
        launcher=tag["launcher"],
        torchrun_pid=pid if torchrun is not None else None,
        torchrun_log=torchrun,
    )


def _fork_order(start: Launch, tag: dict[str, Any]) -> dict[str, Any]:
    order = asdict(start)
    return {**order, "log": str(start.log), "exec": order.pop("executed"), "tag": tag}


def _free_port(host: str) -> int:
    """A port that nobody listens on now; torchrun binds it a moment later."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
