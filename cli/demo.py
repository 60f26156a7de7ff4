"""`everstep demo`: train a real job, break it, watch it heal, prove that nothing was lost."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from everstep.cli.demo_run.scenario import ALL, DemoFault, chosen
from everstep.cli.demo_run.screen import Screen
from everstep.cli.demo_run.session import DemoOptions, References, run_fault
from everstep.cli.demo_run.verdict import Verdict
from everstep.core.errors import EverstepError

DEFAULT_STEPS = 80
LEAST_STEPS = 60


def demo(
    fault: Annotated[
        str, typer.Option(help=f"What to break: {', '.join(DemoFault)}, or {ALL}.")
    ] = DemoFault.KILL_PROCESS.value,
    output: Annotated[Path, typer.Option(help="Folder for report.html and incident.json.")] = Path("demo-output"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights and data order.")] = 1,
    steps: Annotated[int, typer.Option(min=LEAST_STEPS, help="Training steps of the job.")] = DEFAULT_STEPS,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object; everything else to stderr.")] = False,
    cold: Annotated[bool, typer.Option("--cold", help="Start through torchrun, without a warm standby.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep logs and checkpoints below --output.")] = False,
) -> None:
    """Run a real distributed job on this machine, inject a fault and watch Everstep heal it.

    Example: everstep demo --fault kill_node --output demo-output
    """
    options = DemoOptions(output=output, seed=seed, steps=steps, cold=cold, keep=keep)
    screen = Screen(Console(stderr=as_json))
    faults = chosen(fault)
    _require_torch()
    try:
        verdicts = _run_all(faults, options, screen)
    except KeyboardInterrupt as error:
        print("everstep demo: interrupted; every child process was ended", file=sys.stderr)
        raise typer.Exit(130) from error
    if as_json:
        print(json.dumps(_summary(fault, verdicts)))
    else:
        _say_where(screen, faults, options)
    raise typer.Exit(0 if all(verdict.ok for verdict in verdicts) else 1)


def _require_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise EverstepError("torch is not installed", mend="run `make install`, or pip install 'everstep[all]'")


def _run_all(faults: tuple[DemoFault, ...], options: DemoOptions, screen: Screen) -> list[Verdict]:
    references: References = {}
    verdicts = []
    for fault in faults:
        folder = options.output if len(faults) == 1 else options.output / fault.value
        each = DemoOptions(output=folder, seed=options.seed, steps=options.steps, cold=options.cold, keep=options.keep)
        verdicts.append(run_fault(fault, each, screen, references))
    return verdicts


def _summary(fault: str, verdicts: list[Verdict]) -> dict[str, Any]:
    if fault != ALL:
        return verdicts[0].as_json()
    return {
        "fault": ALL,
        "ok": all(verdict.ok for verdict in verdicts),
        "runs": [verdict.as_json() for verdict in verdicts],
    }


def _say_where(screen: Screen, faults: tuple[DemoFault, ...], options: DemoOptions) -> None:
    for fault in faults:
        folder = options.output if len(faults) == 1 else options.output / fault.value
        screen.say(f"report: {folder / 'report.html'}")
