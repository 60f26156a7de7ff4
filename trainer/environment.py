"""What the launcher tells a worker: torchrun's variables and the agent's; the only reader of the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from everstep.core.engine import ResumePoint
from everstep.core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEnvironment:
    """`attempt` is None without a controller; `resume` None means the newest state that verifies.

    `launched` is False for a bare process without a launcher, which is a world of its own.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    attempt: int | None = None
    job: str = ""
    node: str = ""
    node_dir: Path | None = None
    memory_dir: Path | None = None
    resume: ResumePoint | None = None
    skip_batches: frozenset[int] = frozenset()
    launched: bool = False

    @classmethod
    def read(cls, variables: Mapping[str, str] | None = None) -> WorkerEnvironment:
        """Raises `ConfigError` naming the variable that cannot be understood."""
        source = os.environ if variables is None else variables
        return cls(
            rank=_whole(source, "RANK", 0),
            world_size=_whole(source, "WORLD_SIZE", 1),
            local_rank=_whole(source, "LOCAL_RANK", 0),
            attempt=_whole(source, "EVERSTEP_ATTEMPT", 0) if source.get("EVERSTEP_ATTEMPT") else None,
            job=source.get("EVERSTEP_JOB", ""),
            node=source.get("EVERSTEP_NODE", ""),
            node_dir=_path(source, "EVERSTEP_NODE_DIR"),
            memory_dir=_path(source, "EVERSTEP_MEMORY_DIR"),
            resume=_resume(source.get("EVERSTEP_RESUME", "auto")),
            launched="MASTER_ADDR" in source,
            skip_batches=_batches(source.get("EVERSTEP_SKIP_BATCHES", "")),
        )


def _whole(source: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(source.get(name) or default)
    except ValueError as error:
        raise ConfigError(f"{name} is {source[name]!r}", mend="give a whole number") from error


def _path(source: Mapping[str, str], name: str) -> Path | None:
    return Path(source[name]) if source.get(name) else None


def _resume(text: str) -> ResumePoint | None:
    if text in {"", "auto"}:
        return None
    try:
        data = json.loads(text)
        return ResumePoint(step=int(data["step"]), tier=str(data["tier"]), attempt=int(data["attempt"]))
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"EVERSTEP_RESUME is {text!r}", mend='use auto or {"step":40,"tier":"disk","attempt":1}'
        ) from error


def _batches(text: str) -> frozenset[int]:
    try:
        return frozenset(int(item) for item in text.split(",") if item.strip())
    except ValueError as error:
        raise ConfigError(
            f"EVERSTEP_SKIP_BATCHES is {text!r}", mend="give batch indices separated by commas"
        ) from error
