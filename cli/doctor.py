"""`everstep doctor`: prints what this machine has and lacks, and how to get what is missing."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from everstep.cli.machine import Check, examine


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """Look at this machine: Python, packages, shared memory, tools, GPU library, permissions, disk, ports.

    Ends with 1 when something is missing without which nothing runs.

    Example: everstep doctor --json
    """
    checks = examine()
    fit = all(check.ok for check in checks if check.required)
    if as_json:
        print(json.dumps({"ok": fit, "checks": [asdict(check) for check in checks]}))
    else:
        print("\n".join(_line(check) for check in checks))
    raise typer.Exit(0 if fit else 1)


def _line(check: Check) -> str:
    word = "ok" if check.ok else ("MISSING" if check.required else "missing")
    mend = "" if check.ok else f"; {check.mend}"
    return f"{word:<8} {check.name:<22} {check.found}{mend}"
