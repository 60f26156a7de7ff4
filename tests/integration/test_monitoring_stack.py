"""The shipped configuration files on real servers: Prometheus takes all rules, every panel finds data, alerts arrive.

The data are one series for every row of the metric table and every closed label value, ten minutes long.
"""

import itertools
import json
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from everstep.alertrules.build import GENERATED, RULE_FILES
from everstep.core.metrics import METRICS, Metric, MetricKind
from everstep.core.remote_write import Series, series
from everstep.dashboards.build import JSON

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from monitoring import alertmanager as running_alertmanager
from monitoring import found, get, prometheus, remote_write, until

pytestmark = pytest.mark.integration

STEP_S, STEPS = 15, 40
OPEN_LABELS = {
    "train_job": ("demo",),
    "metric": ("everstep_train_loss", "everstep_train_gradient_norm"),
    "xid": ("79",),
    "device": ("mlx5_0",),
}
PANELS = [
    (path.stem, panel["title"], target["expr"])
    for path in sorted(JSON.glob("*.json"))
    for panel in json.loads(path.read_text())["panels"]
    for target in panel["targets"]
]


def _label_sets(metric: Metric) -> Iterator[dict[str, str]]:
    values = [label.values or OPEN_LABELS.get(label.name, ("0",)) for label in metric.labels]
    for combination in itertools.product(*values):
        labels = dict(zip(metric.label_names, combination, strict=True))
        yield {"cluster": "c1", "node": "n1", "rack": "r1", **labels}


def _bounds(metric: Metric) -> Iterator[tuple[str, dict[str, str]]]:
    """Series names of a metric and their further labels."""
    if metric.kind is not MetricKind.HISTOGRAM:
        yield metric.name, {}
        return
    for bound in (*(repr(bound) for bound in metric.buckets), "+Inf"):
        yield f"{metric.name}_bucket", {"le": bound}
    yield f"{metric.name}_sum", {}
    yield f"{metric.name}_count", {}


def _value(metric: Metric, at: float, index: int) -> float:
    if metric.name.endswith("timestamp_seconds"):
        return at
    if metric.kind in {MetricKind.COUNTER, MetricKind.HISTOGRAM}:
        return float(index)
    return min(1.0, metric.gate.high) if metric.gate.low <= 1 else metric.gate.low


def _demo_series(now: float) -> Iterator[Series]:
    times = [now - (STEPS - index) * STEP_S for index in range(STEPS + 1)]
    for metric in METRICS:
        for labels in _label_sets(metric):
            for name, more in _bounds(metric):
                samples = [(at, _value(metric, at, index)) for index, at in enumerate(times)]
                yield series(name, {**labels, **more}, samples)
    for job in ("everstep-agent", "everstep-service"):
        labels = {"job": job, "instance": f"{job}:1", "cluster": "c1", "node": "n1"}
        yield series("up", labels, [(at, 1.0) for at in times])


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus with our rules and the demo series; yields its address."""
    folder = tmp_path_factory.mktemp("prometheus")
    rules = [str(GENERATED / name) for name in RULE_FILES if name != "compat.yml"]
    config = folder / "prometheus.yml"
    settings = {"global": {"evaluation_interval": "1s", "scrape_interval": "1s"}, "rule_files": rules}
    config.write_text(yaml.safe_dump(settings))
    with prometheus(config, folder) as url:
        remote_write(url, _demo_series(time.time()))
        until("goodput record", lambda: found(url, "train_job:everstep_goodput:ratio3d"))
        until("a firing alert", lambda: found(url, 'ALERTS{alertname="GpuRowRemapFailure",alertstate="firing"}'))
        yield url


def _concrete(expr: str) -> str:
    for name, value in (("$__rate_interval", "1m"), ("$cluster", ".*"), ("$job", ".*"), ("$node", ".*")):
        expr = expr.replace(name, value)
    return expr


@pytest.mark.parametrize(("board", "title", "expr"), PANELS, ids=[f"{board}-{title}" for board, title, _ in PANELS])
def test_panel_finds_data(board: str, title: str, expr: str, filled: str) -> None:
    result = get(f"{filled}/api/v1/query", query=_concrete(expr))["data"]["result"]
    assert result, "the query returns nothing"
    assert any(entry["value"][1] not in {"NaN", "+Inf", "-Inf"} for entry in result)


def test_no_rule_fails_on_real_data(filled: str) -> None:
    groups = get(f"{filled}/api/v1/rules")["data"]["groups"]
    broken = {rule["name"]: rule["lastError"] for group in groups for rule in group["rules"] if rule.get("lastError")}
    assert not broken


class _Hook(HTTPServer):
    """Collects Alertmanager's webhook bodies and the authorization that came with them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _HookHandler)
        self.alerts: list[dict[str, Any]] = []
        self.authorization: set[str] = set()


class _HookHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, _Hook)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.alerts += body["alerts"]
        self.server.authorization.add(self.headers.get("Authorization", ""))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base class's name
        return


@pytest.fixture
def hook() -> Iterator[_Hook]:
    server = _Hook()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    thread.join(timeout=5)
    server.server_close()


@pytest.fixture
def alertmanager(hook: _Hook, tmp_path: Path) -> Iterator[str]:
    """The shipped configuration with only the webhook's address and token path exchanged."""
    token = tmp_path / "token"
    token.write_text("demo-token")
    text = (GENERATED / "alertmanager.yml").read_text()
    text = text.replace("http://service:9800", f"http://127.0.0.1:{hook.server_port}")
    text = text.replace("/run/secrets/everstep_token", str(token))
    config = tmp_path / "alertmanager.yml"
    config.write_text(text)
    with running_alertmanager(config, tmp_path) as url:
        yield url


def test_one_cause_reaches_the_service_once(alertmanager: str, hook: _Hook) -> None:
    node = {"cluster": "c1", "node": "n1", "component": "hardware"}
    alerts = [
        {"alertname": "NodeDown", "severity": "critical", "fault": "F18", **node},
        {"alertname": "GpuMissing", "severity": "critical", "fault": "F01", **node},
        {"alertname": "TargetDown", "severity": "warning", "fault": "F31", **node},
        {"alertname": "GpuMissing", "severity": "critical", "fault": "F01", **node, "node": "n2"},
        {"alertname": "QueueWaitLong", "severity": "info", "cluster": "c1"},
    ]
    answer = httpx.post(f"{alertmanager}/api/v2/alerts", json=[{"labels": labels} for labels in alerts], timeout=5)
    assert answer.status_code == 200, answer.text
    until("the webhook", lambda: len(hook.alerts) >= 2)
    arrived = {(alert["labels"]["alertname"], alert["labels"]["node"]) for alert in hook.alerts}
    assert arrived == {("NodeDown", "n1"), ("GpuMissing", "n2")}
    assert hook.authorization == {"Bearer demo-token"}
