"""Series of other exporters come out with our names, units and labels: every row of the mapping, through promtool."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from everstep.alertrules.build import GENERATED
from everstep.core.metrics import METRIC_BY_NAME
from everstep.core.metrics.foreign import DCGM, FOREIGN, GPUD, HINTS, NODE_EXPORTER, SLURM, Foreign

DCGM_SPELLINGS = ({"UUID": "u0", "Hostname": "n1"}, {"uuid": "u0", "hostname": "n1"}, {"gpu_uuid": "u0", "node": "n1"})


def _labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{key}="{value}"' for key, value in sorted(labels.items())) + "}"


def _test(row: Foreign, theirs: dict[str, str], ours: dict[str, str]) -> dict[str, Any]:
    """One sample of 40 (and 100 of the second operand) through the rule of the row."""
    value = (40 + (100 if row.plus else 0)) / (100 if row.divided_by else 1) * row.factor
    second = row.plus or row.divided_by
    return {
        "interval": "15s",
        "input_series": [
            {"series": row.theirs + _labels(theirs), "values": "40x10"},
            *([{"series": second + _labels(theirs), "values": "100x10"}] if second else []),
        ],
        "promql_expr_test": [
            {
                "expr": f"{row.ours}{_labels(dict(row.labels))}",
                "eval_time": "1m",
                "exp_samples": [{"labels": row.ours + _labels(ours), "value": value}],
            }
        ],
    }


def _run(promtool: str, folder: Path, tests: list[dict[str, Any]]) -> None:
    path = folder / "test.yml"
    path.write_text(
        json.dumps({"rule_files": [str(GENERATED / "compat.yml")], "evaluation_interval": "15s", "tests": tests})
    )
    done = subprocess.run(
        [promtool, "test", "rules", str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("spelling", DCGM_SPELLINGS, ids=["upper", "lower", "gpu_uuid"])
def test_dcgm(spelling: dict[str, str], promtool: str, tmp_path: Path) -> None:
    theirs = {"cluster": "c1", "gpu": "3", "pod": "worker-0", "modelName": "H200", **spelling}
    ours = {"cluster": "c1", "node": "n1", "gpu": "3", "uuid": "u0"}
    _run(promtool, tmp_path, [_test(row, theirs, ours | dict(row.labels)) for row in DCGM])


def test_a_gpu_that_two_pods_report_is_one(promtool: str, tmp_path: Path) -> None:
    both = [f'DCGM_FI_DEV_POWER_USAGE{{cluster="c1",Hostname="n1",UUID="u0",gpu="0",pod="{pod}"}}' for pod in ("a", "")]
    test = {
        "interval": "15s",
        "input_series": [{"series": series, "values": "400x10"} for series in both],
        "promql_expr_test": [
            {
                "expr": "everstep_gpu_power_watts",
                "eval_time": "1m",
                "exp_samples": [
                    {"labels": 'everstep_gpu_power_watts{cluster="c1",gpu="0",node="n1",uuid="u0"}', "value": 400}
                ],
            }
        ],
    }
    _run(promtool, tmp_path, [test])


def test_node_exporter_gpud_and_slurm(promtool: str, tmp_path: Path) -> None:
    tests = []
    for row in (*NODE_EXPORTER, *GPUD, *SLURM):
        metric = METRIC_BY_NAME[row.ours]
        own = {name: "x" for name in metric.label_names if name not in dict(row.labels)}
        back = {ours: theirs for theirs, ours in row.renamed}
        theirs = {"cluster": "c1", "node": "n1", **{back.get(name, name): "x" for name in own}}
        where = {"cluster": "c1"} if row in SLURM else {"cluster": "c1", "node": "n1"}
        tests.append(_test(row, theirs, where | own | dict(row.labels)))
    _run(promtool, tmp_path, tests)


def test_a_gpu_that_two_exporters_report_is_one(promtool: str, tmp_path: Path) -> None:
    dcgm = 'DCGM_FI_DEV_POWER_USAGE{cluster="c1",Hostname="n1",UUID="u0",gpu="0"}'
    gpud = [f'accelerator_nvidia_power_current_usage_milli_watts{{cluster="c1",node="n1",uuid="u{n}"}}' for n in (0, 1)]
    test = {
        "interval": "15s",
        "input_series": [
            {"series": dcgm, "values": "400x10"},
            *({"series": series, "values": "390000x10"} for series in gpud),
        ],
        "promql_expr_test": [
            {
                "expr": "everstep_gpu_power_watts",
                "eval_time": "1m",
                "exp_samples": [
                    {"labels": 'everstep_gpu_power_watts{cluster="c1",gpu="0",node="n1",uuid="u0"}', "value": 400},
                    {"labels": 'everstep_gpu_power_watts{cluster="c1",node="n1",uuid="u1"}', "value": 390},
                ],
            }
        ],
    }
    _run(promtool, tmp_path, [test])


def test_loopback_and_ip_over_infiniband_are_left_out(promtool: str, tmp_path: Path) -> None:
    theirs = [f'node_network_receive_bytes_total{{node="n1",device="{device}"}}' for device in ("lo", "ib0", "ens1")]
    ours = 'everstep_net_bytes_total{device="ens1",direction="receive",node="n1"}'
    test = {
        "interval": "15s",
        "input_series": [{"series": series, "values": "40x10"} for series in theirs],
        "promql_expr_test": [
            {
                "expr": "everstep_net_bytes_total",
                "eval_time": "1m",
                "exp_samples": [{"labels": ours, "value": 40}],
            }
        ],
    }
    _run(promtool, tmp_path, [test])


@pytest.mark.parametrize("row", FOREIGN, ids=lambda row: f"{row.theirs}-{row.ours}")
def test_row_points_into_the_table(row: Foreign) -> None:
    metric = METRIC_BY_NAME[row.ours]
    for name, value in row.labels:
        label = next(label for label in metric.labels if label.name == name)
        assert value in label.values
    assert row.theirs not in {hint.theirs for hint in HINTS}
