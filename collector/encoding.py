"""Samples to remote-write bodies. A series' labels are encoded once; one that vanishes gets a staleness marker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from everstep.collector.samples import Labels, Sample
from everstep.core import remote_write
from everstep.core.remote_write import STALE_NAN

_SeriesKey = tuple[str, str, Labels]


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

    def encode(self, samples: Iterable[Sample], now: float) -> Batch:
        """One body with every point of the samples; values without points of their own are stamped `now`."""
        points: dict[_SeriesKey, tuple[tuple[float, float], ...]] = {}
        for sample in samples:
            key = (sample.metric, sample.suffix, sample.labels)
            points[key] = ((now, sample.value),) if sample.points is None else sample.points
        ended = [key for key in self._blocks if key not in points]
        parts = [(self._block(key), some) for key, some in points.items() if some]
        parts += [(self._blocks.pop(key), ((now, STALE_NAN),)) for key in ended]
        for key in points:
            self._block(key)
        return Batch(
            body=remote_write.encode((block, remote_write.encode_samples(some)) for block, some in parts),
            num_samples=sum(len(some) for _, some in parts),
        )

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
