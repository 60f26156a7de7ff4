"""`everstep train`: the bundled trainer on this machine through torchrun, without agent and controller."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from everstep.core.errors import EverstepError


def train(
    config: Annotated[Path, typer.Option("--config", "-c", help="YAML file of the run.")],
    processes: Annotated[int, typer.Option("--processes", "-n", min=1, help="Ranks on this machine.")] = 1,
) -> None:
    """Train; ends with torchrun's exit code.

    Example: everstep train --config run.yaml --processes 2
    """
    from everstep.trainer.launch import run

    if importlib.util.find_spec("torch") is None:
        raise EverstepError("torch is not installed", mend="pip install 'everstep[trainer]'")
    raise typer.Exit(run(config, processes))
