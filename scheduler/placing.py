"""The placement verbs of the engine contract, from nothing but a snapshot: engines that see nodes inherit them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

from everstep.core.engine import Attempt, ClusterSnapshot, RankPlacement
from everstep.core.topology import Topology
from everstep.scheduler.hosts import usable_hosts
from everstep.scheduler.placement import Host, migrate, replace_nodes, resize


class SnapshotPlacing(ABC):
    """Every verb raises `PlacementError` when there is no room."""

    topology: Topology

    @abstractmethod
    def snapshot(self, *, timeout_s: float) -> ClusterSnapshot: ...

    def place(self, attempt: Attempt, *, exclude: Sequence[str], timeout_s: float) -> tuple[RankPlacement, ...]:
        """Survivors stay, ranks of excluded or lost nodes move."""
        return replace_nodes(attempt.placements, set(exclude), self._hosts(attempt, timeout_s, exclude))

    def replace(self, attempt: Attempt, node: str, *, timeout_s: float) -> tuple[RankPlacement, ...]:
        return self.place(attempt, exclude=(node,), timeout_s=timeout_s)

    def resize(self, attempt: Attempt, world_size: int, *, timeout_s: float) -> tuple[RankPlacement, ...]:
        return resize(attempt.placements, world_size, self._hosts(attempt, timeout_s))

    def migrate(self, attempt: Attempt, rank: int, node: str, *, timeout_s: float) -> tuple[RankPlacement, ...]:
        return migrate(attempt.placements, rank, node, self._hosts(attempt, timeout_s))

    def _hosts(self, attempt: Attempt, timeout_s: float, exclude: Collection[str] = ()) -> list[Host]:
        return usable_hosts(self.snapshot(timeout_s=timeout_s), self.topology, job=attempt.job, exclude=exclude)
