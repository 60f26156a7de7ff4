"""`everstep config`: what the settings are after defaults, file and environment, and whether a file is right."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from everstep.core.errors import ConfigError
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
    """Check a file before a process starts with it: keys, values, node names, token and TLS files.

    Example: everstep config check --config everstep.yaml
    """
    settings = load(config)
    settings.service.topology()
    _read_files(settings)
    print(f"{config}: ok, {_extent(settings.service)}")


def _read_files(settings: Settings) -> None:
    """Raises `ConfigError` naming the first token or TLS file that cannot be used."""
    agent, service = settings.agent, settings.service
    for listen in (agent.listen, service.listen):
        if listen.tls_certificate is not None and listen.tls_key is not None:
            _load_pair(listen.tls_certificate, listen.tls_key)
    for authority in (agent.service_ca_file, service.agent_ca_file):
        if authority is not None:
            _load_authority(authority)
    for path in (
        agent.listen.token_file,
        agent.service_token_file,
        service.listen.token_file,
        service.agent_token_file,
    ):
        read_token(path)


def _load_pair(certificate: Path, key: Path) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(
            f"cannot use TLS files {certificate} and {key} ({error})",
            mend="give a readable PEM certificate and its key",
        ) from error


def _load_authority(path: Path) -> None:
    try:
        ssl.create_default_context(cafile=str(path))
    except OSError as error:
        raise ConfigError(
            f"cannot use CA file {path} ({error})", mend="give the PEM file of the other side's certificate authority"
        ) from error


def _extent(service: ServiceSettings) -> str:
    spares = sum(node.spare for node in service.nodes)
    return f"{len(service.nodes)} nodes ({spares} spare), {len(service.jobs)} jobs"
