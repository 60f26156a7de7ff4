from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out

from fake_sysfs import rdma_device, values, write_tree

from everstep.collector.link_rates import LinkRates

RATE = "everstep_net_link_rate_bytes_per_second"


def _device(name: str, speed: str, real: str = "device/vendor") -> dict[str, str | bytes]:
    return {f"class/net/{name}/speed": speed, **({f"class/net/{name}/{real}": "x"} if real else {})}


def test_hardware_and_bonds_tell_their_rate(tmp_path: Path) -> None:
    write_tree(tmp_path, {**_device("eth0", "100000\n"), **_device("bond0", "50000\n", "bonding/mode")})
    assert values(LinkRates(tmp_path).collect()) == {(RATE, "eth0", ""): 1.25e10, (RATE, "bond0", ""): 6.25e9}


def test_an_unknown_or_meaningless_rate_is_absent(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {
            **_device("down", "-1\n"),
            **_device("old", "4294967295\n"),
            **_device("none", "0\n"),
            **_device("rubbish", "\x00\n"),
            **_device("veth1", "10000\n", real=""),
            **_device("tun0", "10\n", real=""),
            "class/net/bonding_masters": "bond0\n",
        },
    )
    assert values(LinkRates(tmp_path).collect()) == {}


def test_a_port_of_an_rdma_device_is_left_to_it(tmp_path: Path) -> None:
    write_tree(tmp_path, {**rdma_device("mlx5_0", netdev="ib0"), **_device("ib0", "400000\n")})
    assert values(LinkRates(tmp_path).collect()) == {}
