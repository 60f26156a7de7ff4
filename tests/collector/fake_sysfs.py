"""Prepared procfs and sysfs trees: what real drivers write, in files of a test's own folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from everstep.collector.samples import Sample

COUNTERS = {
    "port_xmit_data": "1000000",
    "port_rcv_data": "2000000",
    "symbol_error": "3",
    "link_downed": "2",
    "link_error_recovery": "1",
    "port_rcv_errors": "7",
    "port_xmit_discards": "11",
}
HW_COUNTERS = {"out_of_sequence": "13", "local_ack_timeout_err": "17"}


def write_tree(root: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def rdma_device(
    device: str,
    netdev: str = "",
    state: str = "4: ACTIVE",
    rate: str = "400 Gb/sec (4X NDR)",
    counters: Mapping[str, str] = COUNTERS,
    hw_counters: Mapping[str, str] = HW_COUNTERS,
) -> dict[str, str | bytes]:
    """Files of an adapter with one port, below a sysfs root."""
    top = f"class/infiniband/{device}"
    port = f"{top}/ports/1"
    files: dict[str, str | bytes] = {
        f"{top}/board_id": "MT_0000000838\n",
        f"{top}/fw_ver": "28.39.1002\n",
        f"{top}/hca_type": "MT4129\n",
        f"{port}/state": f"{state}\n",
        f"{port}/phys_state": "5: LinkUp\n",
        f"{port}/rate": f"{rate}\n",
        f"{port}/link_layer": "InfiniBand\n",
    }
    files |= {f"{port}/counters/{name}": f"{value}\n" for name, value in counters.items()}
    files |= {f"{port}/hw_counters/{name}": f"{value}\n" for name, value in hw_counters.items()}
    if netdev:
        files[f"{top}/device/net/{netdev}/mtu"] = "4092\n"
    return files


def values(samples: Iterable[Sample]) -> dict[tuple[str, ...], float]:
    """By metric name with its suffix, then label values. A series that comes twice fails."""
    found: dict[tuple[str, ...], float] = {}
    for sample in samples:
        key = (sample.metric + sample.suffix, *(value for _, value in sample.labels))
        assert key not in found, key
        found[key] = sample.value
    return found
