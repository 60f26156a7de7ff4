"""Watches the rank records of this node and turns them into samples.

Polling reads eight bytes a record; a record is copied only when its rank has published. Steps are collected as they
appear, so that none is lost between two pushes as long as fewer than a ring of them ends within one poll.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from everstep.collector.samples import Labels, Sample
from everstep.core.errors import EverstepError
from everstep.core.metrics import METRIC_BY_NAME, Metric, MetricKind, Scope
from everstep.core.rank_record import SLOTS, RankRecordReader, RankSnapshot, SlotKey, StepSample

NONFINITE = "everstep_train_nonfinite_steps_total"
STEPWISE: dict[str, Callable[[StepSample], float]] = {
    "everstep_train_loss": lambda step: step.loss,
    "everstep_train_steps_total": lambda step: float(step.step),
    "everstep_train_step_compute_seconds": lambda step: step.compute,
    "everstep_train_batch_index": lambda step: float(step.batch),
}
"""Metrics with one sample a step, stamped with the step's end."""

_BEFORE_FIRST_STEP = {
    "everstep_train_attempt",
    "everstep_train_state",
    "everstep_train_nonfinite_batch",
    "everstep_checkpoint_last_step",
}
"""Gauges that mean something before a step has ended; the others would show a zero that nobody measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordChange:
    """What a poll found: the rank published, with `nonfinite` when its count of non-finite steps has grown."""

    job: str
    rank: int
    attempt: int
    pid: int
    nonfinite: bool


@dataclass(slots=True, eq=False)
class _Watched:
    reader: RankRecordReader
    inode: int
    snapshot: RankSnapshot | None = None
    fresh_steps: list[StepSample] = field(default_factory=list)
    last_end: float = 0.0
    closing: bool = False


class RecordWatcher:
    """All records below `root` (`<root>/<job>/rank-<r>.rec`) that `accepts(job, rank, attempt)` lets in."""

    def __init__(self, root: Path, accepts: Callable[[str, int, int], bool]) -> None:
        self._root = root
        self._accepts = accepts
        self._watched: dict[str, _Watched] = {}
        self._refused: dict[str, int] = {}
        self._log = structlog.get_logger()

    def poll(self) -> list[RecordChange]:
        """What has changed since the last poll."""
        present = dict(self._files())
        for path in [path for path in self._watched if path not in present]:
            self._watched[path].closing = True
        changes: list[RecordChange] = []
        for path, inode in present.items():
            watched = self._open(path, inode)
            if watched is not None and not watched.closing:
                changes.extend(self._advance(watched))
        return changes

    def _files(self) -> Iterator[tuple[str, int]]:
        try:
            jobs = [entry.path for entry in os.scandir(self._root) if entry.is_dir()]
        except OSError:
            return
        for job in jobs:
            try:
                entries = list(os.scandir(job))
            except OSError:
                continue
            for entry in entries:
                if entry.name.endswith(".rec"):
                    yield entry.path, entry.inode()

    def _open(self, path: str, inode: int) -> _Watched | None:
        watched = self._watched.get(path)
        if watched is not None and watched.inode == inode:
            return watched
        if self._refused.get(path) == inode:
            return None
        try:
            reader = RankRecordReader(Path(path))
        except FileNotFoundError:
            return None
        except (EverstepError, OSError, ValueError) as error:
            self._refused[path] = inode
            self._log.error("rank_record_refused", error=str(error))
            return None
        if not self._accepts(reader.job, reader.rank, reader.attempt):
            reader.close()
            return None
        if watched is not None:
            watched.reader.close()
        self._watched[path] = watched = _Watched(reader, inode)
        return watched

    def _advance(self, watched: _Watched) -> Iterator[RecordChange]:
        reader = watched.reader
        before = watched.snapshot
        if before is not None and reader.sequence() == before.sequence:
            return
        try:
            snapshot = reader.read()
        except EverstepError:
            return  # cut off by someone: nothing new can be told
        if snapshot.sequence == 0:
            return
        watched.snapshot = snapshot
        steps = [step for step in snapshot.steps if step.end > watched.last_end]
        if steps:
            watched.fresh_steps.extend(steps)
            watched.last_end = steps[-1].end
        counted = before.value(NONFINITE) if before is not None else 0.0
        yield RecordChange(
            job=snapshot.job,
            rank=snapshot.rank,
            attempt=snapshot.attempt,
            pid=snapshot.pid,
            nonfinite=snapshot.value(NONFINITE) > counted,
        )

    def finish(self, job: str, rank: int) -> None:
        """The rank has ended: read its last words; its series end after they have been drained once."""
        for watched in self._watched.values():
            if watched.reader.job == job and watched.reader.rank == rank and not watched.closing:
                list(self._advance(watched))
                watched.closing = True

    def collect(self) -> Iterable[Sample]:
        """The newest values, for a scrape; takes nothing away."""
        for watched in self._watched.values():
            if watched.snapshot is not None and not watched.closing:
                yield from _samples(watched.snapshot, None)

    def drain(self) -> Iterable[Sample]:
        """For a push: the newest values, and every step since the last drain."""
        for path, watched in list(self._watched.items()):
            if watched.snapshot is not None:
                yield from _samples(watched.snapshot, tuple(watched.fresh_steps))
                watched.fresh_steps.clear()
            if watched.closing:
                watched.reader.close()
                del self._watched[path]

    def close(self) -> None:
        for watched in self._watched.values():
            watched.reader.close()
        self._watched.clear()


def _slots_by_metric() -> dict[str, tuple[SlotKey, ...]]:
    grouped: dict[str, list[SlotKey]] = {}
    for key in SLOTS:
        grouped.setdefault(key[0], []).append(key)
    return {name: tuple(keys) for name, keys in grouped.items()}


_SLOTS_BY_METRIC = _slots_by_metric()


def _samples(snapshot: RankSnapshot, steps: tuple[StepSample, ...] | None) -> Iterator[Sample]:
    for name, keys in _SLOTS_BY_METRIC.items():
        metric = METRIC_BY_NAME[name]
        if metric.scope is Scope.JOB and snapshot.rank != 0:
            continue
        if name in STEPWISE:
            yield from _stepwise(metric, snapshot, steps)
        elif _is_set(metric, keys, snapshot):
            for key in keys:
                yield _slot(metric, key, snapshot)


def _is_set(metric: Metric, keys: tuple[SlotKey, ...], snapshot: RankSnapshot) -> bool:
    """Whether the trainer has given the metric a value; an optional one that it does not offer is zero or NaN."""
    values = [snapshot.values[key] for key in keys]
    if metric.optional and all(value == 0.0 or math.isnan(value) for value in values):
        return False
    counts = metric.kind in {MetricKind.COUNTER, MetricKind.HISTOGRAM}
    return counts or bool(snapshot.steps) or metric.name in _BEFORE_FIRST_STEP


def _labels(metric: Metric, snapshot: RankSnapshot) -> Labels:
    job = (("train_job", snapshot.job),)
    return (*job, ("rank", str(snapshot.rank))) if "rank" in metric.label_names else job


def _slot(metric: Metric, key: SlotKey, snapshot: RankSnapshot) -> Sample:
    labels, value = _labels(metric, snapshot), snapshot.values[key]
    if metric.kind is MetricKind.HISTOGRAM:
        (bound,) = key[1]
        if bound in {"sum", "count"}:
            return Sample(metric=metric.name, suffix=f"_{bound}", labels=labels, value=value)
        return Sample(metric=metric.name, suffix="_bucket", labels=(*labels, ("le", bound)), value=value)
    own = [label.name for label in metric.labels if label.name not in {"train_job", "rank"}]
    return Sample(metric=metric.name, labels=(*labels, *zip(own, key[1], strict=True)), value=value)


def _stepwise(metric: Metric, snapshot: RankSnapshot, steps: tuple[StepSample, ...] | None) -> Iterator[Sample]:
    if not snapshot.steps:
        return
    read = STEPWISE[metric.name]
    points = None if steps is None else tuple((step.end, read(step)) for step in steps)
    yield Sample(metric=metric.name, labels=_labels(metric, snapshot), value=read(snapshot.steps[-1]), points=points)
