"""`everstep dashboards`: Grafana's JSON of every board, as this version carries it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from everstep.cli.shipping import ship
from everstep.core.derived import shipped


def dashboards(
    output: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("everstep-dashboards"),
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; end with 1 when the folder differs from this version.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write the Grafana dashboards into a folder that a provisioning provider reads.

    Example: everstep dashboards --output /var/lib/grafana/dashboards/everstep
    """
    texts = shipped("everstep.dashboards", "json", ".json")
    raise typer.Exit(ship(output, texts, pattern="*.json", check=check, as_json=as_json))
