"""Watches the rank records of this node and turns them into samples.

Polling reads eight bytes a record; a record is copied only when its rank has published, and a folder is listed only
when its time stamp has moved. Steps are collected as they appear, so that none is lost between two pushes as long as
fewer than a ring of them ends within one poll.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from everstep.collector.gate import Rejections
from everstep.collector.record_series import RecordSeries
from everstep.collector.samples import Sample
from everstep.core.errors import EverstepError
from everstep.core.rank_record import RankRecordReader, RankSnapshot, StepSample

NONFINITE = "everstep_train_nonfinite_steps_total"
SETTLED_NS = 50_000_000
"""A folder that changed this shortly before it was listed may change again under the same time stamp."""


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
    series: RecordSeries
    snapshot: RankSnapshot | None = None
    fresh_steps: list[StepSample] = field(default_factory=list)
    last_end: float = 0.0
    closing: bool = False


class _Folders:
    """The records below a root, by path with their inodes."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._stamps: dict[str, int] = {}
        self._files: dict[str, int] = {}
        self._settled = False

    def files(self) -> dict[str, int]:
        if not self._settled or any(_stamp(folder) != stamp for folder, stamp in self._stamps.items()):
            self._list()
        return self._files

    def _list(self) -> None:
        jobs = [entry.path for entry in _entries(self._root) if entry.is_dir()]
        self._stamps = {folder: _stamp(folder) for folder in (self._root, *jobs)}
        self._files = {
            entry.path: entry.inode() for job in jobs for entry in _entries(job) if entry.name.endswith(".rec")
        }
        self._settled = time.time_ns() - max(self._stamps.values()) > SETTLED_NS


def _stamp(folder: str) -> int:
    """When the folder's list of names last changed, in ns; 0 where there is none."""
    try:
        return os.stat(folder).st_mtime_ns  # noqa: PTH116 - polled ten times a second; Path costs more
    except OSError:
        return 0


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except OSError:
        return []


class RecordWatcher:
    """All records below `root` (`<root>/<job>/rank-<r>.rec`) that `accepts(job, rank, attempt)` lets in."""

    def __init__(
        self, root: Path, accepts: Callable[[str, int, int], bool], rejections: Rejections | None = None
    ) -> None:
        """`rejections` counts what the range gate refuses; without it nobody is told."""
        self._folders = _Folders(str(root))
        self._accepts = accepts
        self._rejections = rejections if rejections is not None else Rejections()
        self._watched: dict[str, _Watched] = {}
        self._refused: dict[str, int] = {}
        self._log = structlog.get_logger()

    def poll(self) -> list[RecordChange]:
        """What has changed since the last poll."""
        present = self._folders.files()
        for path in [path for path in self._watched if path not in present]:
            self._watched[path].closing = True
        changes: list[RecordChange] = []
        for path, inode in present.items():
            watched = self._open(path, inode)
            if watched is not None and not watched.closing:
                change = self._advance(watched)
                if change is not None:
                    changes.append(change)
        return changes

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
        self._watched[path] = watched = _Watched(reader, inode, RecordSeries(reader.job, reader.rank, self._rejections))
        return watched

    def _advance(self, watched: _Watched) -> RecordChange | None:
        reader = watched.reader
        before = watched.snapshot
        if before is not None and reader.sequence() == before.sequence:
            return None
        try:
            snapshot = reader.read(after=watched.last_end)
        except EverstepError:
            return None  # cut off by someone: nothing new can be told
        if snapshot.sequence == 0:
            return None
        watched.snapshot = snapshot
        steps = [step for step in snapshot.steps if step.end > watched.last_end]
        if steps:
            watched.fresh_steps.extend(steps)
            watched.last_end = steps[-1].end
        counted = before.value(NONFINITE) if before is not None else 0.0
        return RecordChange(
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
                self._advance(watched)
                watched.closing = True

    def collect(self) -> Iterable[Sample]:
        """The newest values, for a scrape; takes nothing away."""
        for watched in self._watched.values():
            if watched.snapshot is not None and not watched.closing:
                yield from watched.series.samples(watched.snapshot, None)

    def drain(self) -> Iterable[Sample]:
        """For a push: the newest values, and every step since the last drain."""
        for path, watched in list(self._watched.items()):
            if watched.snapshot is not None:
                yield from watched.series.samples(watched.snapshot, tuple(watched.fresh_steps))
                watched.fresh_steps.clear()
            if watched.closing:
                watched.reader.close()
                del self._watched[path]

    def runs(self) -> Iterator[RankSnapshot]:
        """The newest snapshot of each job whose rank 0 lives on this node."""
        for watched in self._watched.values():
            if watched.snapshot is not None and watched.snapshot.rank == 0 and not watched.closing:
                yield watched.snapshot

    def close(self) -> None:
        for watched in self._watched.values():
            watched.reader.close()
        self._watched.clear()
