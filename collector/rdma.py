"""The RDMA ports of this node and the network devices that belong to them, as sysfs lists them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from everstep.collector.pseudo_files import SYS, label, names_in

BYTE_COUNTERS = ("port_rcv_data", "port_xmit_data")
_READS_BETWEEN_SCANS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaPort:
    """`counters` are the paths of the port's counter files by name, of `counters/` before `hw_counters/`."""

    device: str
    port: str
    folder: str
    counters: dict[str, str]


class RdmaPorts:
    """Scanned anew every few reads: a node has dozens of counter files, and devices seldom come and go."""

    def __init__(self, sys: Path = SYS) -> None:
        self._root = f"{sys}/class/infiniband"
        self._ports: tuple[RdmaPort, ...] = ()
        self._netdevs: frozenset[str] = frozenset()
        self._reads = 0

    def ports(self) -> tuple[RdmaPort, ...]:
        self._refresh()
        return self._ports

    def netdevs(self) -> frozenset[str]:
        """Labels of network devices whose bytes the RDMA counters tell; a device without such counters keeps its own.

        Folders are listed and no counter is read, so that a driver that hangs does not take the host's metrics along.
        """
        self._refresh()
        return self._netdevs

    def _refresh(self) -> None:
        if self._reads % _READS_BETWEEN_SCANS == 0:
            self._ports = tuple(_scan(self._root))
            counted = {port.device for port in self._ports if _counts_bytes(port)}
            self._netdevs = frozenset(
                label(netdev) for device in counted for netdev in names_in(f"{self._root}/{device}/device/net")
            )
        self._reads += 1


def _scan(root: str) -> Iterator[RdmaPort]:
    for device in names_in(root):
        for port in names_in(f"{root}/{device}/ports"):
            folder = f"{root}/{device}/ports/{port}"
            counters = {name: f"{folder}/{kind}/{name}" for kind in _KINDS for name in names_in(f"{folder}/{kind}")}
            yield RdmaPort(device=device, port=port, folder=folder, counters=counters)


_KINDS = ("hw_counters", "counters")  # the later one wins


def _counts_bytes(port: RdmaPort) -> bool:
    return any(name in port.counters for name in BYTE_COUNTERS)
