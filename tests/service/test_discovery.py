"""What Prometheus' HTTP service discovery gets: one group a node, target labels only."""

from __future__ import annotations

from everstep.core.topology import Node, Topology
from everstep.service.discovery import target_groups


def groups(*nodes: Node, cluster: str = "c1") -> list[dict[str, object]]:
    return list(target_groups(Topology.of(list(nodes)), cluster=cluster))


def test_each_agent_is_a_target_with_its_place() -> None:
    node = Node(name="node-0", agent_url="http://10.0.0.1:9810", rack="rack-7", leaf="leaf-3")
    assert groups(node) == [
        {"targets": ["10.0.0.1:9810"], "labels": {"cluster": "c1", "node": "node-0", "rack": "rack-7"}}
    ]


def test_a_cluster_without_a_name_is_no_label() -> None:
    (group,) = groups(Node(name="n", agent_url="http://h:1"), cluster="")
    assert group["labels"] == {"node": "n", "rack": "rack-0"}


def test_tls_paths_and_addresses_of_every_form() -> None:
    (group,) = groups(Node(name="n", agent_url="https://user:word@[fd00::1]:9810/agent/"))
    assert group["targets"] == ["[fd00::1]:9810"]
    assert group["labels"] == {
        "cluster": "c1", "node": "n", "rack": "rack-0", "__scheme__": "https", "__metrics_path__": "/agent/metrics",
    }  # fmt: skip


def test_a_node_without_an_agent_is_no_target() -> None:
    assert groups(Node(name="n"), Node(name="m", agent_url="nonsense")) == []
