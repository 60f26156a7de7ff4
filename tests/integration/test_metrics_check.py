"""`everstep metrics check` against a real Prometheus that holds native and foreign series, and whole 27."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from monitoring import prometheus, remote_write

from everstep.cli.main import main
from everstep.core.metrics import CORE_METRICS
from everstep.core.metrics.coverage import series_of
from everstep.core.remote_write import Series, series

pytestmark = pytest.mark.integration

NATIVE = ("everstep_train_loss", "everstep_train_step_duration_seconds_count")
FOREIGN = {
    "DCGM_FI_DEV_GPU_TEMP": "dcgm",
    "DCGM_FI_DEV_XID_ERRORS": "dcgm",
    "node_infiniband_link_downed_total": "node",
    "node_memory_MemAvailable_bytes": "node",
    "slurm_gpus_alloc": "slurm",
}


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "prometheus.yml").write_text("{}")
    with prometheus(tmp_path / "prometheus.yml", tmp_path) as url:
        remote_write(url, _mix(time.time()))
        yield url


def _mix(now: float) -> Iterator[Series]:
    for name in NATIVE:
        yield series(name, {"job": "everstep-agent", "train_job": "demo"}, [(now - 20, 1.0)])
    for name, job in FOREIGN.items():
        for gpu in ("0", "1"):
            yield series(name, {"job": job, "gpu": gpu}, [(now - 40, 1.0)])
    yield series("everstep_gpu_power_watts", {"gpu": "0", "uuid": "GPU-0"}, [(now, 400.0)])


def _check(url: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main(["metrics", "check", "--prometheus", url, "--json"])
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] == (code == 0)
    return code, {metric["name"]: metric for metric in said["metrics"]}


def test_each_metric_is_judged_by_what_is_there(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = _check(filled, capsys)
    assert code == 1
    judged = {name: metric["presence"] for name, metric in found.items() if metric["presence"] != "missing"}
    assert judged == {
        "everstep_gpu_temperature_celsius": "mapped",
        "everstep_gpu_power_watts": "native",
        "everstep_gpu_xid_errors_total": "partial",
        "everstep_train_loss": "native",
        "everstep_train_step_duration_seconds": "native",
        "everstep_net_port_errors_total": "mapped",
        "everstep_host_memory_available_bytes": "mapped",
        "everstep_cluster_gpus": "partial",
    }
    (through,) = found["everstep_gpu_temperature_celsius"]["through"]
    assert (through["exporter"], through["job"], through["num_series"]) == ("dcgm-exporter", "dcgm", 2)
    assert 40 <= through["newest_age_s"] < 160
    assert found["everstep_gpu_power_watts"]["through"][0]["job"] == ""
    assert any("commented out by default" in mend for mend in found["everstep_gpu_ecc_errors_total"]["mends"])


def test_the_words_say_the_same(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "check", "--prometheus", filled]) == 1
    out = capsys.readouterr().out
    assert "DCGM_FI_DEV_GPU_TEMP of dcgm-exporter, job dcgm, 2 series, newest " in out
    assert "no job (recorded or pushed), 1 series" in out
    assert out.splitlines()[-1] == "6 of 27 are there (3 native, 3 mapped, 2 partial, 19 missing)"


def test_all_27_end_with_0(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    now = time.time()
    remote_write(filled, [series(series_of(metric), {"job": "all"}, [(now, 1.0)]) for metric in CORE_METRICS])
    code, found = _check(filled, capsys)
    assert code == 0
    assert {metric["presence"] for metric in found.values()} == {"native"}
