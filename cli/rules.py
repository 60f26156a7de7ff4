"""`everstep rules`: Prometheus' rule files and Alertmanager's configuration, as this version carries them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from everstep.alertrules.alertmanager import SERVICE_URL, TOKEN_FILE
from everstep.alertrules.rule import RUNBOOK_BASE
from everstep.cli.shipping import ship
from everstep.core.derived import shipped
from everstep.core.errors import EverstepError


def rules(
    output: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("everstep-rules"),
    service_url: Annotated[str, typer.Option(help="Where Alertmanager reaches the service.")] = SERVICE_URL,
    token_file: Annotated[
        str, typer.Option(help="The service's token, as Alertmanager's machine sees it.")
    ] = TOKEN_FILE,
    runbook_base: Annotated[str, typer.Option(help="Where the runbooks are published.")] = RUNBOOK_BASE,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; end with 1 when the folder differs from this version.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write recording rules, alert rules, rules for other exporters, and Alertmanager's configuration into a folder.

    Example: everstep rules --output /etc/prometheus/everstep --service-url http://10.1.0.1:9800
    """
    if not re.fullmatch(r"https?://[^\s/]+(/\S*)?", service_url):
        raise EverstepError(f"{service_url!r} is no address", mend="give --service-url as http://host:port")
    changed = {
        f"url: {SERVICE_URL}/": f"url: {service_url.rstrip('/')}/",
        f"credentials_file: {TOKEN_FILE}": f"credentials_file: {json.dumps(token_file)}",
        f"runbook_url: {RUNBOOK_BASE}/": f"runbook_url: {runbook_base.rstrip('/')}/",
    }
    if token_file == TOKEN_FILE:
        del changed[f"credentials_file: {TOKEN_FILE}"]
    texts = {name: _with(text, changed) for name, text in shipped("everstep.alertrules", "generated", ".yml").items()}
    raise typer.Exit(ship(output, texts, pattern="*.yml", check=check, as_json=as_json))


def _with(text: str, changed: dict[str, str]) -> str:
    for before, after in changed.items():
        text = text.replace(before, after)
    return text
