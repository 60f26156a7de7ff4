"""The pure parts of the ingest bench: the bodies that it lays out and the page that it writes."""

from __future__ import annotations

import random

import pytest

from everstep.bench import ingest
from everstep.core.metrics import METRIC_BY_NAME
from everstep.core.remote_write import decode, decode_labels, decompress

COST = ingest.Cost(
    gpus=1_024,
    num_series=27_648,
    share=0.05,
    worst_share=0.06,
    first_us=20.0,
    bytes_per_series=900.0,
    bytes_per_sample=16.0,
)


def push_of(node: int) -> ingest.Push:
    return ingest.Push(node, random.Random(1))  # noqa: S311 - seeded values of a bench, no secret


def decoded(body: bytes) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
    raw = decompress(body, max_bytes=1 << 24)
    return [(decode_labels(block), samples) for block, samples in decode(raw)]


def test_a_push_holds_every_series_of_a_node_once() -> None:
    found = decoded(push_of(3).body(0))
    assert len(found) == ingest.PER_GPU_SERIES * ingest.GPUS_PER_NODE == 216
    assert len({tuple(labels.items()) for labels, _ in found}) == 216
    assert {labels["node"] for labels, _ in found} == {"node-3"}
    assert {labels["rank"] for labels, _ in found if "rank" in labels} == {str(24 + local) for local in range(8)}


def test_a_push_speaks_of_metrics_that_the_table_knows() -> None:
    names = {name for name, _, _ in (*ingest.PER_GPU, *ingest.PER_RANK)}
    assert names <= METRIC_BY_NAME.keys()


def test_a_later_second_moves_times_and_counters_and_nothing_else() -> None:
    push = push_of(0)
    first, later = decoded(push.body(0)), decoded(push.body(7))
    for (labels, [(at, value)]), (labels_later, [(at_later, value_later)]) in zip(first, later, strict=True):
        assert labels == labels_later
        assert at_later - at == pytest.approx(7.0)
        if labels["__name__"] == "everstep_train_steps_total":
            assert value_later - value == 7.0
        if labels["__name__"] in ingest.STEADY:
            assert value_later == value


def test_every_sample_of_some_seconds_is_taken() -> None:
    push = push_of(0)
    cost = ingest.measure([push], seconds=2)
    assert (cost.gpus, cost.num_series) == (8, 216)


def test_the_rival_decodes_the_same_bodies() -> None:
    message = ingest._write_request().FromString(decompress(push_of(0).body(0), max_bytes=1 << 24))
    assert len(message.timeseries) == 216
    assert message.timeseries[0].samples[0].timestamp == int(ingest.START * 1000)


def test_samples_per_core_second_follow_from_the_share() -> None:
    assert COST.samples_per_core_s == 27_648 / 0.05


def test_the_page_says_what_was_not_run() -> None:
    page = ingest.page([COST], {}, 80.0, "command")
    assert "| 1,024 | 27,648 | 5.0% | 6.0% | 10% | 552,960 | not run | 20 µs | 900 B | 16 B |" in page
    assert "takes 80 µs a push" in page
