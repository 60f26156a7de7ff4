"""`everstep agent`: the node agent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from everstep.collector import slim
from everstep.core.settings import load


def agent(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="YAML file with an 'agent:' section.", show_default=False)
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print one exposition and exit.")] = False,
) -> None:
    """Run the agent of this node: sample, push, serve /metrics, start and stop workers.

    Example: everstep agent --config agent.yaml
    """
    settings = load(config).agent
    slim.share_arenas()
    with slim.without_terminals():
        from everstep.collector.agent import NodeAgent, run_agent
        from everstep.collector.logs import configure_logging
    configure_logging()
    if once:
        print(NodeAgent(settings).exposition(), end="")
        return
    run_agent(settings)
