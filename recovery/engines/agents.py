"""The engine over Everstep's own node agents: verbs as parallel HTTP requests, one short timeout each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from everstep.core.engine import (
    Attempt,
    CheckpointCopy,
    ClusterSnapshot,
    NodeStatus,
    Outcomes,
    WorkerState,
    WorkerStatus,
)
from everstep.core.errors import EngineError
from everstep.core.topology import Topology
from everstep.recovery.engines.agent_link import AgentLink, AgentRefusedError, AgentUnreachableError, Answer
from everstep.scheduler.placing import SnapshotPlacing

MAX_THREADS = 64
MOST_KEYS = 10_000
STATUS_TIMEOUT_S = 2.0  # an agent answers this from memory; one that does not is as good as away
SLACK_S = 0.5  # a request may end this much after its own timeout before its node is given up
T = TypeVar("T")


class AgentsEngine(SnapshotPlacing):
    """Thread-safe; requests to different nodes run at one time. A verb's key is remembered for each node it reached."""

    def __init__(
        self, topology: Topology, token: str | None, ca_file: Path | None = None, *, stop_grace_s: float = 0.0
    ) -> None:
        """Raises `ConfigError` on an unusable CA file."""
        self.topology = topology
        self._link = AgentLink(
            {name: node.agent_url.rstrip("/") for name, node in topology.nodes.items()}, token, ca_file
        )
        self._stop_grace_s = stop_grace_s
        self._pool = ThreadPoolExecutor(
            max_workers=max(1, min(MAX_THREADS, 2 * len(topology.nodes))), thread_name_prefix="everstep-engine"
        )
        self._lock = threading.Lock()
        self._done: dict[tuple[str, str], None] = {}
        self._cordoned: dict[str, str] = {}

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._link.close()

    def snapshot(self, *, timeout_s: float) -> ClusterSnapshot:
        timeout_s = min(timeout_s, STATUS_TIMEOUT_S)
        answers = self._each(self.topology.nodes, lambda node: self._status(node, timeout_s), timeout_s)
        nodes = {
            name: answers[name] or NodeStatus(name=name, reachable=False, detail="timeout")
            for name in self.topology.nodes
        }
        self._catch_up(nodes, timeout_s)
        return ClusterSnapshot(at=time.time(), nodes={name: self._wanted(status) for name, status in nodes.items()})

    def cordon(self, node: str, *, key: str, reason: str, timeout_s: float, dry_run: bool = False) -> Outcomes:
        """A node that does not answer counts as cordoned and is told so as soon as it does."""
        if dry_run:
            return self._rehearsed([node])
        with self._lock:
            self._cordoned[node] = reason[:500]
        return self._told(
            [node], key, timeout_s, lambda name: self._post(name, "cordon", {"reason": reason[:500]}, timeout_s)
        )

    def uncordon(self, node: str, *, key: str, timeout_s: float, dry_run: bool = False) -> Outcomes:
        if dry_run:
            return self._rehearsed([node])
        with self._lock:
            self._cordoned.pop(node, None)
        return self._told([node], key, timeout_s, lambda name: self._post(name, "uncordon", {}, timeout_s))

    def start(self, attempt: Attempt, *, key: str, timeout_s: float, dry_run: bool = False) -> Outcomes:
        """The store on rank 0's node first, then all workers at one time."""
        if dry_run:
            return self._rehearsed(attempt.nodes)
        if not attempt.placements:
            raise EngineError(f"attempt {attempt.number} of {attempt.job} has no ranks", mend="place it first")
        master = attempt.nodes[0]
        order = {"job": attempt.job, "attempt": attempt.number, "cold": attempt.cold}
        try:
            store = self._link.post(master, "/v1/store/start", order, timeout_s=timeout_s)
            host, port = str(store["host"]), int(store["port"])
        except (AgentUnreachableError, AgentRefusedError, KeyError, TypeError, ValueError) as error:
            failed = f"store: {_problem(error)}"
            return Outcomes(by_node={node: failed if node == master else "no store" for node in attempt.nodes})
        return self._told(
            attempt.nodes, key, timeout_s, lambda node: self._start_on(node, attempt, host, port, timeout_s)
        )

    def stop(self, attempt: Attempt, *, key: str, timeout_s: float, dry_run: bool = False) -> Outcomes:
        """Returns when every answering node has ended its workers of this attempt and of older ones."""
        if dry_run:
            return self._rehearsed(attempt.nodes)
        body = {"job": attempt.job, "attempt": attempt.number, "grace_s": self._stop_grace_s}
        wait_s = timeout_s + self._stop_grace_s
        return self._told(attempt.nodes, key, wait_s, lambda node: self._post(node, "workers/stop", body, wait_s))

    def dump_stacks(self, attempt: Attempt, *, timeout_s: float) -> Mapping[int, str]:
        body = {"job": attempt.job}
        answers = self._each(
            attempt.nodes,
            lambda node: self._asked(lambda: self._link.post(node, "/v1/workers/stacks", body, timeout_s=timeout_s)),
            timeout_s,
        )
        stacks: dict[int, str] = {}
        for answer in answers.values():
            found = answer.get("stacks") if answer is not None else None
            if isinstance(found, Mapping):
                stacks |= {int(rank): str(text) for rank, text in found.items() if str(rank).isdigit()}
        return dict(sorted(stacks.items()))

    def checkpoints(self, attempt: Attempt, *, timeout_s: float) -> tuple[CheckpointCopy, ...]:
        """What the nodes of the attempt hold; a node that does not answer in time holds nothing."""
        path = f"/v1/checkpoints?{urlencode({'job': attempt.job})}"
        answers = self._each(
            attempt.nodes, lambda node: self._asked(lambda: self._link.get(node, path, timeout_s=timeout_s)), timeout_s
        )
        return tuple(
            copy
            for node, answer in answers.items()
            for entry in _entries(answer, "copies")
            if (copy := _copy(node, entry)) is not None
        )

    def _status(self, node: str, timeout_s: float) -> NodeStatus:
        try:
            return _node_status(node, self._link.get(node, "/v1/status", timeout_s=timeout_s, fresh=True))
        except AgentUnreachableError as error:
            return NodeStatus(name=node, reachable=False, detail=error.detail)
        except AgentRefusedError as error:
            return NodeStatus(name=node, reachable=False, detail=f"http-{error.status}")

    def _wanted(self, status: NodeStatus) -> NodeStatus:
        with self._lock:
            return replace(status, cordoned=status.cordoned or status.name in self._cordoned)

    def _catch_up(self, nodes: Mapping[str, NodeStatus], timeout_s: float) -> None:
        """Tell nodes that were away when they were cordoned."""
        with self._lock:
            late = {
                name: reason
                for name, reason in self._cordoned.items()
                if name in nodes and nodes[name].reachable and not nodes[name].cordoned
            }
        if late:
            self._each(late, lambda node: self._post(node, "cordon", {"reason": late[node]}, timeout_s), timeout_s)

    def _start_on(self, node: str, attempt: Attempt, host: str, port: int, timeout_s: float) -> str:
        mine = [placement for placement in attempt.placements if placement.node == node]
        for placement in mine:
            order = {
                "job": attempt.job,
                "attempt": attempt.number,
                "rank": placement.rank,
                "local_rank": placement.local_rank,
                "local_world_size": len(mine),
                "world_size": attempt.world_size,
                "node_rank": attempt.nodes.index(node),
                "nnodes": len(attempt.nodes),
                "master_addr": host,
                "master_port": port,
                "resume": asdict(attempt.resume) if attempt.resume is not None else None,
                "skip_batches": list(attempt.skip_batches),
                "cold": attempt.cold,
            }
            problem = self._post(node, "workers/start", order, timeout_s)
            if problem:
                return problem
        return ""

    def _post(self, node: str, verb: str, body: Mapping[str, Any], timeout_s: float) -> str:
        try:
            self._link.post(node, f"/v1/{verb}", body, timeout_s=timeout_s)
        except (AgentUnreachableError, AgentRefusedError) as error:
            return _problem(error)
        return ""

    def _asked(self, ask: Callable[[], Answer]) -> Answer:
        try:
            return ask()
        except (AgentUnreachableError, AgentRefusedError):
            return {}

    def _told(self, nodes: Iterable[str], key: str, timeout_s: float, tell: Callable[[str], str]) -> Outcomes:
        """Tell each node that has not yet done what the key stands for."""
        names = tuple(nodes)
        with self._lock:
            due = [node for node in names if (key, node) not in self._done]
        answers = self._each(due, tell, timeout_s)
        by_node = {node: _or_timeout(answers[node]) if node in answers else "" for node in names}
        with self._lock:
            self._done |= {(key, node): None for node in due if not by_node[node]}
            while len(self._done) > MOST_KEYS:
                del self._done[next(iter(self._done))]
        return Outcomes(by_node=by_node)

    def _each(self, nodes: Collection[str], ask: Callable[[str], T], timeout_s: float) -> dict[str, T | None]:
        """Ask all at one time; None for a node whose answer did not come in time."""
        try:
            pending: dict[str, Future[T]] = {node: self._pool.submit(ask, node) for node in nodes}
        except RuntimeError as error:
            raise EngineError("the engine is closed", mend="start the service again") from error
        deadline = time.monotonic() + timeout_s + SLACK_S
        return {node: _result(future, deadline) for node, future in pending.items()}

    def _rehearsed(self, nodes: Iterable[str]) -> Outcomes:
        return Outcomes(by_node=dict.fromkeys(nodes, ""))


