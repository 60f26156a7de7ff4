"""The short way reads what `core.remote_write.decode` reads, whatever stands in the body."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.core.errors import WireError
from everstep.core.remote_write import STALE_NAN, Series, decode, decompress, encode_labels, encode_series, series
from everstep.service.fast_decode import Layouts, decode_known

NOW = 1_796_103_398.123


def raw_of(*batch: Series) -> bytes:
    return decompress(encode_series(batch), max_bytes=10**7)


def watts(gpu: int, *samples: tuple[float, float]) -> Series:
    return series("everstep_gpu_power_watts", {"node": "n" * 150, "gpu": str(gpu)}, samples)


def known(*batch: Series) -> dict[bytes, Any]:
    return {encode_labels(one.labels): number for number, one in enumerate(batch)}


def test_known_series_come_as_arrays_and_others_as_they_are() -> None:
    first, second = watts(0, (NOW, 400.0)), watts(1, (NOW + 1, 401.5))
    news, several = watts(2, (NOW, 1.0)), watts(0, (NOW, 1.0), (NOW + 1, 2.0))
    raw = raw_of(first, news, second, several)
    found, times, values, others = decode_known(raw, known(first, second))
    assert found == [0, 1]
    assert times == [NOW, NOW + 1]
    assert values == [400.0, 401.5]
    assert others == list(decode(raw_of(news, several)))


def test_the_stale_marker_keeps_its_bits() -> None:
    one = watts(0, (NOW, STALE_NAN))
    _, _, values, _ = decode_known(raw_of(one), known(one))
    assert struct.pack("<d", values[0]) == struct.pack("<d", STALE_NAN)


@pytest.mark.parametrize("at", [0.0, 1.0, -1.0, 1e6, 4e9])
def test_times_of_other_lengths_go_the_long_way(at: float) -> None:
    one = watts(0, (at, 1.0))
    found, times, _, others = decode_known(raw_of(one), known(one))
    assert not found or times == [at]
    assert found or others == list(decode(raw_of(one)))


def test_a_tail_that_only_looks_like_a_sample_goes_the_long_way() -> None:
    labels = encode_labels(watts(0).labels)
    odd = labels + b"\x1a\x10" + bytes(16)
    raw = b"\x0a" + bytes([0x80 | len(odd) & 0x7F, len(odd) >> 7]) + odd
    found, _, _, others = decode_known(raw, known(watts(0)))
    assert found == []
    assert others == [(labels, [])]


@pytest.mark.parametrize("tail", [b"\x0a", b"\x0a\xff", b"\x0a\x05\x0a", b"\x0b", b"\x0a\xff\xff\xff\xff\xff"])
def test_a_malformed_end_is_refused(tail: bytes) -> None:
    one = watts(0, (NOW, 1.0))
    with pytest.raises(WireError):
        decode_known(raw_of(one) + tail, known(one))


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.lists(st.tuples(st.integers(-(10**14), 10**14), st.floats()), max_size=3),
        ),
        max_size=8,
    )
)
def test_both_ways_agree(drawn: list[tuple[int, list[tuple[int, float]]]]) -> None:
    batch = [watts(gpu, *((at / 1000, value) for at, value in samples)) for gpu, samples in drawn]
    raw = raw_of(*batch)
    blocks = known(watts(0), watts(1))
    found, times, values, others = decode_known(raw, blocks)
    names = {number: block for block, number in blocks.items()}
    short = [(names[one], [(at, value)]) for one, at, value in zip(found, times, values, strict=True)]
    assert sorted(map(repr, [*short, *others])) == sorted(map(repr, decode(raw)))


@given(st.binary(max_size=120))
def test_any_bytes_are_refused_or_read_alike(raw: bytes) -> None:
    try:
        expected = list(decode(raw))
    except WireError:
        with pytest.raises(WireError):
            decode_known(raw, {})
        return
    _, _, _, others = decode_known(raw, {})
    assert repr(others) == repr(expected)
    assert math.isfinite(len(others))


def test_a_body_of_the_same_layout_is_read_alike() -> None:
    layouts: Layouts[Any] = Layouts()
    blocks = known(watts(0), watts(1))
    for second in range(4):
        raw = raw_of(watts(0, (NOW + second, 400.0 + second)), watts(1, (NOW + second, float("nan"))))
        found, times, values, others = layouts.decode(raw, blocks)
        assert (found, others) == ([0, 1], [])
        assert times == [NOW + second] * 2
        assert values[0] == 400.0 + second
        assert math.isnan(values[1])


def test_equal_length_and_beginning_are_not_enough() -> None:
    layouts: Layouts[Any] = Layouts()
    blocks = known(watts(0), watts(1), watts(2))
    layouts.decode(raw_of(watts(0, (NOW, 1.0)), watts(1, (NOW, 2.0))), blocks)
    found, _, values, _ = layouts.decode(raw_of(watts(0, (NOW, 3.0)), watts(2, (NOW, 4.0))), blocks)
    assert found == [0, 2]
    assert values == [3.0, 4.0]
    raw = bytearray(raw_of(watts(0, (NOW, 3.0)), watts(2, (NOW, 4.0))))
    raw[-1] |= 0x80  # the last time stamp does not end
    with pytest.raises(WireError):
        layouts.decode(bytes(raw), blocks)


def test_layouts_are_bounded() -> None:
    one = raw_of(watts(0, (NOW, 1.0)))
    layouts: Layouts[Any] = Layouts(most_bytes=3 * len(one))
    blocks = known(*(watts(gpu) for gpu in range(9)))
    for gpu in range(9):
        layouts.decode(raw_of(watts(gpu, (NOW, 1.0))), blocks)
    assert len(layouts._held) == 3
    assert layouts._num_bytes == 3 * len(one)


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_layouts_and_any_bytes(bodies: list[bytes]) -> None:
    layouts: Layouts[Any] = Layouts()
    blocks = known(watts(0))
    for raw in [raw_of(watts(0, (NOW, 1.0))), *bodies]:
        try:
            expected = list(decode(raw))
        except WireError:
            with pytest.raises(WireError):
                layouts.decode(raw, blocks)
            continue
        found, _, _, others = layouts.decode(raw, blocks)
        assert len(found) + len(others) == len(expected)
