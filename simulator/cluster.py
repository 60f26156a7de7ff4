"""The simulated cluster: nodes that answer or do not, verbs of the engine contract, faults to inject."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from everstep.core.clock import ManualClock
from everstep.core.engine import (
    Attempt,
    CheckpointCopy,
    ClusterSnapshot,
    NodeStatus,
    Outcomes,
    WorkerState,
)
from everstep.core.errors import EngineError
from everstep.core.exits import WorkerExit
from everstep.core.progress import JobProgress
from everstep.core.topology import Topology
from everstep.scheduler.placing import SnapshotPlacing
from everstep.simulator.job import DISK, SimJob, SimTraining

DEAD = "refused"
DEAF = "timeout"


@dataclass(slots=True)
class _SimNode:
    """`silence` empty: the node answers; else how it does not."""

    name: str
    slots: int
    silence: str = ""
    cordoned: bool = False
    start_problem: str = ""
    done: set[str] = field(default_factory=set)


class SimCluster(SnapshotPlacing):
    """Implements `ClusterEngine` and `ProgressSource`; `advance` is the only thing that moves time."""

    def __init__(
        self, topology: Topology, *, clock: ManualClock | None = None, training: SimTraining | None = None
    ) -> None:
        self.topology = topology
        self.clock = clock or ManualClock()
        self._training = training or SimTraining()
        self._nodes = {name: _SimNode(name=name, slots=node.slots) for name, node in topology.nodes.items()}
        self._jobs: dict[str, SimJob] = {}
        self._pid = 1000
        self.calls: list[tuple[str, str]] = []
        self.starts: list[Attempt] = []

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for job in self._jobs.values():
            job.run(self.clock.now())

    def job(self, name: str) -> SimJob:
        return self._jobs[name]

    def kill_rank(self, job: str, rank: int) -> None:
        """SIGKILL of one worker; its peers lose it."""
        self._jobs[job].end(rank, WorkerState.KILLED, -9, "signal")
        self._jobs[job].end_all(WorkerExit.PEER_LOST, "peer_lost")

    def stop_rank(self, job: str, rank: int) -> None:
        """SIGSTOP: nobody ends, nobody steps."""
        held = self._jobs[job]
        held.workers[rank] = replace(held.workers[rank], state=WorkerState.STOPPED)

    def kill_node(self, name: str) -> None:
        """The agent, its workers and the memory of the node are gone."""
        self._nodes[name].silence = DEAD
        for job in self._jobs.values():
            job.copies = [copy for copy in job.copies if copy.holder != name]
            lost = [rank for rank, worker in job.workers.items() if worker.node == name]
            for rank in lost:
                job.end(rank, WorkerState.KILLED, -9, "signal")
            if lost:
                job.end_all(WorkerExit.PEER_LOST, "peer_lost")

    def deafen(self, name: str) -> None:
        """The node works on and answers nothing."""
        self._nodes[name].silence = DEAF

    def revive(self, name: str) -> None:
        self._nodes[name].silence = ""

    def poison(self, job: str, batch: int) -> None:
        self._jobs[job].poisoned.add(batch)

    def corrupt(self, job: str, step: int, *, tier: str | None = None) -> None:
        """Damage all copies of a step, or those of one tier."""
        self._jobs[job].damage(step, tier, "checksum differs")

    def refuse_starts(self, name: str, problem: str) -> None:
        """The node answers and starts nothing; an empty problem lifts it."""
        self._nodes[name].start_problem = problem

    def progress(self, job: str) -> JobProgress | None:
        held = self._jobs.get(job)
        return held.progress() if held is not None else None

    def history(self, job: str) -> Mapping[int, float]:
        held = self._jobs.get(job)
        return dict(held.history) if held is not None else {}

    def snapshot(self, *, timeout_s: float) -> ClusterSnapshot:
        del timeout_s
        return ClusterSnapshot(
            at=self.clock.now(), nodes={name: self._status(node) for name, node in self._nodes.items()}
        )

    def cordon(self, node: str, *, key: str, reason: str, timeout_s: float, dry_run: bool = False) -> Outcomes:
        del reason, timeout_s
        return self._verb("cordon", [node], key, _cordon, dry_run=dry_run)

    def uncordon(self, node: str, *, key: str, timeout_s: float, dry_run: bool = False) -> Outcomes:
        del timeout_s
        return self._verb("uncordon", [node], key, _uncordon, dry_run=dry_run)

    def start(self, attempt: Attempt, *, key: str, timeout_s: float, dry_run: bool = False) -> Outcomes:
        """All ranks or none: a gang whose node does not start leaves nothing running."""
        del timeout_s
        self.calls.append(("start", key))
        if not attempt.placements:
            raise EngineError(f"attempt {attempt.number} of {attempt.job} has no ranks", mend="place it first")
        problems = {node: self._start_problem(node, attempt) for node in attempt.nodes}
        held = self._jobs.get(attempt.job)
        again = held is not None and held.attempt.number == attempt.number
        if dry_run or again or any(problems.values()):
            return Outcomes(by_node=dict.fromkeys(attempt.nodes, "") if again else problems)
        self._pid += 100
        if held is None:
            held = self._jobs[attempt.job] = SimJob(training=self._training, attempt=attempt)
        held.begin(attempt, self._pid, self.clock.now())
        self.starts.append(attempt)
        return Outcomes(by_node=problems)

    def stop(self, attempt: Attempt, *, key: str, timeout_s: float, dry_run: bool = False) -> Outcomes:
        """Ends the workers of this attempt and of older ones on the nodes that answer."""
        del timeout_s
        self.calls.append(("stop", key))
        held = self._jobs.get(attempt.job)
        by_node = {node: self._nodes[node].silence for node in attempt.nodes}
        if held is not None and held.attempt.number <= attempt.number and not dry_run:
            for rank, worker in held.workers.items():
                alive = worker.state not in {WorkerState.EXITED, WorkerState.KILLED}
                if alive and not by_node.get(worker.node, ""):
                    held.end(rank, WorkerState.KILLED, -9, "stopped_by_agent")
        return Outcomes(by_node=by_node)

    def dump_stacks(self, attempt: Attempt, *, timeout_s: float) -> Mapping[int, str]:
        del timeout_s
        return {
            one.rank: f"rank {one.rank}: train_step" for one in attempt.placements if not self._nodes[one.node].silence
        }

    def checkpoints(self, attempt: Attempt, *, timeout_s: float) -> tuple[CheckpointCopy, ...]:
        del timeout_s
        held = self._jobs.get(attempt.job)
        answering = [node for node in attempt.nodes if not self._nodes[node].silence]
        if held is None or not answering:
            return ()
        shared = [replace(copy, holder=node) for copy in held.copies if copy.tier == DISK for node in answering]
        return (*shared, *(copy for copy in held.copies if copy.holder in answering))

    def _start_problem(self, name: str, attempt: Attempt) -> str:
        node = self._nodes.get(name)
        if node is None:
            return "unknown node"
        held = self._jobs.get(attempt.job)
        if held is not None and attempt.number < held.attempt.number:
            return f"attempt {attempt.number} is fenced by {held.attempt.number}"
        return node.silence or node.start_problem or ("cordoned" if node.cordoned else "")

    def _verb(
        self, verb: str, names: Sequence[str], key: str, act: Callable[[_SimNode], None], *, dry_run: bool
    ) -> Outcomes:
        """Tell the nodes once a key; a cordon holds also for a node that does not answer."""
        by_node = {}
        for name in names:
            node = self._nodes[name]
            by_node[name] = node.silence
            if not dry_run and key not in node.done:
                self.calls.append((verb, name))
                act(node)
                node.done.add(key)
        return Outcomes(by_node=by_node)

    def _status(self, node: _SimNode) -> NodeStatus:
        if node.silence:
            return NodeStatus(name=node.name, reachable=False, cordoned=node.cordoned, detail=node.silence)
        workers = [worker for job in self._jobs.values() for worker in job.workers.values() if worker.node == node.name]
        return NodeStatus(
            name=node.name,
            reachable=True,
            cordoned=node.cordoned,
            slots=node.slots,
            standby_ready=True,
            workers=tuple(workers),
        )


def _cordon(node: _SimNode) -> None:
    node.cordoned = True


def _uncordon(node: _SimNode) -> None:
    node.cordoned = False
