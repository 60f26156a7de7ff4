"""Gang placement: all ranks of a job or none, in the tightest domain, survivors untouched.

A domain is a rack within a leaf; ranks that share one share its switches. Hosts that are held in reserve are used only
when the others do not suffice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from everstep.core.engine import RankPlacement
from everstep.core.errors import EverstepError


class PlacementError(EverstepError):
    """There is no room; `mend` says what would make some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A node that could take ranks; `free` slots count those that the placed job itself holds."""

    name: str
    rack: str = "rack-0"
    leaf: str = "leaf-0"
    free: int = 1
    spare: bool = False


def gang(world_size: int, hosts: Iterable[Host]) -> tuple[RankPlacement, ...]:
    """Ranks 0 to world_size - 1 in the smallest domain that holds them. Raises `PlacementError`.

    >>> hosts = [Host(name="a", rack="r0"), Host(name="b", rack="r1", free=2), Host(name="c", rack="r1")]
    >>> [placement.node for placement in gang(3, hosts)]
    ['b', 'b', 'c']
    >>> [placement.node for placement in gang(1, hosts)]
    ['a']
    """
    hosts = list(hosts)
    regular = [host for host in hosts if not host.spare]
    chosen = _tightest(world_size, regular) or _tightest(world_size, hosts)
    if chosen is None:
        total = sum(host.free for host in hosts)
        raise PlacementError(
            f"{world_size} ranks do not fit into {total} free slots on {len(hosts)} nodes",
            mend="uncordon or add nodes, or lower world_size",
        )
    nodes = [host.name for host in chosen for _ in range(host.free)][:world_size]
    return _numbered(dict(enumerate(nodes)))


def replace_nodes(
    placements: Sequence[RankPlacement], bad: Collection[str], hosts: Iterable[Host]
) -> tuple[RankPlacement, ...]:
    """Move the ranks of bad nodes to other hosts, same rack preferred; everybody else stays. Raises `PlacementError`.

    >>> placed = gang(2, [Host(name="a"), Host(name="b")])
    >>> hosts = [Host(name="a"), Host(name="b"), Host(name="s", spare=True)]
    >>> [placement.node for placement in replace_nodes(placed, {"b"}, hosts)]
    ['a', 's']
    """
    by_name = {host.name: host for host in hosts}
    nodes = {placement.rank: placement.node for placement in placements}
    homeless = [rank for rank, node in sorted(nodes.items()) if node in bad or node not in by_name]
    stayed = {rank: node for rank, node in nodes.items() if rank not in homeless}
    for rank in homeless:
        home = by_name.get(nodes[rank])
        stayed[rank] = _substitute(nodes[rank], home, stayed, bad, by_name).name
    return _numbered(stayed)


def migrate(
    placements: Sequence[RankPlacement], rank: int, node: str, hosts: Iterable[Host]
) -> tuple[RankPlacement, ...]:
    """Move one rank to a node. Raises `PlacementError` when the rank is unknown or the node has no room.

    >>> placed = gang(2, [Host(name="a"), Host(name="b")])
    >>> [one.node for one in migrate(placed, 1, "s", [Host(name="s")])]
    ['a', 's']
    """
    nodes = {placement.rank: placement.node for placement in placements}
    if rank not in nodes:
        raise PlacementError(f"the job has no rank {rank}", mend=f"its ranks are 0 to {len(nodes) - 1}")
    del nodes[rank]
    host = next((host for host in hosts if host.name == node), None)
    if host is None or list(nodes.values()).count(node) >= host.free:
        raise PlacementError(f"node {node} has no free slot for rank {rank}", mend="choose a healthy node with room")
    return _numbered({**nodes, rank: node})


def target_for(placements: Sequence[RankPlacement], rank: int, hosts: Iterable[Host]) -> str:
    """The node that a rank would best move to, its own left out. Raises `PlacementError`.

    >>> placed = gang(2, [Host(name="a"), Host(name="b")])
    >>> target_for(placed, 1, [Host(name="a"), Host(name="b"), Host(name="s", spare=True)])
    's'
    """
    by_name = {host.name: host for host in hosts}
    nodes = {placement.rank: placement.node for placement in placements}
    old = nodes.pop(rank, "")
    return _substitute(old, by_name.get(old), nodes, {old}, by_name).name


def resize(placements: Sequence[RankPlacement], world_size: int, hosts: Iterable[Host]) -> tuple[RankPlacement, ...]:
    """Fewer ranks keep the first usable nodes, more ranks are added near them. Raises `PlacementError`.

    >>> placed = gang(3, [Host(name=name) for name in "abc"])
    >>> [one.node for one in resize(placed, 2, [Host(name="a"), Host(name="c")])]
    ['a', 'c']
    """
    if world_size < 1:
        raise PlacementError(f"a job cannot have {world_size} ranks", mend="ask for at least one")
    by_name = {host.name: host for host in hosts}
    usable = [placement.node for placement in sorted(placements, key=_rank) if placement.node in by_name][:world_size]
    nodes = dict(enumerate(usable))
    for rank in range(len(nodes), world_size):
        neighbour = by_name[nodes[rank - 1]] if rank else None
        nodes[rank] = _substitute(neighbour.name if neighbour else "", neighbour, nodes, (), by_name).name
    return _numbered(nodes)


def _tightest(world_size: int, hosts: Sequence[Host]) -> list[Host] | None:
    """Hosts of the smallest fitting domain, fullest first; None when even all together are too small."""
    for key in (_rack, _leaf, _everywhere):
        domains: dict[object, list[Host]] = {}
        for host in hosts:
            domains.setdefault(key(host), []).append(host)
        sizes = {domain: sum(host.free for host in members) for domain, members in domains.items()}
        fitting = [domain for domain, size in sizes.items() if size >= world_size]
        if fitting:
            best = min(fitting, key=lambda domain: (sizes[domain], str(domain)))
            return _packed(domains[best])
    return None


def _packed(hosts: Sequence[Host]) -> list[Host]:
    """Racks with most room first, so that few are used; reserve hosts last; names decide ties."""
    room: dict[object, int] = {}
    for host in hosts:
        room[_rack(host)] = room.get(_rack(host), 0) + host.free
    return sorted(hosts, key=lambda host: (host.spare, -room[_rack(host)], str(_rack(host)), -host.free, host.name))


def _substitute(
    old: str, home: Host | None, taken: Mapping[int, str], bad: Collection[str], hosts: Mapping[str, Host]
) -> Host:
    used = list(taken.values())
    free = [host for host in hosts.values() if host.name not in bad and used.count(host.name) < host.free]
    if not free:
        raise PlacementError(
            f"no free node can take over the rank of {old or 'the job'}", mend="uncordon a node or add a spare"
        )
    racks = {hosts[node].rack for node in used if node in hosts} if home is None else {home.rack}
    leaves = {hosts[node].leaf for node in used if node in hosts} if home is None else {home.leaf}
    return min(
        free,
        key=lambda host: (
            host.rack not in racks,
            host.leaf not in leaves,
            not host.spare,
            host.name in used,
            host.name,
        ),
    )


def _numbered(nodes: Mapping[int, str]) -> tuple[RankPlacement, ...]:
    """Placements in rank order with local ranks counted up on each node."""
    seen: dict[str, int] = {}
    placed = []
    for rank, node in sorted(nodes.items()):
        placed.append(RankPlacement(rank=rank, node=node, local_rank=seen.get(node, 0)))
        seen[node] = seen.get(node, 0) + 1
    return tuple(placed)


def _rank(placement: RankPlacement) -> int:
    return placement.rank


def _rack(host: Host) -> object:
    return host.leaf, host.rack


def _leaf(host: Host) -> object:
    return host.leaf


def _everywhere(host: Host) -> object:
    del host
    return ""
