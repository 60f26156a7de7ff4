"""Prometheus remote-write 1.0 bodies: snappy block format around protobuf `prometheus.WriteRequest`.

https://prometheus.io/docs/specs/prw/remote_write_spec/ . The decoder hands out each label block as raw bytes, so
that a reader resolves known series by one dictionary look-up and parses labels only for new ones; this is why it is not
generated code. Tests compare both directions with Google's protobuf runtime.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import cramjam

from everstep.core.errors import WireError

CONTENT_TYPE = "application/x-protobuf"
HEADERS = {
    "Content-Type": CONTENT_TYPE,
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
STALE_NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]
_STALE_BITS = 0x7FF0000000000002
_MEND = "send Prometheus remote-write 1.0 (snappy block, prometheus.WriteRequest)"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_PLAIN_SAMPLE = 10  # bytes before the time stamp of a sample whose value comes first


@dataclass(frozen=True, slots=True)
class Series:
    """Labels sorted by name, `__name__` included; samples as (seconds since the epoch, value), oldest first."""

    labels: tuple[tuple[str, str], ...]
    samples: tuple[tuple[float, float], ...]


def series(name: str, labels: dict[str, str], samples: Iterable[tuple[float, float]]) -> Series:
    """A series with its labels in the order that the protocol wants."""
    return Series(labels=tuple(sorted({**labels, "__name__": name}.items())), samples=tuple(samples))


def is_stale(value: float) -> bool:
    """Whether the value is Prometheus' staleness marker, which says that the series has ended.

    >>> is_stale(STALE_NAN), is_stale(float("nan"))
    (True, False)
    """
    return math.isnan(value) and struct.unpack("<Q", struct.pack("<d", value))[0] == _STALE_BITS


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(body)) + body


def encode_labels(labels: Iterable[tuple[str, str]]) -> bytes:
    """The label fields of one TimeSeries, as they stand on the wire; constant per series, so callers keep it."""
    return b"".join(
        _field(1, _field(1, name.encode()) + _field(2, value.encode("utf-8", "replace"))) for name, value in labels
    )


def encode_samples(samples: Iterable[tuple[float, float]]) -> bytes:
    """The sample fields of one TimeSeries; times in seconds become the protocol's milliseconds."""
    out = bytearray()
    for at, value in samples:
        time = encode_time(at)
        out += b"\x12" + _varint(9 + len(time)) + b"\x09" + struct.pack("<d", value) + time
    return bytes(out)


def encode_time(at: float) -> bytes:
    """The time field of a sample."""
    return b"\x10" + _varint(round(at * 1000) & 0xFFFFFFFFFFFFFFFF)


def encode_front(labels: bytes, *, time_size: int) -> bytes:
    """A series with one sample as far as its value; the value (little-endian float64) and a time field so long follow.

    >>> front = encode_front(encode_labels([("__name__", "up")]), time_size=len(encode_time(0.0)))
    >>> front + struct.pack("<d", 1.0) + encode_time(0.0) == encode_one(
    ...     encode_labels([("__name__", "up")]), encode_samples([(0.0, 1.0)]))
    True
    """
    sample = b"\x12" + _varint(9 + time_size) + b"\x09"
    return _varint(1 << 3 | _BYTES) + _varint(len(labels) + len(sample) + 8 + time_size) + labels + sample


def encode_one(labels: bytes, samples: bytes) -> bytes:
    """One series of a WriteRequest from its label block and its sample block."""
    return _field(1, labels + samples)


