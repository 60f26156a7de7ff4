"""Negotiated rates of ordinary network devices; RDMA ports tell theirs with their counters.

Only of hardware and bonds: a virtual device names a rate that means nothing (10 Gb/s a veth, 10 Mb/s a tunnel), and the
rate is the gate of the byte counters.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from everstep.collector.pseudo_files import SYS, label, names_in, read_int
from everstep.collector.rdma import RdmaPorts
from everstep.collector.samples import Sample

BYTES_PER_MEGABIT = 125_000
_UNKNOWN = 2**32 - 1  # how old kernels write -1


class LinkRates:
    """`<sys>/class/net/*/speed`, in megabits a second there."""

    def __init__(self, sys: Path = SYS) -> None:
        self._root = f"{sys}/class/net"
        self._rdma = RdmaPorts(sys)

    def collect(self) -> Iterable[Sample]:
        rdma = self._rdma.netdevs()
        for device in names_in(self._root):
            if label(device) in rdma or not self._is_real(device):
                continue
            megabits = read_int(f"{self._root}/{device}/speed")
            if megabits is not None and 0 < megabits != _UNKNOWN:
                yield Sample(
                    metric="everstep_net_link_rate_bytes_per_second",
                    labels=(("device", label(device)), ("port", "")),
                    value=float(megabits * BYTES_PER_MEGABIT),
                )

    def _is_real(self, device: str) -> bool:
        return any(Path(self._root, device, sign).exists() for sign in ("device", "bonding"))
