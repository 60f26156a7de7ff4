"""RDMA ports through sysfs: bytes, errors and the negotiated rate. What this hardware does not count yields nothing.

A port that is down still reports: its errors and its rate say why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from everstep.collector.pseudo_files import SYS, label, read_int, read_text
from everstep.collector.rdma import RdmaPort, RdmaPorts
from everstep.collector.samples import Labels, Sample

WORD_BYTES = 4  # the data counters count 32-bit words
DATA = {"receive": "port_rcv_data", "transmit": "port_xmit_data"}
ERRORS = {
    "symbol": "symbol_error",
    "link_downed": "link_downed",
    "link_recovery": "link_error_recovery",
    "receive": "port_rcv_errors",
    "transmit_discard": "port_xmit_discards",
    "out_of_sequence": "out_of_sequence",
    "ack_timeout": "local_ack_timeout_err",
}
_RATE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) Gb/sec\b")


class InfiniBand:
    """All ports of all devices below `<sys>/class/infiniband`; RoCE ports stand there too."""

    def __init__(self, sys: Path = SYS) -> None:
        self._ports = RdmaPorts(sys)

    def collect(self) -> Iterable[Sample]:
        for port in self._ports.ports():
            labels = (("device", label(port.device)), ("port", label(port.port)))
            yield from _bytes(port, labels)
            yield from _errors(port, labels)
            yield from _rate(port, labels)


def _counter(port: RdmaPort, name: str) -> int | None:
    path = port.counters.get(name)
    value = read_int(path) if path is not None else None
    return value if value is not None and value >= 0 else None


def _bytes(port: RdmaPort, labels: Labels) -> Iterator[Sample]:
    for direction, name in DATA.items():
        words = _counter(port, name)
        if words is None:
            continue
        for metric in ("everstep_net_bytes_total", "everstep_rdma_bytes_total"):
            yield Sample(metric=metric, labels=(*labels, ("direction", direction)), value=float(words * WORD_BYTES))


def _errors(port: RdmaPort, labels: Labels) -> Iterator[Sample]:
    for kind, name in ERRORS.items():
        errors = _counter(port, name)
        if errors is not None:
            yield Sample(metric="everstep_net_port_errors_total", labels=(*labels, ("kind", kind)), value=float(errors))


def _rate(port: RdmaPort, labels: Labels) -> Iterator[Sample]:
    found = _RATE.match(read_text(f"{port.folder}/rate"))
    if found:
        yield Sample(metric="everstep_net_link_rate_bytes_per_second", labels=labels, value=float(found[1]) * 1e9 / 8)
