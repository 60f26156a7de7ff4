"""What the trainer left on disk and in shared memory, read by the demo itself: steps, resumes, committed copies."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everstep.cli.demo_run.layout import Layout
from everstep.cli.demo_run.scenario import JOB, NODES
from everstep.cli.demo_run.verdict import ResumeLine, StepLine
from everstep.core import manifest
from everstep.core.errors import EverstepError, ManifestError
from everstep.core.rank_record import RankRecordReader

STEPS = "steps.jsonl"
RESUMES = "resumes.jsonl"
CHECKPOINTS = "checkpoints"
PHASE_SECONDS = "everstep_train_phase_seconds_total"


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A committed step and the directories of all its copies in one tier."""

    step: int
    attempt: int
    tier: str
    copies: tuple[Path, ...]


def read_steps(job_dir: Path) -> tuple[StepLine, ...]:
    return tuple(
        StepLine(
            step=int(line["step"]),
            attempt=int(line["attempt"]),
            batch=int(line["batch"]),
            loss=float(line["loss"]) if line["loss"] is not None else float("nan"),
            sample_hash=str(line["sample_hash"]),
            at=float(line["end"]),
        )
        for line in _lines(job_dir / STEPS)
    )


def read_resumes(job_dir: Path) -> tuple[ResumeLine, ...]:
    return tuple(
        ResumeLine(
            attempt=int(line["attempt"]),
            step=int(line["step"]),
            tier=str(line.get("tier") or ""),
            at=float(line["at"]),
        )
        for line in _lines(job_dir / RESUMES)
    )


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Whole lines only: the last one may be half written, by a process that was killed."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return
    for line in text.splitlines(keepends=True):
        if line.endswith("\n") and line.startswith("{"):
            yield json.loads(line)


def phase_seconds(record: Path) -> dict[str, float]:
    """Mean seconds a step in each phase, from a rank record; empty when there is none."""
    try:
        with RankRecordReader(record) as reader:
            values = reader.read().values
    except (OSError, EverstepError):
        return {}
    steps = values["everstep_train_step_duration_seconds", ("count",)]
    phases = {labels[0]: total for (name, labels), total in values.items() if name == PHASE_SECONDS}
    return {phase: total / steps for phase, total in phases.items() if total > 0} if steps > 0 else {}


def committed(layout: Layout) -> list[Committed]:
    """Every committed step of the job, oldest first; in memory only when a manifest of each rank's shard is there."""
    return sorted([*_in_memory(layout), *_on_disk(layout)], key=lambda one: (one.attempt, one.step, one.tier))


def _in_memory(layout: Layout) -> Iterator[Committed]:
    shards: dict[tuple[int, int], dict[int, list[Path]]] = defaultdict(lambda: defaultdict(list))
    worlds: dict[tuple[int, int], int] = {}
    for node in NODES:
        for directory, found in _manifests(layout.run_dir(node) / "memory" / JOB):
            if found.rank is not None:
                shards[found.attempt, found.step][found.rank].append(directory)
                worlds[found.attempt, found.step] = found.world_size
    for (attempt, step), by_rank in shards.items():
        if len(by_rank) == worlds[attempt, step]:
            copies = tuple(path for paths in by_rank.values() for path in paths)
            yield Committed(step=step, attempt=attempt, tier="memory", copies=copies)


def _on_disk(layout: Layout) -> Iterator[Committed]:
    for directory, found in _manifests(layout.job_dir(JOB) / CHECKPOINTS):
        yield Committed(step=found.step, attempt=found.attempt, tier="disk", copies=(directory,))


def _manifests(root: Path) -> Iterator[tuple[Path, manifest.Manifest]]:
    for directory in manifest.committed(root):
        try:
            yield directory, manifest.read(directory)
        except ManifestError:
            continue  # removed between the listing and the reading: an older step that retention took
