"""Samples to remote-write bodies. A series' labels are encoded once; one that vanishes gets a staleness marker.

Nearly all series have one sample a push. What stands before its value never changes and what stands after it is the
same for all samples of one reading, so that each costs a look-up or two and eight bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from everstep.collector.samples import Dated, Labels, Sample
from everstep.core import remote_write
from everstep.core.remote_write import STALE_NAN

_SeriesKey = tuple[str, str, Labels]
_Points = tuple[tuple[float, float], ...]
_pack = struct.Struct("<d").pack
TIME_SIZE = 7
"""Bytes of a time field from 2004 to 2109; other clocks take the long way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A compressed WriteRequest and the number of samples in it."""

    body: bytes
    num_samples: int


class BatchEncoder:
    """Owns the set of series that the service believes to be alive."""

    def __init__(self, target: Mapping[str, str]) -> None:
        self._target = dict(target)
        self._blocks: dict[_SeriesKey, bytes] = {}
        self._fronts: dict[_SeriesKey, bytes] = {}

    def encode(self, samples: Iterable[Sample | Dated], now: float) -> Batch:
        """One body with every point of the samples; values without points or date of their own are stamped `now`."""
        bodies: dict[_SeriesKey, bytes] = {}
        several: dict[_SeriesKey, int] = {}
        plain: list[Sample] = []
        for one in samples:
            if isinstance(one, Dated):
                self._put(one.samples, one.at, bodies)
            elif one.points is None:
                plain.append(one)
            else:
                key = (one.metric, one.suffix, one.labels)
                bodies[key] = self._pointed(key, one.points)
                several[key] = len(one.points)
        self._put(plain, now, bodies)
        bodies |= {key: self._end(key, now) for key in self._ended(bodies)}
        return Batch(
            body=remote_write.compress(b"".join(bodies.values())),
            num_samples=sum(several.get(key, 1) for key, body in bodies.items() if body),
        )

    def _put(self, samples: Iterable[Sample], at: float | None, bodies: dict[_SeriesKey, bytes]) -> None:
        """Samples of one time; without one their series just live on."""
        time = remote_write.encode_time(at) if at is not None else b""
        if len(time) != TIME_SIZE:
            for sample in samples:
                key = (sample.metric, sample.suffix, sample.labels)
                bodies[key] = self._pointed(key, ((at, sample.value),) if at is not None else ())
            return
        fronts = self._fronts
        for sample in samples:
            key = (sample.metric, sample.suffix, sample.labels)
            bodies[key] = (fronts.get(key) or self._front(key)) + _pack(sample.value) + time

    def _ended(self, living: Mapping[_SeriesKey, bytes]) -> list[_SeriesKey]:
        """Every series of this push has its block by now, so that equal numbers say that none has ended."""
        if len(self._blocks) == len(living):
            return []
        return [key for key in self._blocks if key not in living]

    def _pointed(self, key: _SeriesKey, points: _Points) -> bytes:
        block = self._block(key)
        return remote_write.encode_one(block, remote_write.encode_samples(points)) if points else b""

    def _end(self, key: _SeriesKey, now: float) -> bytes:
        self._fronts.pop(key, None)
        return remote_write.encode_one(self._blocks.pop(key), remote_write.encode_samples(((now, STALE_NAN),)))

    def _front(self, key: _SeriesKey) -> bytes:
        front = remote_write.encode_front(self._block(key), time_size=TIME_SIZE)
        self._fronts[key] = front
        return front

    def _block(self, key: _SeriesKey) -> bytes:
        block = self._blocks.get(key)
        if block is None:
            metric, suffix, own = key
            labels = {**self._target, **dict(own), "__name__": metric + suffix}
            block = self._blocks[key] = remote_write.encode_labels(sorted(labels.items()))
        return block


def merge(batches: Iterable[Batch]) -> Batch:
    """One body of several: protobuf messages of one type merge by concatenation."""
    some = tuple(batches)
    if len(some) == 1:
        return some[0]
    raw = b"".join(remote_write.decompress(batch.body, max_bytes=1 << 26) for batch in some)
    return Batch(body=remote_write.compress(raw), num_samples=sum(batch.num_samples for batch in some))