def encode(blocks: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A compressed body from (label block, sample block) pairs."""
    return compress(b"".join(encode_one(labels, samples) for labels, samples in blocks))


def compress(raw: bytes) -> bytes:
    """A body from the bytes of a WriteRequest."""
    return bytes(cramjam.snappy.compress_raw(raw))


def encode_series(batch: Iterable[Series]) -> bytes:
    """A compressed body from whole series."""
    return encode((encode_labels(one.labels), encode_samples(one.samples)) for one in batch)


def decompress(body: bytes, *, max_bytes: int) -> bytes:
    """Raises `WireError` on a body that is not snappy or that would grow past `max_bytes`, before it grows."""
    size, _ = _read_varint(body, 0)
    if size > max_bytes:
        raise WireError(f"body would decompress to {size} bytes, {max_bytes} are allowed", mend="send smaller batches")
    try:
        return bytes(cramjam.snappy.decompress_raw(body))
    except Exception as error:
        raise WireError("body is not snappy-compressed", mend=_MEND) from error


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise WireError("body ends inside a number", mend=_MEND)
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            if result >= 1 << 64:
                raise WireError("body holds a number of more than 64 bits", mend=_MEND)
            return result, at
        shift += 7


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(field number, wire type, start, stop) of each field between two offsets."""
    while at < end:
        key = data[at]  # nearly every number here is one byte long; a call for each would double the time
        if key < 0x80:
            at += 1
        else:
            key, at = _read_varint(data, at)
        wire = key & 7
        if wire == _BYTES:
            if at < end and data[at] < 0x80:
                stop = at + 1 + data[at]
                at += 1
            else:
                size, at = _read_varint(data, at)
                stop = at + size
        elif wire == _FIXED64:
            stop = at + 8
        elif wire == _VARINT:
            _, stop = _read_varint(data, at)
        elif wire == _FIXED32:
            stop = at + 4
        else:
            raise WireError(f"body holds wire type {wire}", mend=_MEND)
        if stop > end:
            raise WireError("body ends inside a field", mend=_MEND)
        yield key >> 3, wire, at, stop
        at = stop


def decode(raw: bytes) -> Iterator[tuple[bytes, list[tuple[float, float]]]]:
    """Each series of a decompressed WriteRequest as (raw label block, samples). Raises `WireError`.

    The label block is the concatenation of the label fields, equal to `encode_labels` of the same labels.
    """
    for number, wire, start, stop in _fields(raw, 0, len(raw)):
        if number == 1 and wire == _BYTES:
            yield _series(raw, start, stop)


def _series(raw: bytes, start: int, stop: int) -> tuple[bytes, list[tuple[float, float]]]:
    labels = bytearray()
    samples = []
    at = start
    for number, wire, inner, end in _fields(raw, start, stop):
        if number == 1 and wire == _BYTES:
            labels += raw[at:end]
        elif number == 2 and wire == _BYTES:
            samples.append(_sample(raw, inner, end))
        at = end
    return bytes(labels), samples


def _sample(raw: bytes, start: int, stop: int) -> tuple[float, float]:
    value, at = 0.0, 0
    if stop - start > _PLAIN_SAMPLE and raw[start] == 0x09 and raw[start + 9] == 0x10:  # as every sender writes it
        value = struct.unpack_from("<d", raw, start + 1)[0]
        at, end = _read_varint(raw, start + 10)
        if end == stop:
            return (at - (1 << 64) if at >= 1 << 63 else at) / 1000.0, value
        value, at = 0.0, 0
    for number, wire, inner, _ in _fields(raw, start, stop):
        if number == 1 and wire == _FIXED64:
            value = struct.unpack_from("<d", raw, inner)[0]
        elif number == 2 and wire == _VARINT:
            at, _ = _read_varint(raw, inner)
    if at >= 1 << 63:
        at -= 1 << 64
    return at / 1000.0, value


def decode_labels(block: bytes) -> dict[str, str]:
    """The labels of a raw block. Raises `WireError` on bytes that are not UTF-8 or a block without `__name__`."""
    labels: dict[str, str] = {}
    for number, wire, start, stop in _fields(block, 0, len(block)):
        if number != 1 or wire != _BYTES:
            continue
        pair = {1: b"", 2: b""}
        for inner, kind, first, last in _fields(block, start, stop):
            if kind == _BYTES and inner in pair:
                pair[inner] = block[first:last]
        try:
            labels[pair[1].decode()] = pair[2].decode()
        except UnicodeDecodeError as error:
            raise WireError("a label is not UTF-8", mend=_MEND) from error
    if "__name__" not in labels:
        raise WireError("a series has no name", mend=_MEND)
    return labels
