"""`everstep train`: the bundled trainer on this machine through torchrun, without agent and controller."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from everstep.cli.machine import check_torch
from everstep.core.errors import EverstepError


def train(
    config: Annotated[Path, typer.Option("--config", "-c", help="YAML file of the run.")],
    processes: Annotated[int, typer.Option("--processes", "-n", min=1, help="Ranks on this machine.")] = 1,
) -> None:
    """Train; ends with torchrun's exit code.

    Example: everstep train --config run.yaml --processes 2
    """
    from everstep.trainer.launch import INTERRUPTED, run

    if importlib.util.find_spec("torch") is None:
        raise EverstepError("torch is not installed", mend="pip install 'everstep[trainer]'")
    code = run(config, processes)
    if code not in {0, INTERRUPTED}:
        _require_working_torch()
    raise typer.Exit(code)


def _require_working_torch() -> None:
    """After a failure only: importing torch to see whether that is the trouble takes seconds."""
    torch = check_torch()
    if not torch.ok:
        raise EverstepError(f"torch {torch.found}", mend=torch.mend)
