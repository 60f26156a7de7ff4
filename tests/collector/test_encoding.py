"""Bodies say exactly what was sampled, with the same bytes whether a series is new or known."""

from __future__ import annotations

import math

import pytest

from everstep.collector.encoding import BatchEncoder, merge
from everstep.collector.samples import Dated, Sample
from everstep.core.remote_write import decode, decode_labels, decompress, is_stale

NOW = 1_800_000_000.0


def decoded(body: bytes) -> dict[tuple[str, ...], list[tuple[float, float]]]:
    """Samples by the label values in the order of their names."""
    raw = decompress(body, max_bytes=1 << 20)
    return {tuple(decode_labels(block).values()): samples for block, samples in decode(raw)}


def sample(value: float, gpu: str = "0", points: tuple[tuple[float, float], ...] | None = None) -> Sample:
    return Sample(metric="everstep_gpu_power_watts", labels=(("gpu", gpu),), value=value, points=points)


def encoder() -> BatchEncoder:
    return BatchEncoder({"node": "n1"})


NAME = ("everstep_gpu_power_watts", "0", "n1")


@pytest.mark.parametrize("now", [NOW, 1.0, 5e9])
def test_a_known_series_is_written_as_a_new_one(now: float) -> None:
    twice = encoder()
    twice.encode([sample(1.0)], now - 1)
    assert twice.encode([sample(2.5)], now) == encoder().encode([sample(2.5)], now)
    assert decoded(twice.encode([sample(2.5)], now).body) == {NAME: [(now, 2.5)]}


def test_readings_keep_their_own_times() -> None:
    batch = encoder().encode([sample(1.0, "0", ((NOW - 2, 7.0),)), sample(3.0, "1")], NOW)
    assert batch.num_samples == 2
    assert sorted(decoded(batch.body).values()) == [[(NOW - 2, 7.0)], [(NOW, 3.0)]]


def test_samples_read_together_carry_their_date_once() -> None:
    one = encoder()
    pair = (sample(1.0), sample(3.0, "1"))
    fresh = one.encode([Dated(samples=pair, at=NOW - 0.5)], NOW)
    assert sorted(decoded(fresh.body).values()) == [[(NOW - 0.5, 1.0)], [(NOW - 0.5, 3.0)]]
    told = one.encode([Dated(samples=pair, at=None)], NOW + 1)
    assert (told.num_samples, decoded(told.body)) == (0, {})
    assert one.encode([Dated(samples=pair[:1], at=NOW + 2)], NOW + 2).num_samples == 2, "one has ended"


def test_several_points_travel_together_and_none_says_that_the_series_lives() -> None:
    one = encoder()
    steps = ((NOW - 2, 1.0), (NOW - 1, math.inf), (NOW, 3.0))
    assert decoded(one.encode([sample(3.0, points=steps)], NOW).body) == {NAME: list(steps)}
    quiet = one.encode([sample(3.0, points=())], NOW + 1)
    assert (quiet.num_samples, decoded(quiet.body)) == (0, {})
    assert decoded(one.encode([sample(4.0)], NOW + 2).body) == {NAME: [(NOW + 2, 4.0)]}


def test_a_series_that_vanishes_is_ended_once_and_can_come_back() -> None:
    one = encoder()
    one.encode([sample(1.0), sample(1.0, "1")], NOW)
    gone = one.encode([sample(1.0, "1")], NOW + 1)
    ((at, value),) = decoded(gone.body)[NAME]
    assert at == NOW + 1
    assert is_stale(value)
    assert NAME not in decoded(one.encode([sample(1.0, "1")], NOW + 2).body)
    assert decoded(one.encode([sample(6.0), sample(1.0, "1")], NOW + 3).body)[NAME] == [(NOW + 3, 6.0)]


def test_the_last_word_about_a_series_counts() -> None:
    batch = encoder().encode([sample(1.0), sample(2.0)], NOW)
    assert (batch.num_samples, decoded(batch.body)) == (1, {NAME: [(NOW, 2.0)]})


def test_batches_merge_by_concatenation() -> None:
    one = encoder()
    batches = [one.encode([sample(float(second))], NOW + second) for second in range(3)]
    merged = merge(batches)
    assert merged.num_samples == 3
    found = [samples for _, samples in decode(decompress(merged.body, max_bytes=1 << 20))]
    assert found == [[(NOW, 0.0)], [(NOW + 1, 1.0)], [(NOW + 2, 2.0)]]


def test_readings_of_one_time_share_it_and_what_was_pushed_before_lives_on() -> None:
    one = encoder()
    reading = [sample(1.0), sample(2.0, "1")]
    first = one.encode([Dated(samples=reading, at=NOW - 3)], NOW)
    assert first.num_samples == 2
    assert sorted(decoded(first.body).values()) == [[(NOW - 3, 1.0)], [(NOW - 3, 2.0)]]
    again = one.encode([Dated(samples=reading, at=None)], NOW + 1)
    assert (again.num_samples, decoded(again.body)) == (0, {})
    gone = one.encode([Dated(samples=reading[1:], at=None)], NOW + 2)
    assert list(decoded(gone.body)) == [NAME]
