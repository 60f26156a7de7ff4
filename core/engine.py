"""The contract between the recovery controller and whatever runs the job: idempotent verbs with timeouts.

Engines live in `recovery/engines` (agents, later slurm and kubernetes) and in the simulator. Every verb that changes
something carries the incident id as its idempotency key: repeating it with the same key changes nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class WorkerState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    EXITED = "exited"
    KILLED = "killed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlacement:
    """Where one rank runs."""

    rank: int
    node: str
    local_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """The committed state to continue from; `tier` is memory or disk, `attempt` the one that wrote it."""

    step: int
    tier: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Static membership of one attempt, chosen by the controller.

    `resume` None means: newest state that verifies, or step 0 when there is none. Batches in `skip_batches` are
    left out of the data order. `cold` starts through torchrun instead of the warm standby.
    """

    job: str
    number: int
    placements: tuple[RankPlacement, ...]
    resume: ResumePoint | None = None
    skip_batches: tuple[int, ...] = ()
    cold: bool = False

    @property
    def world_size(self) -> int:
        return len(self.placements)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes in rank order, each once."""
        return tuple(dict.fromkeys(placement.node for placement in self.placements))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    node: str
    job: str
    rank: int
    attempt: int
    pid: int
    state: WorkerState
    exit_code: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """`reachable` False means that the engine could not talk to the node within its timeout, and `detail` says how."""

    name: str
    reachable: bool
    cordoned: bool = False
    slots: int = 1
    standby_ready: bool = False
    workers: tuple[WorkerStatus, ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    at: float
    nodes: Mapping[str, NodeStatus]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCopy:
    """One committed copy that an agent has checked; `problem` is empty when every checksum agrees.

    Memory copies are per rank shard (`rank` set, `holder` the node that holds it); disk copies are whole (`rank` None).
    """

    step: int
    tier: str
    attempt: int
    holder: str
    rank: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """Per-node result of a verb: empty string means done, anything else says what went wrong."""

    by_node: Mapping[str, str]

    @property
    def failed(self) -> Mapping[str, str]:
        return {node: problem for node, problem in self.by_node.items() if problem}


class ClusterEngine(Protocol):
    """Verbs raise `EngineError` only when nothing at all could be done; partial failures are in the outcomes."""

    def snapshot(self, *, timeout_s: float) -> ClusterSnapshot: ...

    def cordon(self, node: str, *, key: str, reason: str, timeout_s: float, dry_run: bool = False) -> Outcomes: ...

    def uncordon(self, node: str, *, key: str, timeout_s: float, dry_run: bool = False) -> Outcomes: ...

    def place(self, attempt: Attempt, *, exclude: Sequence[str], timeout_s: float) -> tuple[RankPlacement, ...]: ...

    def start(self, attempt: Attempt, *, key: str, timeout_s: float, dry_run: bool = False) -> Outcomes: ...

    def stop(self, attempt: Attempt, *, key: str, timeout_s: float, dry_run: bool = False) -> Outcomes: ...

    def replace(self, attempt: Attempt, node: str, *, timeout_s: float) -> tuple[RankPlacement, ...]: ...

    def resize(self, attempt: Attempt, world_size: int, *, timeout_s: float) -> tuple[RankPlacement, ...]: ...

    def migrate(self, attempt: Attempt, rank: int, node: str, *, timeout_s: float) -> tuple[RankPlacement, ...]: ...

    def dump_stacks(self, attempt: Attempt, *, timeout_s: float) -> Mapping[int, str]: ...

    def checkpoints(self, attempt: Attempt, *, timeout_s: float) -> tuple[CheckpointCopy, ...]: ...
