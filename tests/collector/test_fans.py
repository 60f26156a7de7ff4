from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out

from fake_sysfs import values, write_tree

from everstep.collector.fans import Fans

FAN = "everstep_host_fan_speed_ratio"


def test_speed_over_maximum(tmp_path: Path) -> None:
    write_tree(
        tmp_path / "class/hwmon",
        {
            "hwmon0/name": "nct6798\n",
            "hwmon0/fan1_input": "4000\n",
            "hwmon0/fan1_max": "16000\n",
            "hwmon0/fan2_input": "0\n",
            "hwmon0/fan2_max": "16000\n",
            "hwmon0/pwm1": "255\n",
        },
    )
    assert values(Fans(tmp_path).collect()) == {(FAN, "nct6798/fan1"): 0.25, (FAN, "nct6798/fan2"): 0.0}


def test_without_a_maximum_or_a_number_there_is_no_ratio(tmp_path: Path) -> None:
    write_tree(
        tmp_path / "class/hwmon",
        {
            "hwmon0/fan1_input": "4000\n",
            "hwmon0/fan2_input": "4000\n",
            "hwmon0/fan2_max": "0\n",
            "hwmon0/fan3_input": b"\xff\x00",
            "hwmon0/fan3_max": "100\n",
            "hwmon1": "a file",
        },
    )
    assert values(Fans(tmp_path).collect()) == {}


def test_two_chips_of_one_name_stay_two(tmp_path: Path) -> None:
    fan = {"name": "gpu\n", "fan1_input": "5\n", "fan1_max": "10\n"}
    for chip in ("hwmon3", "hwmon4"):
        write_tree(tmp_path / "class/hwmon" / chip, dict(fan))
    assert set(values(Fans(tmp_path).collect())) == {(FAN, "gpu/fan1"), (FAN, "gpu/hwmon4/fan1")}
