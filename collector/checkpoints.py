"""The committed checkpoint copies that this node can see, each verified against its manifest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from everstep.core import manifest
from everstep.core.engine import CheckpointCopy
from everstep.core.errors import ManifestError

_MEMORY = re.compile(r"^step-(?P<step>\d+)/attempt-(?P<attempt>\d+)/rank-(?P<rank>\d+)$")
_DISK = re.compile(r"^step-(?P<step>\d+)-attempt-(?P<attempt>\d+)$")


def checkpoint_copies(node: str, memory_dir: Path, checkpoint_dir: Path | None) -> list[CheckpointCopy]:
    """Memory shards held by this node, then disk checkpoints, newest first. Reads every byte: run it on a thread."""
    copies = list(_copies(node, "memory", memory_dir, _MEMORY))
    if checkpoint_dir is not None:
        copies += _copies(node, "disk", checkpoint_dir, _DISK)
    return sorted(copies, key=lambda copy: (copy.tier == "memory", copy.attempt, copy.step), reverse=True)


def _copies(node: str, tier: str, root: Path, layout: re.Pattern[str]) -> Iterator[CheckpointCopy]:
    for directory in manifest.committed(root):
        found = layout.match(str(directory.relative_to(root)))
        if found is None:
            continue
        rank = found.groupdict().get("rank")
        yield CheckpointCopy(
            step=int(found["step"]),
            tier=tier,
            attempt=int(found["attempt"]),
            holder=node,
            rank=int(rank) if rank is not None else None,
            problem=_problem(directory),
        )


def _problem(directory: Path) -> str:
    try:
        manifest.verify(directory)
    except ManifestError as error:
        return error.problem
    return ""
