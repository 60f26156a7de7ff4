"""Compose's own files on Debian's servers: only host names become loopback ports and mounts become folders.

One agent, the service, Prometheus and Alertmanager; the spare and the other agents are down, as in a bad morning.
"""

import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from monitoring import alertmanager, found, free_port, get, prometheus, running, until

from everstep.alertrules.build import GENERATED, RULE_FILES
from everstep.core.settings import load

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "compose"
HOSTS = {
    "service": 9800,
    "prometheus": 9090,
    "alertmanager": 9093,
    **{f"agent-{number}": 9810 for number in range(4)},
}
WITHIN_S = 60.0


class Stack:
    """The files in a folder that keeps the repository's layout, so that relative rule files resolve the same."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {host: free_port() for host in HOSTS}
        self.token = folder / "token"
        self.token.write_text("compose-token")
        shutil.copytree(COMPOSE / "prometheus", folder / "compose/prometheus")
        shutil.copytree(COMPOSE / "everstep", folder / "compose/everstep")
        shutil.copytree(GENERATED, folder / "alertrules/generated")
        for path in [*folder.rglob("*.yml")]:
            path.write_text(self._moved(path.read_text()))

    def _moved(self, text: str) -> str:
        for host, port in HOSTS.items():
            text = text.replace(f"{host}:{port}", f"127.0.0.1:{self.ports[host]}")
        for name in ("service", "agent-0"):
            text = text.replace(f"host: 0.0.0.0, port: {HOSTS[name]}", f"host: 127.0.0.1, port: {self.ports[name]}")
        for mount in ("/var/lib/everstep-job", "/var/lib/everstep", "/dev/shm/everstep"):  # noqa: S108 - replaced
            text = text.replace(mount, str(self.folder / mount.strip("/").replace("/", "-")))
        text = text.replace("/etc/everstep", str(self.folder / "compose/everstep"))
        return text.replace("/run/secrets/everstep_token", str(self.token))

    def url(self, host: str) -> str:
        return f"http://127.0.0.1:{self.ports[host]}"

    def everstep(self, command: str, config: str) -> list[str]:
        path = self.folder / "compose/everstep" / config
        return [sys.executable, "-m", "everstep.cli.main", command, "--config", str(path)]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("compose")
    made = Stack(folder)
    environment = yaml.safe_load((COMPOSE / "docker-compose.yml").read_text())["services"]["agent-0"]["environment"]
    with ExitStack() as running_servers, pytest.MonkeyPatch.context() as patch:
        start = running_servers.enter_context
        start(alertmanager(folder / "alertrules/generated/alertmanager.yml", folder, port=made.ports["alertmanager"]))
        start(running(made.everstep("serve", "service.yml"), folder / "service.log", f"{made.url('service')}/readyz"))
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setenv("EVERSTEP_AGENT__LOG_DIR", str(folder / "log"))
        patch.delenv("GLOO_SOCKET_IFNAME", raising=False)
        start(running(made.everstep("agent", "agent.yml"), folder / "agent.log", f"{made.url('agent-0')}/healthz"))
        start(prometheus(folder / "compose/prometheus/prometheus.yml", folder, port=made.ports["prometheus"]))
        yield made


def test_prometheus_has_every_rule_file_of_the_stack(stack: Stack) -> None:
    groups = get(f"{stack.url('prometheus')}/api/v1/rules")["data"]["groups"]
    loaded = {Path(group["file"]).name for group in groups}
    assert loaded == set(RULE_FILES) - {"compat.yml"}


def test_prometheus_scrapes_service_and_agent_with_their_labels(stack: Stack) -> None:
    url = stack.url("prometheus")
    agent = 'up{job="everstep-agent",cluster="demo",node="node-0",rack="rack-0"} == 1'
    until("the agent's scrape", lambda: found(url, agent), within_s=WITHIN_S)
    until(
        "the service's scrape", lambda: found(url, 'up{job="everstep-service",cluster="demo"} == 1'), within_s=WITHIN_S
    )
    until("a host metric", lambda: found(url, 'everstep_host_memory_available_bytes{node="node-0"}'), within_s=WITHIN_S)


def test_the_agent_reaches_the_service_with_its_token(stack: Stack) -> None:
    until(
        "a push of node-0",
        lambda: 'everstep_agent_up{node="node-0"} 1.0' in httpx.get(f"{stack.url('service')}/metrics", timeout=5).text,
        within_s=WITHIN_S,
    )


def test_prometheus_reaches_alertmanager(stack: Stack) -> None:
    until("Watchdog in Alertmanager", lambda: bool(_alerts(stack, "Watchdog")), within_s=WITHIN_S)


def test_alertmanager_reaches_the_service_with_its_token(stack: Stack) -> None:
    labels = {"alertname": "GpuMissing", "severity": "critical", "fault": "F01", "cluster": "demo", "node": "node-7"}
    answer = httpx.post(f"{stack.url('alertmanager')}/api/v2/alerts", json=[{"labels": labels}], timeout=5)
    assert answer.status_code == 200, answer.text
    until("an incident", lambda: bool(_told(stack, "F01")), within_s=WITHIN_S)
    (incident,) = _told(stack, "F01")
    assert incident["causes"][0]["entity"] == {"kind": "node", "name": "node-7"}


def test_the_service_is_pointed_at_the_others(stack: Stack) -> None:
    """Its own verdicts on their way to Alertmanager: `tests/e2e/test_alert_path.py`, which has a job to break."""
    service = load(stack.folder / "compose/everstep/service.yml").service
    assert service.alertmanager_url == stack.url("alertmanager")
    assert service.prometheus_url == stack.url("prometheus")


def test_the_service_says_nothing_of_missing_files_or_refused_tokens(stack: Stack) -> None:
    for log in ("service.log", "agent.log"):
        text = (stack.folder / log).read_text()
        assert "Traceback" not in text
        assert " 401" not in text
        assert " 403" not in text


def _alerts(stack: Stack, name: str) -> list[dict[str, Any]]:
    alerts: list[dict[str, Any]] = get(f"{stack.url('alertmanager')}/api/v2/alerts")
    return [alert for alert in alerts if alert["labels"]["alertname"] == name]


def _told(stack: Stack, fault: str) -> list[dict[str, Any]]:
    """Incidents that came by the webhook; the agents that are down bring some of their own."""
    incidents: list[dict[str, Any]] = get(f"{stack.url('service')}/api/v1/incidents")["incidents"]
    return [one for one in incidents if one["id"].startswith("alert-") and one["causes"][0]["fault"] == fault]
