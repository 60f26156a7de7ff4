"""Who stands above whom."""

from __future__ import annotations

from everstep.core.engine import RankPlacement
from everstep.core.events import Entity, EntityKind
from everstep.core.topology import Node, Topology
from everstep.rca.graph import CauseGraph, node_entity

TOPOLOGY = Topology.of([Node(name="a", rack="r0"), Node(name="b", rack="r1")], {"scratch": ("a",)})
GRAPH = CauseGraph("demo", [RankPlacement(rank=0, node="a", local_rank=0)], TOPOLOGY)
RANK = Entity(kind=EntityKind.RANK, name="demo/0")


def test_effects_flow_down_from_what_is_shared() -> None:
    assert RANK in GRAPH.below(Entity(kind=EntityKind.RACK, name="r0"))
    assert RANK in GRAPH.below(Entity(kind=EntityKind.MOUNT, name="scratch"))
    assert RANK not in GRAPH.below(Entity(kind=EntityKind.RACK, name="r1"))
    assert GRAPH.job in GRAPH.below(RANK)
    assert node_entity("a") not in GRAPH.below(RANK)


def test_parents_and_nodes() -> None:
    assert GRAPH.node_of(RANK) == node_entity("a")
    assert GRAPH.parents(node_entity("b"), EntityKind.RACK) == (Entity(kind=EntityKind.RACK, name="r1"),)
    assert GRAPH.children(Entity(kind=EntityKind.RACK, name="r1")) == (node_entity("b"),)


def test_strangers_break_nothing() -> None:
    stranger = Entity(kind=EntityKind.RANK, name="other/9")
    assert GRAPH.below(stranger) == {stranger}
    assert GRAPH.node_of(stranger) is None
    assert GRAPH.children(stranger) == GRAPH.parents(stranger, EntityKind.NODE) == ()


def test_a_checkpoint_hangs_above_its_job() -> None:
    checkpoint = Entity(kind=EntityKind.CHECKPOINT, name="demo/step-40")
    GRAPH.add(checkpoint)
    assert GRAPH.job in GRAPH.below(checkpoint)
