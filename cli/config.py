"""`everstep config`: what the settings are after defaults, file and environment, and whether a file is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from everstep.core.settings import ServiceSettings, Settings, load, read_token

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Show or check the configuration.\n\nExample: everstep config check --config everstep.yaml",
)

ConfigFile = Annotated[
    Path | None, typer.Option("--config", "-c", help="YAML file; without it: defaults.", show_default=False)
]


@app.command()
def show(
    config: ConfigFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of YAML.")] = False,
) -> None:
    """Print every key with the value in force: the environment (EVERSTEP_...) wins over the file over the defaults.

    Example: everstep config show --config everstep.yaml
    """
    values: dict[str, Any] = load(config).model_dump(mode="json")
    print(json.dumps(values) if as_json else yaml.safe_dump(values, sort_keys=False).rstrip())


@app.command()
def check(
    config: Annotated[Path, typer.Option("--config", "-c", help="YAML file to check.")],
) -> None:
    """Check a file before a process starts with it: keys, values, node names, token files.

    Example: everstep config check --config everstep.yaml
    """
    settings = load(config)
    settings.service.topology()
    _read_files(settings)
    print(f"{config}: ok, {_extent(settings.service)}")


def _read_files(settings: Settings) -> None:
    """Raises `ConfigError` naming the first token file that cannot be used."""
    agent, service = settings.agent, settings.service
    for path in (
        agent.listen.token_file,
        agent.service_token_file,
        service.listen.token_file,
        service.agent_token_file,
    ):
        read_token(path)


def _extent(service: ServiceSettings) -> str:
    spares = sum(node.spare for node in service.nodes)
    return f"{len(service.nodes)} nodes ({spares} spare), {len(service.jobs)} jobs"