def _result(future: Future[T], deadline: float) -> T | None:
    try:
        return future.result(timeout=max(0.0, deadline - time.monotonic()))
    except FutureTimeoutError:
        future.cancel()
        return None


def _or_timeout(answer: str | None) -> str:
    return "timeout" if answer is None else answer


def _problem(error: Exception) -> str:
    if isinstance(error, AgentUnreachableError):
        return error.detail
    if isinstance(error, AgentRefusedError):
        return error.problem
    return f"unexpected answer ({error})"


def _entries(answer: Answer | None, key: str) -> list[Any]:
    found = answer.get(key) if answer is not None else None
    return found if isinstance(found, list) else []


def _node_status(node: str, answer: Answer) -> NodeStatus:
    """Tolerant: what an agent says wrongly is left out."""
    jobs = answer.get("jobs")
    jobs = jobs if isinstance(jobs, dict) else {}
    workers = [
        worker
        for job, held in jobs.items()
        for entry in _entries(held if isinstance(held, dict) else None, "workers")
        if (worker := _worker(node, str(job), entry)) is not None
    ]
    slots = answer.get("slots")
    return NodeStatus(
        name=node,
        reachable=True,
        cordoned=bool(answer.get("cordoned")),
        slots=slots if isinstance(slots, int) and slots > 0 else 1,
        standby_ready=bool(jobs)
        and all(isinstance(held, dict) and held.get("standby_ready") for held in jobs.values()),
        workers=tuple(workers),
    )


def _worker(node: str, job: str, entry: Any) -> WorkerStatus | None:
    try:
        return WorkerStatus(
            node=node,
            job=job,
            rank=int(entry["rank"]),
            attempt=int(entry["attempt"]),
            pid=int(entry["pid"]),
            state=WorkerState(entry["state"]),
            exit_code=None if entry.get("exit_code") is None else int(entry["exit_code"]),
            reason=str(entry.get("reason") or ""),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _copy(node: str, entry: Any) -> CheckpointCopy | None:
    try:
        return CheckpointCopy(
            step=int(entry["step"]),
            tier=str(entry["tier"]),
            attempt=int(entry["attempt"]),
            holder=node,
            rank=None if entry.get("rank") is None else int(entry["rank"]),
            problem=str(entry.get("problem") or ""),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
