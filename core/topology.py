"""Where things stand: nodes in racks, spares, storage. Plain values; the graphs made of them are the readers' own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from everstep.core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine; `agent_url` is where its agent listens, `slots` how many workers fit, `spare` a reserve."""

    name: str
    agent_url: str = ""
    rack: str = "rack-0"
    leaf: str = "leaf-0"
    slots: int = 1
    gpus: int = 0
    spare: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Nodes by name, storage mounts and who mounts them."""

    nodes: Mapping[str, Node]
    storage: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, nodes: list[Node], storage: Mapping[str, tuple[str, ...]] | None = None) -> Topology:
        """Raises `ConfigError` on a node that stands in the list twice."""
        by_name: dict[str, Node] = {}
        for node in nodes:
            if node.name in by_name:
                raise ConfigError(f"node {node.name!r} is in the topology twice", mend="give each node its own name")
            by_name[node.name] = node
        return cls(nodes=by_name, storage=dict(storage or {}))

    def spares(self) -> tuple[str, ...]:
        return tuple(name for name, node in self.nodes.items() if node.spare)
