"""The rank record: a fixed binary file in /dev/shm through which a training rank speaks to its node agent.

The layout is derived from the metric table (every row whose source is the callback). Two banks and a sequence number
make it readable at any moment, also after the rank was killed in the middle of a write: the writer fills the bank that
nobody reads, then publishes it by one aligned 8-byte store. x86-64 shows stores in their order; for ARM a barrier
stands between the two. Standard library only; nothing here blocks.

File: header (magic, layout checksum, sequence, pid, attempt, rank, world size, job name), then two banks. A bank is an
array of float64: the slots, then a ring of the last `RING_STEPS` steps with `STEP_FIELDS` numbers each.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
import threading
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
LATEST_S = 32_503_680_000.0
"""The year 3000: a step that ends later stands in a damaged file, and its time fits no message."""

SlotKey = tuple[str, tuple[str, ...]]
"""Metric name and the values of its labels other than train_job and rank; of a histogram the bound comes last."""


def _slots_of(metric: Metric) -> Iterator[SlotKey]:
    closed = [label.values for label in metric.labels if label.name not in {"train_job", "rank"}]
    if metric.kind is MetricKind.HISTOGRAM:
        closed.append((*(repr(bound) for bound in metric.buckets), "+Inf", "sum", "count"))
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
_WORD = struct.Struct("=Q")
_SEQUENCE_AT = 16
_BANK_DOUBLES = len(SLOTS) + RING_STEPS * len(STEP_FIELDS)
_BANK_BYTES = _BANK_DOUBLES * 8
_FILE_BYTES = _HEADER.size + 2 * _BANK_BYTES
LAYOUT = zlib.crc32(repr((list(SLOTS), RING_STEPS, STEP_FIELDS)).encode())
_START = MAGIC + struct.pack("=I", LAYOUT)


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


class SlotValues(Mapping[SlotKey, float]):
    """The slots of a copied bank by their keys; nothing is unpacked before it is asked for."""

    __slots__ = ("bank",)

    def __init__(self, bank: array[float]) -> None:
        self.bank = bank

    def __getitem__(self, key: SlotKey) -> float:
        return self.bank[SLOTS[key]]

    def __iter__(self) -> Iterator[SlotKey]:
        return iter(SLOTS)

    def __len__(self) -> int:
        return len(SLOTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSnapshot:
    """A consistent reading of a record; `steps` is oldest first."""

    job: str
    rank: int
    world_size: int
    attempt: int
    pid: int
    sequence: int
    values: SlotValues
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
        self._barrier = threading.Lock()
        self._barrier.acquire()
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.posix_fallocate(fd, 0, _FILE_BYTES)  # a page that a full tmpfs lacks later would kill us by SIGBUS
            self._map = mmap.mmap(fd, _FILE_BYTES)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
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
        self._barrier.release()  # a release, then an acquire: no store passes both. Nobody else takes it, so no wait
        self._barrier.acquire()
        self._published[0] = sequence
        self._sequence = sequence

    def close(self, *, unlink: bool = False) -> None:
        self._published.release()
        self._map.close()
        if unlink:
            self._path.unlink(missing_ok=True)


class RankRecordReader:
    """Reads a record through its descriptor, not a mapping: someone who truncates the file must not kill the reader.

    `read` never waits for the writer.
    """

    def __init__(self, path: Path) -> None:
        """Raises `EverstepError` when the file is not a record of this layout, `OSError` when it cannot be opened."""
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe of that name blocks nobody
        size = os.fstat(self._fd).st_size
        header = os.pread(self._fd, _HEADER.size, 0) if size == _FILE_BYTES else b""
        if not header.startswith(_START):
            os.close(self._fd)
            raise EverstepError(
                f"{path} is not a rank record of this version",
                mend="use one Everstep version on the whole node",
            )
        _, _, _, _, pid, attempt, rank, world, name = _HEADER.unpack(header)
        self._sequence = 0
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
        os.close(self._fd)

    def sequence(self) -> int:
        """Number of publications so far; cheap enough to poll. What was seen last when the file has been cut off."""
        word = os.pread(self._fd, _WORD.size, _SEQUENCE_AT)
        if len(word) == _WORD.size:
            (self._sequence,) = _WORD.unpack(word)
        return self._sequence

    def read(self, *, after: float = 0.0) -> RankSnapshot:
        """The newest published bank, with the steps that ended later than `after` and in any case the newest.

        Retries while the writer overtakes the copy, which takes microseconds. Raises `EverstepError` when someone has
        cut the file off.
        """
        while True:
            sequence = self.sequence()
            start = _HEADER.size + (sequence & 1) * _BANK_BYTES
            data = os.pread(self._fd, _BANK_BYTES, start)
            if len(data) < _BANK_BYTES:
                raise EverstepError(f"the record of rank {self.rank} was cut off", mend="start a new attempt")
            if self.sequence() == sequence:
                return self._snapshot(sequence, array("d", data), after)

    def _snapshot(self, sequence: int, bank: array[float], after: float) -> RankSnapshot:
        return RankSnapshot(
            job=self.job,
            rank=self.rank,
            world_size=self.world_size,
            attempt=self.attempt,
            pid=self.pid,
            sequence=sequence,
            values=SlotValues(bank),
            steps=_ring(bank, after),
        )


def _sequence_of(record: mmap.mmap) -> memoryview[int]:
    """The sequence number as one aligned 8-byte word. `struct.pack_into` would clear it before it writes it."""
    return memoryview(record)[_SEQUENCE_AT : _SEQUENCE_AT + 8].cast("Q")


def _ring(bank: array[float], after: float) -> tuple[StepSample, ...]:
    width = len(STEP_FIELDS)
    ends = bank[len(SLOTS) + STEP_FIELDS.index("end") :: width]
    newest = max((end for end in ends if 0.0 < end < LATEST_S), default=0.0)
    since = min(after, math.nextafter(newest, 0.0))
    rows = [
        bank[at : at + width]
        for at, end in zip(range(len(SLOTS), _BANK_DOUBLES, width), ends, strict=True)
        if since < end < LATEST_S
    ]
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
        if math.isfinite(row[0]) and math.isfinite(row[7])
    ]
    return tuple(sorted(samples, key=lambda sample: sample.end))
