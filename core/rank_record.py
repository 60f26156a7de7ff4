"""The rank record: a fixed binary file in /dev/shm through which a training rank speaks to its node agent.

The layout is derived from the metric table (every row whose source is the callback). Two banks and a sequence number
make it readable at any moment, also after the rank was killed in the middle of a write: the writer fills the bank that
nobody reads, then publishes it by one aligned 8-byte store. Standard library only; nothing here blocks.

File: header (magic, layout checksum, sequence, pid, attempt, rank, world size, job name), then two banks. A bank is an
array of float64: the slots, then a ring of the last `RING_STEPS` steps with `STEP_FIELDS` numbers each.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import TracebackType

from everstep.core.errors import EverstepError
from everstep.core.metrics import METRICS, Metric, MetricKind, Source

MAGIC = b"EVERSTEP"
RING_STEPS = 64
STEP_FIELDS = ("step", "end", "duration", "compute", "data", "loss", "gradient_norm", "batch")
MAX_JOB_BYTES = 63

SlotKey = tuple[str, tuple[str, ...]]
"""Metric name and the values of its labels other than train_job and rank."""


def _slots_of(metric: Metric) -> Iterator[SlotKey]:
    if metric.kind is MetricKind.HISTOGRAM:
        for bound in (*(repr(bound) for bound in metric.buckets), "+Inf", "sum", "count"):
            yield metric.name, (bound,)
        return
    closed = [label.values for label in metric.labels if label.name not in {"train_job", "rank"}]
    for values in product(*closed):
        yield metric.name, values


SLOTS: dict[SlotKey, int] = {
    key: index
    for index, key in enumerate(
        key for metric in METRICS if metric.source is Source.CALLBACK for key in _slots_of(metric)
    )
}
"""Where each number stands in a bank. Histogram slots are cumulative bucket counts, then `sum` and `count`."""

_HEADER = struct.Struct("=8sIIQqqqq64s")  # magic, layout, reserved, sequence, pid, attempt, rank, world size, job
_SEQUENCE_AT = 16
_BANK_DOUBLES = len(SLOTS) + RING_STEPS * len(STEP_FIELDS)
_BANK_BYTES = _BANK_DOUBLES * 8
_FILE_BYTES = _HEADER.size + 2 * _BANK_BYTES
LAYOUT = zlib.crc32(repr((list(SLOTS), RING_STEPS, STEP_FIELDS)).encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSample:
    """One finished step as the rank saw it: seconds since the epoch for `end`, seconds for the durations."""

    step: int
    end: float
    duration: float
    compute: float
    data: float
    loss: float
    gradient_norm: float
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSnapshot:
    """A consistent reading of a record; `steps` is oldest first."""

    job: str
    rank: int
    world_size: int
    attempt: int
    pid: int
    sequence: int
    values: Mapping[SlotKey, float]
    steps: tuple[StepSample, ...]

    def value(self, name: str, *labels: str) -> float:
        return self.values[(name, labels)]


class RankRecordWriter:
    """Owned by one training rank; call it from one thread. `publish` costs a copy of a few kilobytes."""

    def __init__(self, path: Path, *, job: str, rank: int, world_size: int, attempt: int) -> None:
        name = job.encode()
        if len(name) > MAX_JOB_BYTES:
            raise EverstepError(f"job name {job!r} is longer than {MAX_JOB_BYTES} bytes", mend="shorten it")
        self._path = path
        self.values = array("d", bytes(_BANK_BYTES))
        self._source = memoryview(self.values).cast("B")
        self._sequence = 0
        self._ring_at = 0
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.ftruncate(fd, _FILE_BYTES)
            self._map = mmap.mmap(fd, _FILE_BYTES)
        finally:
            os.close(fd)
        _HEADER.pack_into(self._map, 0, MAGIC, LAYOUT, 0, 0, os.getpid(), attempt, rank, world_size, name)
        self._published = _sequence_of(self._map)
        fresh.rename(path)

    def set(self, slot: int, value: float) -> None:
        """Set a slot by its index in `SLOTS`; visible after `publish`."""
        self.values[slot] = value

    def add_step(self, sample: tuple[float, ...]) -> None:
        """Append a step to the ring, in the order of `STEP_FIELDS`; visible after `publish`."""
        at = len(SLOTS) + self._ring_at * len(STEP_FIELDS)
        self.values[at : at + len(STEP_FIELDS)] = array("d", sample)
        self._ring_at = (self._ring_at + 1) % RING_STEPS

    def publish(self) -> None:
        sequence = self._sequence + 1
        start = _HEADER.size + (sequence & 1) * _BANK_BYTES
        self._map[start : start + _BANK_BYTES] = self._source
        self._published[0] = sequence
        self._sequence = sequence

    def close(self, *, unlink: bool = False) -> None:
        self._published.release()
        self._map.close()
        if unlink:
            self._path.unlink(missing_ok=True)


class RankRecordReader:
    """Maps a record read-only; `read` never waits for the writer."""

    def __init__(self, path: Path) -> None:
        """Raises `EverstepError` when the file is not a record of this layout, `OSError` when it cannot be opened."""
        fd = os.open(path, os.O_RDONLY)
        try:
            if os.fstat(fd).st_size != _FILE_BYTES:
                raise EverstepError(
                    f"{path} is not a rank record of this version",
                    mend="use one Everstep version on the whole node",
                )
            self._map = mmap.mmap(fd, _FILE_BYTES, prot=mmap.PROT_READ)
        finally:
            os.close(fd)
        magic, layout, _, _, pid, attempt, rank, world, name = _HEADER.unpack_from(self._map, 0)
        if magic != MAGIC or layout != LAYOUT:
            self._map.close()
            raise EverstepError(
                f"{path} is not a rank record of this version",
                mend="use one Everstep version on the whole node",
            )
        self._published = _sequence_of(self._map)
        self.pid: int = pid
        self.attempt: int = attempt
        self.rank: int = rank
        self.world_size: int = world
        self.job: str = name.rstrip(b"\0").decode(errors="replace")

    def __enter__(self) -> RankRecordReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._published.release()
        self._map.close()

    def sequence(self) -> int:
        """Number of publications so far; cheap enough to poll."""
        return self._published[0]

    def read(self) -> RankSnapshot:
        """The newest published bank. Retries while the writer overtakes the copy, which takes microseconds."""
        while True:
            sequence = self.sequence()
            start = _HEADER.size + (sequence & 1) * _BANK_BYTES
            bank = array("d", self._map[start : start + _BANK_BYTES])
            if self.sequence() == sequence:
                return self._snapshot(sequence, bank)

    def _snapshot(self, sequence: int, bank: array[float]) -> RankSnapshot:
        return RankSnapshot(
            job=self.job,
            rank=self.rank,
            world_size=self.world_size,
            attempt=self.attempt,
            pid=self.pid,
            sequence=sequence,
            values={key: bank[index] for key, index in SLOTS.items()},
            steps=_ring(bank),
        )


def _sequence_of(record: mmap.mmap) -> memoryview[int]:
    """The sequence number as one aligned 8-byte word. `struct.pack_into` would clear it before it writes it."""
    return memoryview(record)[_SEQUENCE_AT : _SEQUENCE_AT + 8].cast("Q")


def _ring(bank: array[float]) -> tuple[StepSample, ...]:
    width = len(STEP_FIELDS)
    rows = [bank[at : at + width] for at in range(len(SLOTS), _BANK_DOUBLES, width)]
    samples = [
        StepSample(
            step=int(row[0]),
            end=row[1],
            duration=row[2],
            compute=row[3],
            data=row[4],
            loss=row[5],
            gradient_norm=row[6],
            batch=int(row[7]),
        )
        for row in rows
        if row[1] > 0.0
    ]
    return tuple(sorted(samples, key=lambda sample: sample.end))
