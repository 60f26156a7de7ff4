"""The typed graph of one job: racks and leaves above nodes, nodes above ranks, ranks above the job."""

from __future__ import annotations

from collections.abc import Iterable

import networkx as nx

from everstep.core.engine import RankPlacement
from everstep.core.events import Entity, EntityKind
from everstep.core.topology import Topology


class CauseGraph:
    """Edges lead from cause to effect. Entities that nobody knows have no neighbours and break nothing."""

    def __init__(self, job: str, placements: Iterable[RankPlacement], topology: Topology) -> None:
        self.job = Entity(kind=EntityKind.JOB, name=job)
        self._graph: nx.DiGraph = nx.DiGraph()
        self._graph.add_node(self.job)
        self._below: dict[Entity, frozenset[Entity]] = {}
        for name, node in topology.nodes.items():
            self._graph.add_edge(Entity(kind=EntityKind.RACK, name=node.rack), node_entity(name))
            self._graph.add_edge(Entity(kind=EntityKind.LEAF, name=node.leaf), node_entity(name))
        for mount, users in topology.storage.items():
            for name in users:
                self._graph.add_edge(Entity(kind=EntityKind.MOUNT, name=mount), node_entity(name))
        for placement in placements:
            rank = Entity(kind=EntityKind.RANK, name=f"{job}/{placement.rank}")
            self._graph.add_edge(node_entity(placement.node), rank)
            self._graph.add_edge(rank, self.job)

    def add(self, entity: Entity) -> None:
        """Hang what only this job has (a batch, a checkpoint) above the job, a GPU between its node and the ranks."""
        if entity != self.job and entity.kind in {EntityKind.BATCH, EntityKind.CHECKPOINT}:
            self._graph.add_edge(entity, self.job)
        if entity.kind is EntityKind.GPU:
            node = node_entity(entity.name.partition("/")[0])
            for rank in self.children(node):
                if rank.kind is EntityKind.RANK:
                    self._graph.add_edge(entity, rank)
            self._graph.add_edge(node, entity)

    def below(self, entity: Entity) -> frozenset[Entity]:
        """The entity and everything it can hurt."""
        if entity not in self._below:
            reached = nx.descendants(self._graph, entity) if entity in self._graph else ()
            self._below[entity] = frozenset({entity, *reached})
        return self._below[entity]

    def children(self, entity: Entity) -> tuple[Entity, ...]:
        return tuple(sorted(self._graph.successors(entity))) if entity in self._graph else ()

    def parents(self, entity: Entity, kind: EntityKind) -> tuple[Entity, ...]:
        if entity not in self._graph:
            return ()
        return tuple(sorted(parent for parent in self._graph.predecessors(entity) if parent.kind is kind))

    def node_of(self, entity: Entity) -> Entity | None:
        """The node of a rank, or the node itself."""
        if entity.kind is EntityKind.NODE:
            return entity
        return next(iter(self.parents(entity, EntityKind.NODE)), None)


def node_entity(name: str) -> Entity:
    return Entity(kind=EntityKind.NODE, name=name)
