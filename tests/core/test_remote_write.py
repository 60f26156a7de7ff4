"""The wire format: round trips, Google's protobuf runtime as referee, and hostile bodies."""

from __future__ import annotations

import math
import struct
from typing import Any

import cramjam
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from everstep.core.errors import WireError
from everstep.core.remote_write import (
    HEADERS,
    STALE_NAN,
    Series,
    compress,
    decode,
    decode_labels,
    decompress,
    encode,
    encode_labels,
    encode_samples,
    encode_series,
    is_stale,
    series,
)

LIMIT = 2**20
_FIELD = descriptor_pb2.FieldDescriptorProto


def _write_request() -> Any:
    """The class of prometheus.WriteRequest, from a descriptor built here (field numbers of prompb/types.proto)."""
    file = descriptor_pb2.FileDescriptorProto(name="everstep_test_remote.proto", package="prometheus", syntax="proto3")
    scalars = {"string": _FIELD.TYPE_STRING, "double": _FIELD.TYPE_DOUBLE, "int64": _FIELD.TYPE_INT64}
    for message, fields in {
        "Label": [("name", 1, "string"), ("value", 2, "string")],
        "Sample": [("value", 1, "double"), ("timestamp", 2, "int64")],
        "Exemplar": [("labels", 1, "Label"), ("value", 2, "double"), ("timestamp", 3, "int64")],
        "TimeSeries": [("labels", 1, "Label"), ("samples", 2, "Sample"), ("exemplars", 3, "Exemplar")],
        "MetricMetadata": [("type", 1, "int64"), ("metric_family_name", 2, "string"), ("help", 4, "string")],
        "WriteRequest": [("timeseries", 1, "TimeSeries"), ("metadata", 3, "MetricMetadata")],
    }.items():
        described = file.message_type.add(name=message)
        for name, number, kind in fields:
            field = described.field.add(name=name, number=number)
            if kind in scalars:
                field.type, field.label = scalars[kind], _FIELD.LABEL_OPTIONAL
            else:
                field.type, field.label = _FIELD.TYPE_MESSAGE, _FIELD.LABEL_REPEATED
                field.type_name = f".prometheus.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("prometheus.WriteRequest"))


WriteRequest = _write_request()

label_names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,20}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
milliseconds = st.integers(min_value=-(2**52), max_value=2**52)
samples = st.lists(st.tuples(milliseconds.map(lambda ms: ms / 1000.0), st.floats(allow_nan=False)), max_size=8)
batches = st.lists(st.builds(series, label_names, st.dictionaries(label_names, texts, max_size=6), samples), max_size=6)


def _decoded(body: bytes) -> list[Series]:
    raw = decompress(body, max_bytes=LIMIT)
    return [
        Series(labels=tuple(sorted(decode_labels(block).items())), samples=tuple(found)) for block, found in decode(raw)
    ]


def _problem(body: bytes) -> str:
    """What the decoder says; empty when it can read the body. Anything but `WireError` fails the test."""
    try:
        _decoded(body)
    except WireError as error:
        return str(error)
    return ""


@given(batches)
def test_what_is_encoded_is_decoded(batch: list[Series]) -> None:
    assert _decoded(encode_series(batch)) == batch


@given(batches)
def test_googles_runtime_reads_what_we_write(batch: list[Series]) -> None:
    request = WriteRequest.FromString(decompress(encode_series(batch), max_bytes=LIMIT))
    read = [
        Series(
            labels=tuple((label.name, label.value) for label in one.labels),
            samples=tuple((sample.timestamp / 1000.0, sample.value) for sample in one.samples),
        )
        for one in request.timeseries
    ]
    assert read == batch


@given(batches)
def test_we_read_what_googles_runtime_writes_and_skip_metadata_and_exemplars(batch: list[Series]) -> None:
    request = WriteRequest()
    for one in batch:
        written = request.timeseries.add()
        for at, value in one.samples:
            written.samples.add(timestamp=round(at * 1000), value=value)
        exemplar = written.exemplars.add(value=1.5, timestamp=7)
        exemplar.labels.add(name="trace_id", value="abc")
        for name, text in one.labels:
            written.labels.add(name=name, value=text)
    request.metadata.add(type=1, metric_family_name="everstep_train_steps_total", help="Steps.")
    assert _decoded(compress(request.SerializeToString())) == batch


@given(batches)
def test_the_label_block_of_a_decoded_series_is_the_encoders_own(batch: list[Series]) -> None:
    raw = decompress(encode_series(batch), max_bytes=LIMIT)
    assert [block for block, _ in decode(raw)] == [encode_labels(one.labels) for one in batch]


