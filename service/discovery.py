"""`GET /sd`: the agents of the topology as Prometheus' HTTP service discovery wants them.

The only place where target labels come from: cluster, node and rack. Like all that is read, it needs no token.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from everstep.core.topology import Node, Topology


def discovery_routes(topology: Topology, *, cluster: str) -> APIRouter:
    """`cluster` is left out of the labels when it is empty."""
    router = APIRouter(tags=["discovery"])

    @router.get("/sd", summary="Prometheus HTTP service discovery")
    async def targets() -> JSONResponse:
        return JSONResponse(list(target_groups(topology, cluster=cluster)))

    return router


def target_groups(topology: Topology, *, cluster: str) -> Iterator[dict[str, Any]]:
    """One group a node; nodes without an agent's address are left out.

    >>> node = Node(name="node-0", agent_url="https://10.0.0.1:9810/agent")
    >>> list(target_groups(Topology.of([node]), cluster=""))[0]["labels"]["__metrics_path__"]
    '/agent/metrics'
    """
    for node in topology.nodes.values():
        address = urlsplit(node.agent_url)
        host = address.netloc.rpartition("@")[2]
        if host:
            yield {"targets": [host], "labels": _labels(node, address.scheme, address.path.rstrip("/"), cluster)}


def _labels(node: Node, scheme: str, path: str, cluster: str) -> dict[str, str]:
    labels = {"node": node.name, "rack": node.rack}
    if cluster:
        labels["cluster"] = cluster
    if scheme == "https":
        labels["__scheme__"] = scheme
    if path:
        labels["__metrics_path__"] = f"{path}/metrics"
    return labels
