"""A real Prometheus finds two real agents through the service's `/sd`, with the labels of the topology."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from monitoring import found, free_port, get, prometheus, running, until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
WITHIN_S = 60.0


def _everstep(command: str, config: Path) -> list[str]:
    return [sys.executable, "-m", "everstep.cli.main", command, "--config", str(config)]


@pytest.fixture
def discovering(tmp_path: Path) -> Iterator[str]:
    """A Prometheus whose only scrape job asks the service, which guards its writes with a token."""
    service, agents = free_port(), {name: free_port() for name in ("node-0", "node-1")}
    (tmp_path / "token").write_text("discovery-token")
    listen = {"port": service, "token_file": str(tmp_path / "token")}
    nodes = [
        {"name": name, "agent_url": f"http://127.0.0.1:{port}", "rack": f"rack-{name[-1]}"}
        for name, port in agents.items()
    ]
    section = {"cluster": "c1", "listen": listen, "data_dir": str(tmp_path / "data"), "nodes": nodes}
    (tmp_path / "service.yml").write_text(yaml.safe_dump({"service": section}))
    discovery = {"url": f"http://127.0.0.1:{service}/sd", "refresh_interval": "1s"}
    scrape = {"job_name": "everstep-agent", "scrape_interval": "1s", "http_sd_configs": [discovery]}
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump({"scrape_configs": [scrape]}))
    with ExitStack() as servers:
        start = servers.enter_context
        ready = f"http://127.0.0.1:{service}/readyz"
        start(running(_everstep("serve", tmp_path / "service.yml"), tmp_path / "service.log", ready))
        for name, port in agents.items():
            agent = {
                "node": name,
                "listen": {"port": port},
                "service_url": f"http://127.0.0.1:{service}",
                "service_token_file": str(tmp_path / "token"),
                "run_dir": str(tmp_path / f"{name}-run"),
                "log_dir": str(tmp_path / f"{name}-log"),
            }
            (tmp_path / f"{name}.yml").write_text(yaml.safe_dump({"agent": agent}))
            healthy = f"http://127.0.0.1:{port}/healthz"
            start(running(_everstep("agent", tmp_path / f"{name}.yml"), tmp_path / f"{name}.log", healthy))
        yield start(prometheus(tmp_path / "prometheus.yml", tmp_path))


def test_both_agents_are_scraped_under_their_names(discovering: str) -> None:
    for name in ("node-0", "node-1"):
        up = f'up{{job="everstep-agent",cluster="c1",node="{name}",rack="rack-{name[-1]}"}} == 1'
        until(f"a scrape of {name}", lambda up=up: found(discovering, up), within_s=WITHIN_S)
    (value,) = get(f"{discovering}/api/v1/query", query="count(up)")["data"]["result"]
    assert value["value"][1] == "2"
    assert found(discovering, 'everstep_host_memory_available_bytes{cluster="c1",node="node-1"}')
