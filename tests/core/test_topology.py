"""Nodes by name, spares, and the one mistake that a list of nodes can hold."""

from __future__ import annotations

import dataclasses

import pytest

from everstep.core.errors import ConfigError
from everstep.core.topology import Node, Topology


def test_nodes_keep_their_order_and_spares_are_named() -> None:
    topology = Topology.of([Node(name="b"), Node(name="s", spare=True), Node(name="a")], {"mnt": ("a", "b")})
    assert list(topology.nodes) == ["b", "s", "a"]
    assert topology.spares() == ("s",)
    assert topology.storage == {"mnt": ("a", "b")}


def test_an_empty_topology_has_no_spares() -> None:
    assert Topology.of([]).spares() == ()


def test_a_node_that_stands_twice_is_refused_by_name() -> None:
    with pytest.raises(ConfigError) as caught:
        Topology.of([Node(name="a"), Node(name="b"), Node(name="a")])
    assert str(caught.value) == "node 'a' is in the topology twice; give each node its own name"


def test_the_storage_of_the_caller_is_copied() -> None:
    storage = {"mnt": ("a",)}
    topology = Topology.of([], storage)
    storage["mnt"] = ("b",)
    assert topology.storage["mnt"] == ("a",)


def test_a_node_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Node(name="a").slots = 2  # type: ignore[misc]
