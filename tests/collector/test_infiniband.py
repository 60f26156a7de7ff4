from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out

from fake_sysfs import COUNTERS, rdma_device, values, write_tree

from everstep.collector.host import Network
from everstep.collector.infiniband import InfiniBand
from everstep.collector.rdma import _READS_BETWEEN_SCANS
from everstep.core.metrics import METRIC_BY_NAME
from everstep.core.metrics.system import PORT_ERROR_KINDS

BYTES, RDMA, ERRORS = "everstep_net_bytes_total", "everstep_rdma_bytes_total", "everstep_net_port_errors_total"
RATE = "everstep_net_link_rate_bytes_per_second"
NET_DEV = "a\nb\n    lo: 9 0 0 0 0 0 0 0 9 0\n   ib0: 5 0 0 0 0 0 0 0 6 0\n  eth0: 7 0 0 0 0 0 0 0 8 0\n"


def test_a_port_in_the_units_of_the_table(tmp_path: Path) -> None:
    write_tree(tmp_path, rdma_device("mlx5_0"))
    found = values(InfiniBand(tmp_path).collect())
    errors = (3, 2, 1, 7, 11, 13, 17)
    assert found == {
        (BYTES, "mlx5_0", "1", "receive"): 8e6,
        (BYTES, "mlx5_0", "1", "transmit"): 4e6,
        (RDMA, "mlx5_0", "1", "receive"): 8e6,
        (RDMA, "mlx5_0", "1", "transmit"): 4e6,
        (RATE, "mlx5_0", "1"): 5e10,
        **{(ERRORS, "mlx5_0", "1", kind): count for kind, count in zip(PORT_ERROR_KINDS, errors, strict=True)},
    }


def test_labels_are_those_of_the_metric_table(tmp_path: Path) -> None:
    write_tree(tmp_path, rdma_device("mlx5_0"))
    for one in InfiniBand(tmp_path).collect():
        assert tuple(name for name, _ in one.labels) == METRIC_BY_NAME[one.metric].label_names


def test_a_port_that_is_down_still_reports(tmp_path: Path) -> None:
    write_tree(tmp_path, rdma_device("mlx5_0", state="1: DOWN", rate="2.5 Gb/sec (1X SDR)"))
    found = values(InfiniBand(tmp_path).collect())
    assert found[(RATE, "mlx5_0", "1")] == 2.5e9 / 8
    assert found[(ERRORS, "mlx5_0", "1", "link_downed")] == 2


@pytest.mark.parametrize("text", ["N/A (not supported)", "N/A (no PMA)", "", "12x", "-4", "9" * 5000, "٣"])
def test_what_is_no_count_yields_nothing(tmp_path: Path, text: str) -> None:
    write_tree(tmp_path, rdma_device("mlx5_0", rate=text, counters={**COUNTERS, "port_xmit_data": text}))
    found = values(InfiniBand(tmp_path).collect())
    assert (BYTES, "mlx5_0", "1", "transmit") not in found
    assert (RATE, "mlx5_0", "1") not in found
    assert found[(BYTES, "mlx5_0", "1", "receive")] == 8e6


def test_counters_that_the_hardware_lacks_yield_nothing(tmp_path: Path) -> None:
    write_tree(tmp_path, rdma_device("efa_0", counters={}, hw_counters={"rx_bytes": "1"}))
    assert set(values(InfiniBand(tmp_path).collect())) == {(RATE, "efa_0", "1")}


def test_a_read_that_the_driver_refuses_yields_nothing(tmp_path: Path) -> None:
    write_tree(tmp_path, rdma_device("mlx5_0"))
    counter = tmp_path / "class/infiniband/mlx5_0/ports/1/counters/symbol_error"
    counter.unlink()
    counter.mkdir()  # reading it is an error of the system call, as EINVAL of a driver is
    found = values(InfiniBand(tmp_path).collect())
    assert (ERRORS, "mlx5_0", "1", "symbol") not in found
    assert len(found) == 11


def test_rubbish_and_foreign_names_disturb_nobody(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {
            **rdma_device("mlx5_0"),
            **rdma_device('纤维"\n{}', counters={"link_downed": "1"}, hw_counters={}),
            "class/infiniband/mlx5_0/ports/1/counters/link_downed": bytes(range(256)),
            "class/infiniband/file_not_folder": "x",
        },
    )
    (tmp_path / "class/infiniband" / b"\xff".decode(errors="surrogateescape") / "ports").mkdir(parents=True)
    found = values(InfiniBand(tmp_path).collect())
    assert (ERRORS, "mlx5_0", "1", "link_downed") not in found
    assert found[(BYTES, "mlx5_0", "1", "receive")] == 8e6
    assert found[(ERRORS, '纤维"\n{}', "1", "link_downed")] == 1


def test_a_device_that_vanishes_and_one_that_comes(tmp_path: Path) -> None:
    write_tree(tmp_path, rdma_device("mlx5_0"))
    source = InfiniBand(tmp_path)
    assert len(list(source.collect())) == 12
    (tmp_path / "class/infiniband/mlx5_0").rename(tmp_path / "gone")
    assert list(source.collect()) == []
    write_tree(tmp_path, rdma_device("mlx5_1"))
    for _ in range(_READS_BETWEEN_SCANS):
        found = values(source.collect())
    assert (BYTES, "mlx5_1", "1", "receive") in found


def test_no_port_counts_under_two_names(tmp_path: Path) -> None:
    write_tree(tmp_path, {**rdma_device("mlx5_0", netdev="ib0"), "net/dev": NET_DEV})
    assert values(Network(tmp_path, tmp_path).collect()) == {
        (BYTES, "eth0", "", "receive"): 7,
        (BYTES, "eth0", "", "transmit"): 8,
    }


def test_a_netdev_counts_itself_where_its_rdma_device_counts_no_bytes(tmp_path: Path) -> None:
    write_tree(tmp_path, {**rdma_device("efa_0", netdev="ib0", counters={}), "net/dev": NET_DEV})
    assert (BYTES, "ib0", "", "receive") in values(Network(tmp_path, tmp_path).collect())


def test_a_node_without_rdma(tmp_path: Path) -> None:
    assert list(InfiniBand(tmp_path / "none").collect()) == []
