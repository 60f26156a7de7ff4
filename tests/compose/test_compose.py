"""The compose stack's own files are valid, hardened and consistent with each other.

Debian's docker-compose carries the compose schema and checks a file against it without an engine; no container engine
is needed here. `tests/integration/test_monitoring_stack.py` starts the same configuration files for real.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from everstep.alertrules.build import GENERATED
from everstep.core.settings import load
from everstep.service.discovery import target_groups
from everstep.trainer.config import load as load_run

COMPOSE = Path(__file__).parents[2] / "compose"
STACK: dict[str, Any] = yaml.safe_load((COMPOSE / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = STACK["services"]
AGENTS = [name for name in SERVICES if name.startswith("agent-")]
each_service = pytest.mark.parametrize("name", SERVICES)


def _labels() -> dict[str, dict[str, str]]:
    """Scrape target to its labels, from the discovery files."""
    entries = yaml.safe_load((COMPOSE / "prometheus/targets/agents.yml").read_text())
    return {entry["targets"][0]: entry["labels"] for entry in entries}


def test_the_file_follows_the_compose_specification() -> None:
    checker = shutil.which("docker-compose")
    if checker is None:
        pytest.skip("NOT RUN: docker-compose is missing; install it with: apt-get install docker-compose")
    # Debian's 1.29 is older than the top-level `name`; everything else is checked as it stands.
    document = yaml.safe_dump({key: value for key, value in STACK.items() if key != "name"})
    done = subprocess.run(
        [checker, "--project-directory", str(COMPOSE), "-f", "-", "config", "-q"],
        input=document, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_stack_is_complete() -> None:
    assert set(SERVICES) == {"service", "prometheus", "alertmanager", "grafana", *AGENTS}
    assert len(AGENTS) == 4


@each_service
def test_service_is_hardened(name: str) -> None:
    service = SERVICES[name]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", service["user"]), "not root"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service


@each_service
def test_service_has_a_bounded_health_check(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] == "CMD"
    assert {"interval", "timeout", "retries"} <= set(check)


@each_service
def test_image_is_pinned(name: str) -> None:
    tag = SERVICES[name]["image"].rpartition(":")[2]
    assert re.fullmatch(r"v?\d+\.\d+\.\d+", tag)


@each_service
def test_ports_are_bound_to_loopback(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", ()))


@each_service
def test_mounted_files_exist(name: str) -> None:
    for mount in SERVICES[name].get("volumes", ()):
        source, target, *mode = mount.split(":")
        if source.startswith("."):
            assert (COMPOSE / source).exists(), mount
            assert mode == ["ro"], mount
        else:
            assert source in STACK["volumes"]
        assert target.startswith("/")


def test_secrets_are_files_that_git_never_sees() -> None:
    for name, secret in STACK["secrets"].items():
        assert secret == {"file": f"./secrets/{name}"}
    assert (COMPOSE / "secrets/.gitignore").read_text().split() == ["*", "!.gitignore"]
    text = (COMPOSE / "docker-compose.yml").read_text()
    assert not re.search(r"(PASSWORD|TOKEN|SECRET)\w*: (?!/run/secrets/)\S", text)


def test_configurations_are_accepted_and_agree_with_the_services() -> None:
    service = load(COMPOSE / "everstep/service.yml").service
    agent = load(COMPOSE / "everstep/agent.yml").agent
    assert {node.agent_url for node in service.nodes} == {f"http://{name}:{agent.listen.port}" for name in AGENTS}
    assert agent.service_url == f"http://service:{service.listen.port}"
    assert [job.name for job in service.jobs] == [job.name for job in agent.jobs]
    assert service.listen.token_file == agent.service_token_file
    run = load_run(COMPOSE / "everstep/run.yml")
    assert run.job == service.jobs[0].name
    assert run.checkpoint_dir == agent.jobs[0].checkpoint_dir


def test_the_service_knows_its_neighbours() -> None:
    service = load(COMPOSE / "everstep/service.yml").service
    assert service.alertmanager_url == "http://alertmanager:9093"
    assert service.prometheus_url == "http://prometheus:9090"
    assert f"{service.public_url.removeprefix('http://')}:{service.listen.port}" in SERVICES["service"]["ports"]


def test_alertmanager_may_write_to_the_service() -> None:
    service = load(COMPOSE / "everstep/service.yml").service
    config = yaml.safe_load((GENERATED / "alertmanager.yml").read_text())
    (hook,) = next(one["webhook_configs"] for one in config["receivers"] if one["name"] == "everstep")
    assert hook["url"] == f"http://service:{service.listen.port}/api/v1/alerts"
    token = Path(hook["http_config"]["authorization"]["credentials_file"])
    assert token == service.listen.token_file
    assert token.name in SERVICES["alertmanager"]["secrets"]
    mounts = dict(mount.split(":")[:2] for mount in SERVICES["alertmanager"]["volumes"])
    assert (COMPOSE / "../alertrules/generated/alertmanager.yml").resolve() == GENERATED / "alertmanager.yml"
    assert mounts["../alertrules/generated/alertmanager.yml"] == "/etc/alertmanager/alertmanager.yml"


def test_prometheus_pages_through_alertmanager() -> None:
    alerting = yaml.safe_load((COMPOSE / "prometheus/prometheus.yml").read_text())["alerting"]
    assert alerting["alertmanagers"] == [{"static_configs": [{"targets": ["alertmanager:9093"]}]}]


def test_the_services_own_discovery_says_the_same_as_the_files() -> None:
    service = load(COMPOSE / "everstep/service.yml").service
    found = {
        group["targets"][0]: group["labels"] for group in target_groups(service.topology(), cluster=service.cluster)
    }
    assert found == _labels()
    assert service.cluster == load(COMPOSE / "everstep/agent.yml").agent.cluster


def test_discovery_says_the_same_as_agents_and_topology() -> None:
    labels = _labels()
    for name in AGENTS:
        environment = SERVICES[name]["environment"]
        target = labels[f"{name}:9810"]
        assert target["node"] == environment["EVERSTEP_AGENT__NODE"]
        assert target["rack"] == environment["EVERSTEP_AGENT__RACK"]
    for node in load(COMPOSE / "everstep/service.yml").service.nodes:
        assert labels[node.agent_url.removeprefix("http://")]["rack"] == node.rack


def test_only_target_labels_come_from_discovery() -> None:
    assert all(set(labels) <= {"cluster", "node", "rack", "rail"} for labels in _labels().values())


def test_series_about_other_machines_keep_their_own_node() -> None:
    jobs = yaml.safe_load((COMPOSE / "prometheus/prometheus.yml").read_text())["scrape_configs"]
    assert {job["job_name"] for job in jobs} == {"everstep-agent", "everstep-service"}
    assert all(job["honor_labels"] for job in jobs)


def test_grafana_finds_its_dashboards_and_its_data() -> None:
    provider = yaml.safe_load((COMPOSE / "grafana/provisioning/dashboards/everstep.yml").read_text())["providers"][0]
    mounts = dict(mount.split(":")[:2][::-1] for mount in SERVICES["grafana"]["volumes"])
    assert mounts[provider["options"]["path"]] == "../dashboards/json"
    home = Path(SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (COMPOSE / "../dashboards/json" / home.name).is_file()
    source = yaml.safe_load((COMPOSE / "grafana/provisioning/datasources/prometheus.yml").read_text())
    assert source["datasources"][0]["url"] == "http://prometheus:9090"


def test_prometheus_accepts_its_configuration() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("PROMETHEUS CONFIGURATION NOT TESTED: promtool is missing; apt-get install prometheus")
    done = subprocess.run(
        [promtool, "check", "config", str(COMPOSE / "prometheus/prometheus.yml")],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("rules found") == 6
