"""Every alert fires on its fault, stays silent before it, recovers after it, with the labels that routing relies on.

The cases are data (`*.yml` beside this file); each runs through `promtool test rules` against the generated rule files.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from everstep.alertrules.build import GENERATED, RULE_FILES, alerts

HERE = Path(__file__).parent
TARGET = {"cluster": "c1", "node": "n1", "rack": "r1"}
CASES: list[dict[str, Any]] = [
    case | {"file": f"{name}.yml"}
    for name in ("hardware", "training", "system", "service", "slo")
    for case in yaml.safe_load((HERE / f"{name}.yml").read_text())
]


def _series(selector: str) -> str:
    name, _, inner = selector.partition("{")
    given = dict(re.findall(r'(\w+)="([^"]*)"', inner))
    labels = ",".join(f'{key}="{value}"' for key, value in (TARGET | given).items())
    return f"{name}{{{labels}}}"


def _static_labels(case: dict[str, Any]) -> dict[str, str]:
    wanted = case["labels"].get("long")
    return next(
        rule.all_labels()
        for rule in alerts()
        if rule.name == case["alert"] and (wanted is None or dict(rule.labels)["long"] == wanted)
    )


def _test(case: dict[str, Any], given: dict[str, str], checks: list[tuple[str, bool]]) -> dict[str, Any]:
    labels = _static_labels(case) | case["labels"] | {"alertname": case["alert"], "alertstate": "firing"}
    one = ',long="' + labels["long"] + '"' if "long" in labels else ""
    firing = "ALERTS{" + ",".join(f'{key}="{value}"' for key, value in sorted(labels.items())) + "}"
    return {
        "interval": case.get("interval", "15s"),
        "input_series": [{"series": _series(name), "values": str(values)} for name, values in given.items()],
        "promql_expr_test": [
            {
                "expr": f'ALERTS{{alertname="{case["alert"]}",alertstate="firing"{one}}}',
                "eval_time": at,
                "exp_samples": [{"labels": firing, "value": 1}] if fires else [],
            }
            for at, fires in checks
        ],
    }


def _rule_files(case: dict[str, Any], folder: Path) -> list[str]:
    """The alert as generated, without its neighbours, and the recording rules if it stands on them: saves minutes."""
    groups = yaml.safe_load((GENERATED / case["file"]).read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"] if rule["alert"] == case["alert"]]
    alone = folder / "alert.yml"
    alone.write_text(json.dumps({"groups": [{"name": "alert", "rules": rules}]}))
    recorded = any(re.search(r"\w:everstep_", rule["expr"]) for rule in rules)
    return [*([str(GENERATED / "recording.yml")] if recorded else []), str(alone)]


def _run(promtool: str, folder: Path, case: dict[str, Any], tests: list[dict[str, Any]]) -> None:
    rules = _rule_files(case, folder)
    path = folder / "test.yml"
    interval = case.get("interval", "15s")
    path.write_text(json.dumps({"rule_files": rules, "evaluation_interval": interval, "tests": tests}))
    done = subprocess.run(
        [promtool, "test", "rules", str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("case", CASES, ids=[f"{case['alert']}-{index}" for index, case in enumerate(CASES)])
def test_alert(case: dict[str, Any], promtool: str, tmp_path: Path) -> None:
    checks = [(case["fires"], True)]
    if not case.get("always"):
        checks = [(case["silent"], False), *checks, (case["recovers"], False)]
    tests = [_test(case, case["input"], checks)]
    tests += [_test(case, quiet["input"], [(at, False) for at in quiet["at"]]) for quiet in case.get("quiet", ())]
    _run(promtool, tmp_path, case, tests)


def test_every_alert_has_a_case() -> None:
    assert {case["alert"] for case in CASES} == {rule.name for rule in alerts()}


def test_templates_name_only_labels_that_the_alert_has() -> None:
    labels: dict[str, set[str]] = {}
    for case in CASES:
        labels.setdefault(case["alert"], set(case["labels"]))
    for rule in alerts():
        used = set(re.findall(r"\$labels\.(\w+)", rule.summary + rule.description))
        assert used <= labels[rule.name], rule.name


def test_every_rule_file_is_accepted(promtool: str) -> None:
    files = [str(GENERATED / name) for name in RULE_FILES]
    done = subprocess.run(
        [promtool, "check", "rules", "--lint-fatal", *files], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
