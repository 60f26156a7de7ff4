"""What every bench shares: its arguments, its results file, and the JSON object that ends its output."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
DEFAULT_DATA = Path("../shared/data")


class Label(StrEnum):
    """Where numbers come from: processes and servers on this machine, or the cluster twin."""

    REAL = "real"
    SIMULATED = "simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """`measures`, `goals` and `rivals` are plain JSON values keyed by what they measure."""

    bench: str
    ok: bool
    label: Label
    seed: int
    measures: Mapping[str, Any]
    goals: Mapping[str, Any]
    rivals: Mapping[str, Any] = field(default_factory=dict)


def arguments(name: str, purpose: str) -> argparse.ArgumentParser:
    """The options that every bench has; add its own to what is returned."""
    parser = argparse.ArgumentParser(prog=f"python -m everstep.bench.{name}", description=purpose)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="the default: under 60 s on 2 cores")
    size.add_argument("--full", action="store_true", help="every run")
    parser.add_argument("--seed", type=int, default=1, help="first seed")
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="folder of public data sets")
    return parser


def commit() -> str:
    """The commit of this tree, with `+` when files differ from it; `unknown` outside a repository."""
    head = _git("rev-parse", "--short", "HEAD")
    if not head:
        return "unknown"
    return head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")


def _git(*words: str) -> str:
    try:
        done = subprocess.run(
            ["git", *words], cwd=RESULTS.parent, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def machine() -> str:
    """One line: cores, memory, system, Python."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    cores = len(os.sched_getaffinity(0))
    return (
        f"{cores} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    )


def provenance(command: str) -> str:
    """The Markdown lines under a table that say how it was made."""
    day = datetime.now(tz=UTC).date().isoformat()
    return f"Made with `{command}` on {day}, commit {commit()}, {machine()}.\n"


def finish(result: BenchResult, page: str, *, folder: Path = RESULTS) -> int:
    """Write `<bench>.md`, print the JSON line, return the exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{result.bench}.md").write_text(page)
    print(json.dumps(as_object(result)))
    return 0 if result.ok else 1


def as_object(result: BenchResult) -> dict[str, Any]:
    """The JSON object, in the order of design.md section 7."""
    return {
        "bench": result.bench,
        "ok": result.ok,
        "label": result.label.value,
        "measures": dict(result.measures),
        "goals": dict(result.goals),
        "rivals": dict(result.rivals),
        "commit": commit(),
        "seed": result.seed,
    }
