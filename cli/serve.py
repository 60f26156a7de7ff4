"""`everstep serve`: the service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from everstep.core.settings import load


def serve(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="YAML file with a 'service:' section.", show_default=False)
    ] = None,
) -> None:
    """Watch jobs, find what breaks, name the cause, recover; HTTP API, SQLite store and metrics.

    Example: everstep serve --config service.yaml
    """
    from everstep.service.server import serve as run

    run(load(config).service)