@given(st.binary(max_size=300))
def test_any_bytes_as_body_raise_wire_error_or_decode(body: bytes) -> None:
    problem = _problem(body)
    assert "\n" not in problem


@given(st.binary(max_size=300))
def test_any_bytes_as_write_request_raise_wire_error_or_decode(raw: bytes) -> None:
    problem = _problem(compress(raw))
    assert problem == "" or "send Prometheus remote-write 1.0" in problem


@given(batches.filter(len), st.data())
def test_a_cut_body_raises_wire_error_or_holds_fewer_series(batch: list[Series], data: st.DataObject) -> None:
    raw = decompress(encode_series(batch), max_bytes=LIMIT)
    cut = raw[: data.draw(st.integers(0, len(raw) - 1))]
    problem = _problem(compress(cut))
    if problem:
        assert "body ends inside" in problem
    else:
        assert len(_decoded(compress(cut))) < len(batch)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"\x0a\x05\x0a", "ends inside a field"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "ends inside a number"),
        (b"\x0b", "wire type 3"),
        (b"\x0a\x02\x0a\x00", "no name"),
        (b"\x0a\x08\x0a\x06\x0a\x01a\x12\x01\xff", "not UTF-8"),
        (b"\x0a\x0a\x12\x08\x09\0\0\0\0\0\0\0", "ends inside a field"),
    ],
)
def test_malformed_requests_say_what_is_wrong(raw: bytes, problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        _decoded(compress(raw))


@pytest.mark.parametrize("body", [b"", b"\x80", b"not snappy at all", b"\x05\xff\xff", cramjam.gzip.compress(b"x")])
def test_a_body_that_is_not_snappy_says_so(body: bytes) -> None:
    with pytest.raises(WireError, match=r"send Prometheus remote-write 1\.0"):
        decompress(bytes(body), max_bytes=LIMIT)


def test_a_body_is_refused_by_its_decoded_size_before_it_grows() -> None:
    bomb = compress(bytes(2**20))
    assert len(bomb) < 2**17
    assert len(decompress(bomb, max_bytes=2**20)) == 2**20
    with pytest.raises(WireError, match="1048576 bytes, 1048575 are allowed; send smaller batches"):
        decompress(bomb, max_bytes=2**20 - 1)
    claims_an_exabyte = b"\xff\xff\xff\xff\xff\xff\xff\xff\x0f" + bomb
    with pytest.raises(WireError, match="send smaller batches"):
        decompress(claims_an_exabyte, max_bytes=2**20)


def test_the_stale_marker_survives_the_wire_and_is_no_ordinary_nan() -> None:
    body = encode_series([series("up", {}, [(1.0, STALE_NAN), (2.0, math.nan)])])
    ((_, ended), (_, ordinary)) = _decoded(body)[0].samples
    assert struct.pack("<d", ended) == bytes.fromhex("020000000000f07f")
    assert (is_stale(ended), is_stale(ordinary), is_stale(1.0)) == (True, False, False)


def test_infinities_and_times_before_the_epoch_survive_the_wire() -> None:
    sent = ((-1.5, math.inf), (0.0, -math.inf), (1764565200.123, 0.0))
    assert _decoded(encode_series([series("x", {}, sent)]))[0].samples == sent


@pytest.mark.parametrize("last", [b"\x02", b"\x7e"])
def test_a_number_of_more_than_64_bits_is_refused(last: bytes) -> None:
    label = b"\x0a\x0d\x0a\x08__name__\x12\x01a"
    raw = b"\x0a\x1c" + label + b"\x12\x0b\x10\x81" + b"\x80" * 8 + last
    with pytest.raises(WireError, match="number of more than 64 bits"):
        _decoded(compress(raw))


def test_series_sorts_labels_and_counts_the_name_as_one() -> None:
    assert series("m", {"zone": "z", "A": "a"}, [(1.0, 2.0)]).labels == (("A", "a"), ("__name__", "m"), ("zone", "z"))


def test_lone_surrogates_in_a_value_are_replaced_not_raised() -> None:
    ((labels, _),) = [(one.labels, one.samples) for one in _decoded(encode_series([series("m", {"a": "\ud800"}, [])]))]
    assert labels == (("__name__", "m"), ("a", "?"))


def test_blocks_kept_by_a_caller_make_the_same_body_as_whole_series() -> None:
    one = series("m", {"rank": "3"}, [(1.0, 2.0), (2.0, 3.0)])
    assert encode([(encode_labels(one.labels), encode_samples(one.samples))]) == encode_series([one])


def test_the_headers_are_those_of_the_specification() -> None:
    assert HEADERS == {
        "Content-Type": "application/x-protobuf",
        "Content-Encoding": "snappy",
        "X-Prometheus-Remote-Write-Version": "0.1.0",
    }
