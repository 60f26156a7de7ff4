"""The usual series of a push in one pass: a known label block and one sample, found by its bytes and its place.

A sample with a time stamp of today is 18 bytes long and stands last. So what lies before the last 18 bytes of a series
is its label block, and one look-up tells whether it is known. Values and times of all that were found are then read at
once as arrays. What is not like that goes through `core.remote_write`.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from everstep.core.remote_write import decode

T = TypeVar("T")
Samples = list[tuple[float, float]]
Others = list[tuple[bytes, Samples]]

SAMPLE_BYTES = 18  # 12 10 09 <8 bytes of value> 10 <6 bytes of milliseconds>
MOST_BYTES = 256 * 2**20
_VALUE, _TIME = 3, 12
_WEIGHTS = 128 ** np.arange(6, dtype=np.int64)


def decode_known(raw: bytes, known: Mapping[bytes, T]) -> tuple[list[T], list[float], list[float], Others]:
    """What `known` holds for each plain series, with times in seconds and values; then all others as `decode` gives.

    Raises `WireError` as `decode` does, for any malformed part of the body.
    """
    found: list[T] = []
    places: list[int] = []
    rest: list[tuple[int, int]] = []
    at, end, get = 0, len(raw), known.get
    while at < end:
        start = at + 2
        if start >= end or raw[at] != 0x0A:
            return [], [], [], list(decode(raw))
        size = raw[at + 1]
        if size >= 0x80:
            if raw[start] >= 0x80:
                return [], [], [], list(decode(raw))
            size += (raw[start] << 7) - 0x80
            start += 1
        stop = start + size
        if stop > end:
            return [], [], [], list(decode(raw))
        slot = get(raw[start : stop - SAMPLE_BYTES]) if size > SAMPLE_BYTES else None
        if slot is None:
            rest.append((at, stop))
        else:
            found.append(slot)
            places.append(stop - SAMPLE_BYTES)
        at = stop
    samples = _samples(raw, places)
    if samples is None:
        return [], [], [], list(decode(raw))
    others = [one for first, last in _joined(rest) for one in decode(raw[first:last])]
    return found, samples[0], samples[1], others


@dataclass(frozen=True, slots=True)
class _Layout(Generic[T]):
    """A body of plain series only: what was found, where the samples stand, and all other bytes."""

    found: list[T]
    places: NDArray[np.int64]
    blank: NDArray[np.uint8]


class Layouts(Generic[T]):
    """Remembers bodies by their length and first series, the newest up to `most_bytes`; `known` only ever grows."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._num_bytes = 0
        self._held: OrderedDict[tuple[int, bytes], _Layout[T]] = OrderedDict()

    def decode(self, raw: bytes, known: Mapping[bytes, T]) -> tuple[list[T], list[float], list[float], Others]:
        """As `decode_known`."""
        key = len(raw), _first_block(raw)
        layout = self._held.get(key)
        if layout is not None:
            samples = _fill(raw, layout)
            if samples is not None:
                return layout.found, *samples, []
        found, times, values, others = decode_known(raw, known)
        if found and not others:
            self._keep(key, raw, found)
        return found, times, values, others

    def _keep(self, key: tuple[int, bytes], raw: bytes, found: list[T]) -> None:
        places = np.array(list(_places(raw)), dtype=np.int64)
        held: NDArray[np.uint8] = np.frombuffer(raw, dtype=np.uint8).copy()
        held[places[:, None] + np.arange(SAMPLE_BYTES)] = 0
        former = self._held.pop(key, None)
        self._num_bytes += len(raw) - (len(former.blank) if former is not None else 0)
        self._held[key] = _Layout(found, places, held)
        while self._num_bytes > self._most_bytes:
            _, oldest = self._held.popitem(last=False)
            self._num_bytes -= len(oldest.blank)


def _fill(raw: bytes, layout: _Layout[T]) -> tuple[list[float], list[float]] | None:
    """Times and values of a body of this layout; None when it is of another."""
    held: NDArray[np.uint8] = np.frombuffer(raw, dtype=np.uint8)
    where = layout.places[:, None] + np.arange(SAMPLE_BYTES)
    block = held[where]
    rest = held.copy()
    rest[where] = 0
    return _read(block) if np.array_equal(rest, layout.blank) else None


def _first_block(raw: bytes) -> bytes:
    """The label block of the first series of a usual body; of another one anything."""
    long = len(raw) > 2 and raw[1] >= 0x80
    start = 3 if long else 2
    size = raw[1] + (raw[2] << 7) - 0x80 if long else raw[1] if len(raw) > 1 else 0
    return raw[start : start + max(0, size - SAMPLE_BYTES)]


def _places(raw: bytes) -> Iterator[int]:
    """Where the samples begin, in a body that was found to hold nothing but plain series."""
    at = 0
    while at < len(raw):
        size, start = raw[at + 1], at + 2
        if size >= 0x80:
            size += (raw[start] << 7) - 0x80
            start += 1
        at = start + size
        yield at - SAMPLE_BYTES


def _samples(raw: bytes, places: list[int]) -> tuple[list[float], list[float]] | None:
    """Times and values of the samples that begin at these places; None when one is not of the usual form."""
    if not places:
        return [], []
    held: NDArray[np.uint8] = np.frombuffer(raw, dtype=np.uint8)
    return _read(held[np.asarray(places)[:, None] + np.arange(SAMPLE_BYTES)])


def _read(block: NDArray[np.uint8]) -> tuple[list[float], list[float]] | None:
    usual = (block[:, :3] == (0x12, 0x10, 0x09)).all() and (block[:, _TIME - 1] == 0x10).all()
    if not usual or (block[:, _TIME:-1] < 0x80).any() or (block[:, -1] >= 0x80).any():
        return None
    values = np.ascontiguousarray(block[:, _VALUE : _VALUE + 8]).view("<f8")[:, 0]
    times = ((block[:, _TIME:] & 0x7F) @ _WEIGHTS) / 1000.0
    return times.tolist(), values.tolist()


def _joined(pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Neighbours as one piece, so that a body of nothing but news is decoded in one go."""
    joined: list[tuple[int, int]] = []
    last = -math.inf
    for start, stop in pieces:
        if start == last:
            joined[-1] = joined[-1][0], stop
        else:
            joined.append((start, stop))
        last = stop
    return joined
